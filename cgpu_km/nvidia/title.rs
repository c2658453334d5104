// SPDX-License-Identifier: GPL-2.0 OR MIT
//! NVIDIA's names of calls that no table has, for people. Where a branch's own tables have a call,
//! its name stands there.

use super::{
    generated::titles::{
        CLASSES,
        CONTROLS,
        UVM, //
    },
    handle::{
        ClassId,
        ControlCmd, //
    }, //
};

/// The name of a class; `None` for one that NVIDIA's sources do not name.
pub fn of_class(class: ClassId) -> Option<&'static str> {
    find(&CLASSES, class.0)
}

/// The name of a control; `None` for one that NVIDIA's headers do not name.
pub fn of_control(cmd: ControlCmd) -> Option<&'static str> {
    find(&CONTROLS, cmd.0)
}

/// The name of a command of UVM; `None` for one that NVIDIA's headers do not name.
pub fn of_uvm(cmd: u32) -> Option<&'static str> {
    find(&UVM, cmd)
}

fn find(table: &'static [(u32, &'static str)], number: u32) -> Option<&'static str> {
    let at = table.binary_search_by_key(&number, |entry| entry.0).ok()?;
    table.get(at).map(|entry| entry.1)
}
