// SPDX-License-Identifier: GPL-2.0
//! How far the GPU is on its way into time slices, and out of them.

use super::{
    authority::InstanceId,
    time::Nanos, //
};

/// Whether there are slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SliceProgress {
    /// There are none.
    Off,
    /// Every group's slice is set in a turn of windows, before they may begin.
    Prepared,
    /// They share the GPU.
    On,
}

/// Whether there are slices, and how they go.
#[derive(Debug)]
pub(super) struct SliceStage {
    stage: SliceProgress,
    /// All channels may be on. Before, the first instance has the GPU alone, as in a window. It
    /// stays so when slices end, because the time until the mode changes is charged as theirs.
    open: bool,
    began: Nanos,
    /// The instance that was heard of last: it has the GPU.
    runner: Option<InstanceId>,
    /// When the changes of runner so far would all be due, if there were two of each in a turn.
    changes_due: Nanos,
}

impl SliceStage {
    pub(super) const fn new() -> Self {
        Self {
            stage: SliceProgress::Off,
            open: false,
            began: 0,
            runner: None,
            changes_due: 0,
        }
    }

    /// Whether there are slices.
    pub(super) fn are_on(&self) -> bool {
        self.stage == SliceProgress::On
    }

    /// Whether each group's slice is to be set.
    pub(super) fn are_prepared(&self) -> bool {
        self.stage != SliceProgress::Off
    }

    /// Whether an instance has the GPU by now.
    pub(super) fn are_open(&self) -> bool {
        self.open
    }

    /// When slices began.
    pub(super) fn began(&self) -> Nanos {
        self.began
    }

    /// Whether an instance has the GPU.
    pub(super) fn is_runner(&self, id: InstanceId) -> bool {
        self.runner == Some(id)
    }

    /// The instance that has the GPU.
    pub(super) fn runner(&self) -> Option<InstanceId> {
        self.runner
    }

    /// Notes, at the end of a turn of windows, whether every instance is ready for slices. Returns
    /// whether that was so at the end of the turn before.
    pub(super) fn prepare(&mut self, ready: bool) -> bool {
        let were_prepared = self.are_prepared();
        self.stage = if ready {
            SliceProgress::Prepared
        } else {
            SliceProgress::Off
        };
        were_prepared
    }

    /// Begins slices with this instance.
    pub(super) fn begin(&mut self, now: Nanos, first: Option<InstanceId>) {
        *self = Self {
            stage: SliceProgress::On,
            open: false,
            began: now,
            runner: first,
            changes_due: now,
        };
    }

    /// Lets all channels be on, because the first instance has the GPU to itself.
    pub(super) fn open(&mut self) {
        self.open = true;
    }

    /// Gives the GPU to an instance and returns the one that had it. Changes are due at intervals
    /// of `every`.
    pub(super) fn change_runner(
        &mut self,
        now: Nanos,
        id: InstanceId,
        every: Nanos,
    ) -> Option<InstanceId> {
        let last = self.runner.replace(id);
        if last != Some(id) {
            self.changes_due = self.changes_due.max(now).saturating_add(every);
        }
        last
    }

    /// Whether the runner changed so often that the changes are due only after this moment.
    pub(super) fn changes_are_ahead_of(&self, at: Nanos) -> bool {
        self.changes_due > at
    }

    /// Ends slices.
    pub(super) fn end(&mut self) {
        self.stage = SliceProgress::Off;
    }
}
