// SPDX-License-Identifier: GPL-2.0
//! The neighbours' rest: an attack on the driver's own nodes may harm everybody, so the programs of
//! other instances have nothing on the GPU meanwhile.

use std::sync::{
    atomic::{AtomicU32, Ordering},
    OnceLock,
};

use crate::sys;

/// The beginning of the names of neighbours. The attacks leave instances alone that are called so.
pub(super) const NAMED: &str = "beside-";
/// So long the slowest may need to end its round, milliseconds.
const PATIENCE_MS: u64 = 60_000;

/// Shared by the processes of all neighbours and of the attacks; zeros at first.
pub(super) struct Crew {
    /// Not 0: they are to rest.
    asked: AtomicU32,
    resting: AtomicU32,
    /// Those that ended, since they were harmed.
    pub(super) harmed: AtomicU32,
    pub(super) rounds: AtomicU32,
}

/// All neighbours, and their number.
static CREW: OnceLock<(&'static Crew, u32)> = OnceLock::new();

/// For so many neighbours. There is one of it.
pub(super) fn crew(count: u32) -> Result<&'static Crew, String> {
    let crew = sys::shared()?;
    CREW.set((crew, count))
        .map_err(|_| "there are neighbours already")?;
    Ok(crew)
}

impl Crew {
    /// A neighbour's pause between two rounds: it has nothing on the GPU, so it rests. The pause is
    /// longer if it is asked to rest.
    pub(super) fn pause(&self, milliseconds: u64) {
        self.resting.fetch_add(1, Ordering::SeqCst);
        sys::sleep_ms(milliseconds);
        loop {
            while self.asked.load(Ordering::SeqCst) != 0 {
                sys::sleep_ms(1);
            }
            self.resting.fetch_sub(1, Ordering::SeqCst);
            // A thread that asks after this sees that this one does not rest.
            if self.asked.load(Ordering::SeqCst) == 0 {
                return;
            }
            self.resting.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether so many rest, or are no more.
    fn is_quiet(&self, count: u32) -> bool {
        self.resting.load(Ordering::SeqCst) + self.harmed.load(Ordering::SeqCst) >= count
    }
}

/// Runs what may harm everybody, while the neighbours rest.
pub(super) fn alone<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let Some((crew, count)) = CREW.get() else {
        return run();
    };
    crew.asked.store(1, Ordering::SeqCst);
    for _ in 0..PATIENCE_MS {
        if crew.is_quiet(*count) {
            break;
        }
        sys::sleep_ms(1);
    }
    let result = if crew.is_quiet(*count) {
        run()
    } else {
        Err("the neighbours do not rest".to_owned())
    };
    crew.asked.store(0, Ordering::SeqCst);
    result
}
