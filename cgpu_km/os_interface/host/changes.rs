// SPDX-License-Identifier: GPL-2.0
//! Something that happens again and again, and that files can be polled for.

use kernel::{
    bindings,
    fs::File,
    new_poll_condvar,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        poll::{
            PollCondVar,
            PollTable, //
        },
        Arc, //
    }, //
};

/// Changes of one kind, which files can be polled for.
#[pin_data]
pub struct Changes {
    /// How often it has happened.
    count: Atomic<u64>,
    #[pin]
    waiters: PollCondVar,
}

impl Changes {
    /// Nothing has happened.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                count: Atomic::new(0),
                waiters <- new_poll_condvar!(),
            }),
            GFP_KERNEL,
        )
    }

    /// It has happened: wakes the tasks that poll for it. Takes the lock of the waiters alone.
    pub fn note(&self) {
        self.count.fetch_add(1, Relaxed);
        // Takes the waiters' lock, behind which the new count is seen by a task that comes to wait.
        self.waiters.notify_all();
    }

    /// How often it has happened.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Has a `poll` of `file` woken by what happens from now on.
    ///
    /// # Safety
    ///
    /// The arguments are those of a `poll` file operation that is running.
    pub(super) unsafe fn wait(&self, file: *mut bindings::file, table: *mut bindings::poll_table) {
        // SAFETY: The table is that of this `poll`, which is running.
        let table = unsafe { PollTable::from_raw(table) };
        // SAFETY: A file is open while it is polled; its position is used by nobody.
        let file = unsafe { File::from_raw_file(file) };
        table.register_wait(file, &self.waiters);
    }
}
