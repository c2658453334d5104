// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Faults that nobody waits for, such as a panic in a task of the driver: they are noted, and the
//! case in which they come fails.

use std::{
    future::Future,
    panic,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex, PoisonError,
    },
};

static NOTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

tokio::task_local! {
    /// The driver whose answers the running task needs, and how often it had been started and
    /// halted when the task began.
    static NEEDED: (Arc<Life>, u64);
}

/// Counts how often a driver was started and halted: odd while it runs.
#[derive(Default)]
pub(crate) struct Life(AtomicU64);

impl Life {
    /// It runs from now on, or is being halted.
    pub(crate) fn turn(&self, runs: bool) {
        let next = |turns: u64| (turns % 2 != u64::from(runs)).then_some(turns + 1);
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Notes a fault.
pub(crate) fn note(fault: String) {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.push(fault);
}

/// All that were noted since this was asked last.
pub(crate) fn take() -> Vec<String> {
    std::mem::take(&mut *NOTED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Notes each panic from now on.
pub(crate) fn note_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let halted = |(life, began): &(Arc<Life>, u64)| began % 2 == 0 || life.now() != *began;
        if NEEDED.try_with(halted).unwrap_or(false) {
            return;
        }
        note(format!("a panic: {panic}").replace('\n', " "));
        before(panic);
    }));
}

/// Has panics of this be noted, unless the driver was halted meanwhile or is being started.
pub(crate) async fn unless_halted<F: Future>(life: &Arc<Life>, task: F) -> F::Output {
    NEEDED.scope((life.clone(), life.now()), task).await
}
