// SPDX-License-Identifier: GPL-2.0
//! The instances that want the GPU's highest clock, and the driver's calls that follow from that.
//!
//! CUDA asks for it when it makes a context (`NV2080_CTRL_CMD_PERF_BOOST`), and a GPU that nobody
//! has asked lowers its clock in every pause. A container's call does not reach the driver. The
//! module asks once for all programs that want the clock, and takes it back when the last of them
//! is gone.
//!
//! # What the driver does
//!
//! The control is of a subdevice and wants no privilege (flags `NON_PRIVILEGED` in 535 to 595,
//! g_subdevice_nvoc.c). `subdeviceCtrlCmdKPerfBoost_IMPL()` (kern_perf_boost.c) hands flags and
//! duration to the firmware as they are (`PERF_BOOST_SET_2X`), under the handles of the caller's
//! own client and subdevice. The firmware keeps the boosts of clients apart (ctrl2080perf.h), in
//! its own copy of the subdevice (`perfBoostEntryExists` and its neighbours, which nothing in the
//! open part reads). That copy is freed with the subdevice (`subdeviceDestruct_IMPL()`,
//! subdevice.c). So a boost of the module's own client ends when the module gives the client back.

use super::sched::InstanceId;
use crate::{
    store::{
        Exhausted,
        List, //
    },
    uapi::MAX_INSTANCES_PER_GPU, //
};

/// How long a boost is wanted. A greater value is wanted for longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boost(u32);

impl Boost {
    /// Not at all.
    pub const OFF: Self = Self(0);
    /// Until it is cleared, or its subdevice freed.
    pub const ENDLESS: Self = Self(u32::MAX);

    /// Until this second of the system's clock ([`crate::proxy::Call::uptime_s`]).
    pub fn until(second: u64) -> Self {
        let most = u64::from(u32::MAX - 1);
        Self(u32::try_from(second.clamp(1, most)).unwrap_or(u32::MAX - 1))
    }

    /// As a number, for places that hold only numbers: the second, 0 for none, the largest for an
    /// endless one.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The boost of which this is [`Boost::number`].
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The part that is left of it: a boost has ended when its time has come.
    fn at(self, second: u64) -> Self {
        match self {
            Self::ENDLESS => self,
            timed if u64::from(timed.0) > second => timed,
            _ => Self::OFF,
        }
    }
}

/// The boosts of a tenant's subdevices on one GPU, taken together.
#[derive(Debug, Default)]
pub(super) struct Boosters {
    endless: u64,
    timed: u64,
    /// The latest end of the timed ones since there was none. When the one that ends last is given
    /// up early, the others keep its time.
    latest: Boost,
}

impl Boosters {
    /// A subdevice gets this boost.
    fn enter(&mut self, boost: Boost) {
        match boost {
            Boost::OFF => {}
            Boost::ENDLESS => self.endless = self.endless.saturating_add(1),
            timed => {
                self.timed = self.timed.saturating_add(1);
                self.latest = self.latest.max(timed);
            }
        }
    }

    /// A subdevice gives this boost up.
    fn leave(&mut self, boost: Boost) {
        match boost {
            Boost::OFF => {}
            Boost::ENDLESS => self.endless = self.endless.saturating_sub(1),
            _ => {
                self.timed = self.timed.saturating_sub(1);
                if self.timed == 0 {
                    self.latest = Boost::OFF;
                }
            }
        }
    }

    /// Replaces a subdevice's boost. Returns whether [`Self::wish`] has changed by that.
    pub(super) fn replace(&mut self, from: Boost, to: Boost) -> bool {
        let before = self.wish();
        self.leave(from);
        self.enter(to);
        self.wish() != before
    }

    /// The boost that they want together.
    pub(super) fn wish(&self) -> Boost {
        match self.endless {
            0 => self.latest,
            _ => Boost::ENDLESS,
        }
    }
}

/// A call of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoostCall {
    /// Take the boost back.
    Clear,
    /// Boost until it is taken back.
    Endless,
    /// Boost for so many seconds.
    For(u32),
}

/// How long a boost stays at least, in nanoseconds: so many programs as come and go in it cost one
/// call.
pub const BOOST_STAYS: u64 = 1_000_000_000;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The boost of one GPU: what its instances want, and what the driver was asked for. At first there
/// are no instances, and the driver cannot be asked yet.
#[derive(Debug, Default)]
pub struct Boosts {
    wishes: List<(InstanceId, Boost)>,
    /// The boost that the driver was asked for; `None`: it cannot be asked.
    asked: Option<Boost>,
    /// When that was, in nanoseconds.
    since: u64,
}

impl Boosts {
    /// Makes room for all instances that a GPU can have, before there is any. None is then added
    /// with a wait for memory under the lock of this.
    pub fn make_room(&mut self) -> Result<(), Exhausted> {
        self.wishes = List::with_room(MAX_INSTANCES_PER_GPU)?;
        Ok(())
    }

    /// A new instance, which wants nothing yet.
    pub fn add(&mut self, instance: InstanceId) -> Result<(), Exhausted> {
        self.wishes.push((instance, Boost::OFF))
    }

    /// An instance is gone, and with it what it wanted.
    pub fn remove(&mut self, instance: InstanceId) {
        let place = self.wishes.iter().position(|(id, _)| *id == instance);
        if let Some(place) = place {
            self.wishes.swap_remove(place);
        }
    }

    /// An instance wants this now.
    pub fn want(&mut self, instance: InstanceId, boost: Boost) {
        let mut wishes = self.wishes.iter_mut();
        if let Some((_, wish)) = wishes.find(|(id, _)| *id == instance) {
            *wish = boost;
        }
    }

    /// The driver can be asked from now on, and was not yet.
    pub fn attach(&mut self) {
        self.asked = Some(Boost::OFF);
    }

    /// The driver cannot be asked any more, and has forgotten what it was asked for.
    pub fn detach(&mut self) {
        self.asked = None;
    }

    /// Whether the driver was asked for a boost that is not over.
    pub fn is_on(&self, now: u64) -> bool {
        self.standing(now).is_some_and(|asked| asked != Boost::OFF)
    }

    /// The call to make into the driver now, in nanoseconds of the system's clock; `None`:
    /// nothing. It counts as asked whatever the driver answers: a GPU that has no such thing is not
    /// asked again before somebody wants something else.
    pub fn next(&mut self, now: u64) -> Option<BoostCall> {
        let (asked, wish) = (self.standing(now)?, self.wish(now));
        let (asked, call) = match wish {
            wish if wish == asked => return None,
            Boost::ENDLESS => (wish, BoostCall::Endless),
            // A program may want a little more each time. A call can take the GPU's thread many
            // milliseconds, so such calls are seldom, too.
            _ if asked != Boost::OFF && now < self.since.saturating_add(BOOST_STAYS) => {
                return None;
            }
            wish if wish > asked => {
                let left = u64::from(wish.0).saturating_sub(now / SECOND);
                (wish, BoostCall::For(u32::try_from(left).unwrap_or(1)))
            }
            // In the driver a short boost does not end a longer one. So the longer one is cleared
            // first, and the next call asks for the short one.
            _ => (Boost::OFF, BoostCall::Clear),
        };
        self.asked = Some(asked);
        self.since = now;
        Some(call)
    }

    /// When to look again though nothing happens, in nanoseconds.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        let asked = self.standing(now)?;
        (asked != self.wish(now)).then(|| self.since.saturating_add(BOOST_STAYS))
    }

    fn standing(&self, now: u64) -> Option<Boost> {
        Some(self.asked?.at(now / SECOND))
    }

    fn wish(&self, now: u64) -> Boost {
        let wishes = self.wishes.iter().map(|(_, wish)| wish.at(now / SECOND));
        wishes.max().unwrap_or(Boost::OFF)
    }
}
