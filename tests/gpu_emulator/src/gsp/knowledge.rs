// SPDX-License-Identifier: GPL-2.0
//! The firmware's knowledge besides the GPU itself: the driver's objects, and recorded answers.

use super::{
    controls::{self, Control},
    counts::Counts,
    objects::Objects,
    recordings::Recordings,
};
use crate::abi::Abi;
use std::collections::HashMap;

/// The state that answers depend on.
#[derive(Debug)]
pub struct Knowledge {
    /// The driver's objects.
    pub objects: Objects,
    /// How messages were answered.
    pub counts: Counts,
    /// The controls that the driver's release has and that are known.
    pub controls: HashMap<u32, Control>,
    /// The next allocation of this class has this status.
    pub refuse: Option<(u32, u32)>,
    recordings: Option<Recordings>,
}

impl Knowledge {
    /// The state before anything was made.
    pub fn new(abi: &Abi) -> Self {
        Self {
            objects: Objects::default(),
            counts: Counts::default(),
            controls: controls::known(abi),
            refuse: None,
            recordings: None,
        }
    }

    /// The recordings, which are read when they are first asked for.
    pub fn recordings(&mut self) -> &Recordings {
        self.recordings.get_or_insert_with(Recordings::read)
    }
}
