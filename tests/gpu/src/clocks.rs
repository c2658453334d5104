// SPDX-License-Identifier: GPL-2.0
//! The highest clock of a GPU, which the tool asks the driver for as long as a program of its
//! instances wants it: the module's own decision ([`cgpu_km::policy::Boosts`]), carried out by a
//! client of the tool's.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use cgpu_km::policy::{sched::InstanceId, Boost, Boosts};

use crate::{driver::Booster, sys};

/// The part that asks for the clocks of one GPU.
pub struct Clocks {
    boosts: Boosts,
    driver: Booster,
    /// The wish in the accounting of each instance, and the one at the last look.
    wanted: Vec<(&'static AtomicU32, u32)>,
    calls: u32,
    refused: u32,
    longest: Duration,
}

impl Clocks {
    /// Over these instances, of whose accounting these words tell.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn new(driver: Booster, wanted: Vec<&'static AtomicU32>) -> Result<Self, String> {
        let mut boosts = Boosts::default();
        for place in 0..wanted.len() {
            let added = boosts.add(instance(place));
            added.map_err(|_| "no memory for a boost")?;
        }
        boosts.attach();
        Ok(Self {
            boosts,
            driver,
            wanted: wanted.into_iter().map(|word| (word, 0)).collect(),
            calls: 0,
            refused: 0,
            longest: Duration::ZERO,
        })
    }

    /// Looks once at what is wanted, and asks the driver.
    pub fn look(&mut self) {
        for (place, (word, before)) in self.wanted.iter_mut().enumerate() {
            let now = word.load(Ordering::Acquire);
            if now != *before {
                *before = now;
                self.boosts.want(instance(place), Boost::from_number(now));
            }
        }
        // CAST: centuries of nanoseconds fit.
        let now = (sys::uptime_s() * 1e9) as u64;
        while let Some(call) = self.boosts.next(now) {
            self.calls += 1;
            match self.driver.boost(call) {
                Ok(took) => self.longest = self.longest.max(took),
                Err(_) => self.refused += 1,
            }
        }
    }

    /// The calls that were made, as JSON.
    pub fn account(&self) -> serde_json::Value {
        serde_json::json!({
            "calls": self.calls,
            "refused": self.refused,
            "longest_us": u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX),
        })
    }
}

fn instance(place: usize) -> InstanceId {
    // CAST: few.
    InstanceId(place as u32)
}
