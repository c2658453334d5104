// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The output of `tests/abi/generate.py`, with the tables of each branch.

use super::{tables::Tables, version::Branch};

pub(super) mod kernel;
pub(super) mod nvos;
pub(super) mod params;
mod r535;
mod r550;
mod r570;
mod r580;
mod r595;
pub(super) mod titles;
pub(super) mod uvm;

impl Tables {
    /// The tables of `branch`. `None`: they were not made, so a GPU with such a driver is refused
    /// when it is attached.
    pub const fn of(branch: Branch) -> Option<&'static Self> {
        Some(match branch {
            Branch::R535 => &r535::TABLES,
            Branch::R550 => &r550::TABLES,
            Branch::R570 => &r570::TABLES,
            Branch::R580 => &r580::TABLES,
            Branch::R595 => &r595::TABLES,
        })
    }
}
