// SPDX-License-Identifier: GPL-2.0
//! The turn that the GPU is in, and its window.

use super::{
    authority::InstanceId,
    time::Nanos, //
};

/// A window that has begun: its holder has the GPU to itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenWindow {
    pub(super) holder: InstanceId,
    /// When the holder had the GPU to itself.
    pub(super) since: Nanos,
    /// When the window is to end.
    pub(super) until: Nanos,
    /// Since when the holder's silence in it counts: its gate was armed, or its silence was
    /// counted.
    pub(super) armed_at: Nanos,
    /// When the holder's gate is to be armed again.
    pub(super) rearm_at: Nanos,
}

impl OpenWindow {
    /// Since when the holder is listened to.
    pub(super) fn listens_since(&self) -> Nanos {
        self.armed_at.max(self.since)
    }
}

/// The state of the window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Window {
    /// No instance has it.
    Nobody,
    /// The next holder is chosen, at `given_at`. The driver's calls for it are not all made yet.
    Due { holder: InstanceId, given_at: Nanos },
    /// It has begun.
    Open(OpenWindow),
}

/// The present turn of the GPU, and the window in it.
#[derive(Debug)]
pub(super) struct GpuTurn {
    /// Turns so far, those without a window included.
    pub(super) number: u64,
    /// When it began.
    pub(super) began: Nanos,
    /// How long it is to last; 0 if another turn is to begin at once.
    pub(super) length: Nanos,
    window: Window,
    /// The holder of the last window that began.
    last: Option<InstanceId>,
    /// From when on the GPU was free for the next holder: the last window was given, or the last
    /// switch of channels took effect, whichever was later.
    free_at: Nanos,
    /// How often the GPU went from one instance to another.
    switches: u64,
    /// GPU time of bursts since the turn began. Their windows are no part of the turn.
    bursts: Nanos,
    /// When the last window was ended.
    ended_at: Nanos,
}

impl GpuTurn {
    pub(super) const fn new() -> Self {
        Self {
            number: 0,
            began: 0,
            length: 0,
            window: Window::Nobody,
            last: None,
            free_at: 0,
            switches: 0,
            bursts: 0,
            ended_at: 0,
        }
    }

    /// The instance that has the window, or is to have it.
    pub(super) fn holder(&self) -> Option<InstanceId> {
        match self.window {
            Window::Nobody => None,
            Window::Due { holder, .. } | Window::Open(OpenWindow { holder, .. }) => Some(holder),
        }
    }

    /// The window that has begun, if one has.
    pub(super) fn open_window(&self) -> Option<OpenWindow> {
        match self.window {
            Window::Open(window) => Some(window),
            Window::Nobody | Window::Due { .. } => None,
        }
    }

    /// The same, to be changed.
    pub(super) fn open_window_mut(&mut self) -> Option<&mut OpenWindow> {
        match &mut self.window {
            Window::Open(window) => Some(window),
            Window::Nobody | Window::Due { .. } => None,
        }
    }

    /// Whether an instance is to have a window that has not begun.
    pub(super) fn is_due(&self) -> bool {
        matches!(self.window, Window::Due { .. })
    }

    /// The holder of the last window that began.
    pub(super) fn last(&self) -> Option<InstanceId> {
        self.last
    }

    /// From when on the GPU was free for the next holder.
    pub(super) fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// How often the GPU went from one instance to another.
    pub(super) fn switches(&self) -> u64 {
        self.switches
    }

    /// GPU time of bursts since the turn began.
    pub(super) fn burst_time(&self) -> Nanos {
        self.bursts
    }

    /// Counts a burst of this length.
    pub(super) fn add_burst(&mut self, length: Nanos) {
        self.bursts = self.bursts.saturating_add(length);
    }

    /// Begins the next turn.
    pub(super) fn begin(&mut self, at: Nanos) {
        self.began = at;
        self.bursts = 0;
    }

    /// The end of the turn.
    pub(super) fn end(&self) -> Nanos {
        self.began.saturating_add(self.length)
    }

    /// Makes an instance the next holder, or leaves the GPU without one until another turn begins.
    pub(super) fn give_window(&mut self, now: Nanos, holder: Option<InstanceId>) {
        self.window = holder.map_or(Window::Nobody, |holder| Window::Due {
            holder,
            given_at: now,
        });
        self.free_at = now;
    }

    /// Begins the window of the holder.
    pub(super) fn open(&mut self, holder: InstanceId, since: Nanos, until: Nanos, rearm_at: Nanos) {
        self.last = Some(holder);
        self.window = Window::Open(OpenWindow {
            holder,
            since,
            until,
            armed_at: since,
            rearm_at,
        });
        self.changes_hands();
    }

    /// When the last window was ended.
    pub(super) fn ended_at(&self) -> Nanos {
        self.ended_at
    }

    /// When the window was given to its holder, if it has not begun.
    pub(super) fn given_at(&self) -> Option<Nanos> {
        match self.window {
            Window::Due { given_at, .. } => Some(given_at),
            Window::Nobody | Window::Open(_) => None,
        }
    }

    /// Ends the window, and returns it if it had begun.
    pub(super) fn end_window(&mut self, now: Nanos) -> Option<OpenWindow> {
        let open = self.open_window();
        self.ended_at = now;
        self.window = Window::Nobody;
        open
    }

    /// Counts that the GPU goes from one instance to another.
    pub(super) fn changes_hands(&mut self) {
        self.switches = self.switches.saturating_add(1);
    }

    /// Ends the window of an instance that is gone.
    pub(super) fn forget(&mut self, id: InstanceId) {
        if self.holder() == Some(id) {
            self.window = Window::Nobody;
        }
    }

    /// Goes on with the turn after a time in another mode, unless it would be over by now.
    pub(super) fn resume(&mut self, now: Nanos) {
        if now >= self.end() {
            self.length = 0;
        }
    }

    /// Notes that a switch of channels took effect then.
    pub(super) fn took_effect(&mut self, at: Nanos) {
        self.free_at = self.free_at.max(at);
    }

    /// GPU time that an instance has had in its present window; 0 if it has none.
    pub(super) fn used_by(&self, id: InstanceId, now: Nanos) -> Nanos {
        match self.open_window() {
            Some(window) if window.holder == id => now.saturating_sub(window.since),
            _ => 0,
        }
    }
}
