// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What `tests/abi/generate.py` wrote.

pub(super) mod kernel;
pub(super) mod nvos;
pub(super) mod params;
pub(super) mod r535;
pub(super) mod r550;
pub(super) mod r570;
pub(super) mod r580;
pub(super) mod r595;
pub(super) mod titles;
pub(super) mod uvm;
