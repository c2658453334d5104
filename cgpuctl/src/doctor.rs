// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Checks of what must be true of a host so that the limits hold.
//!
//! A check is a function from the [`Scene`] to [`Finding`]s, one for each thing that it looked at;
//! the list is [`CHECKS`]. It looks through [`Look`], never at the machine itself, so that the
//! tests can show it any host. To add one: write the function in a file below, put it into the
//! list, describe it in docs/cgpuctl.md.
//!
//! A fact that a check cannot find out is [`FindingState::Unknown`], with the reason; it never
//! passes for sound.

mod cgpufs;
mod containers;
mod holders;
mod installation;
mod module;
mod nodes;
mod preflight;
pub(crate) mod scene;
mod weights;

pub use scene::{Finding, FindingState, Scene};

use crate::host::Host;

/// The checks, in the order in which they are shown.
pub const CHECKS: &[fn(&Scene<'_>) -> Vec<Finding>] = &[
    module::module,
    preflight::host,
    module::driver,
    module::kernel_interface,
    weights::weights,
    cgpufs::mount,
    nodes::permissions,
    nodes::modify_device_files,
    nodes::uvm,
    holders::foreign,
    containers::device_groups,
    installation::hook,
    installation::libraries,
    installation::cdi_file,
    installation::headers,
];

/// Runs every check.
pub fn examine(host: &dyn Host) -> Vec<Finding> {
    let scene = Scene::new(host);
    CHECKS.iter().flat_map(|check| check(&scene)).collect()
}
