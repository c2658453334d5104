// SPDX-License-Identifier: GPL-2.0
//! What the firmware knows besides the GPU itself: the driver's objects, and recorded answers.

use super::{counts::Counts, objects::Objects, recordings::Recordings};

/// What answers depend on.
#[derive(Debug, Default)]
pub struct Knowledge {
    /// What the driver has made.
    pub objects: Objects,
    /// How messages were answered.
    pub counts: Counts,
    recordings: Option<Recordings>,
}

impl Knowledge {
    /// The recordings, which are read when they are first asked for.
    pub fn recordings(&mut self) -> &Recordings {
        self.recordings.get_or_insert_with(Recordings::read)
    }
}
