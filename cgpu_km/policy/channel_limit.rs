// SPDX-License-Identifier: GPL-2.0
//! The ids of a GPU's channels: which of them a group or a channel takes, and how many of them an
//! instance may have.
//!
//! A runlist has 2,048 ids for groups and as many for channels, without a quota for anybody
//! (`CHID_MGR`, kernel_fifo.c). The driver keeps four of them. When they are taken, nobody starts a
//! program on that GPU. So an instance has a limit for each runlist: by default its part of
//! [`RUNLIST_IDS`] among as many instances as `max_instances` says. The other instances have room
//! for as long as the limits add up to no more than that.
//!
//! Ids are counted by what holds them ([`super::charge`]), because UVM keeps a channel's after its
//! end.

use crate::{
    nvidia::{
        architecture::{
            ADA,
            AMPERE,
            HOPPER, //
        },
        params, //
    },
    policy::{
        count::lower,
        event::RefusalCause, //
    },
    uapi::CHANNELS_MAX, //
};

/// Ids of a runlist that programs can have, of groups and of channels each: measured on an H200
/// with driver 580 (docs/measurements/2026-11-23-channels.md).
const RUNLIST_IDS: u32 = CHANNELS_MAX;

/// The limit of an instance that was given none, on a GPU for so many.
pub fn default_limit(max_instances: u32) -> u32 {
    (RUNLIST_IDS / max_instances.max(1)).max(1)
}

/// The kinds of engines, as far as it matters what a group for one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineKind {
    /// Compute or graphics.
    Compute,
    /// Copies alone.
    Copy,
    /// Video and the rest.
    Other,
}

/// How the engines of a GPU share its runlists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engines {
    /// Every channel can be for compute, whatever engine the program names.
    is_all_compute: bool,
    /// The first engine with ids of its own. `None`: all engines have the same.
    first_alone: Option<u32>,
}

impl Engines {
    /// Of a GPU of this architecture (0: it is not known) whose driver says whether each runlist
    /// has ids of its own (`NV2080_CTRL_FIFO_INFO_INDEX_IS_PER_RUNLIST_CHANNEL_RAM_SUPPORTED`).
    ///
    /// Before Ampere the driver puts a channel on the runlist of compute, whatever engine its
    /// program named (`kfifoIsPerRunlistChramSupportedInHw()`, kernel_channel_group_api.c and
    /// kernel_channel.c). The first copy engines are those of the runlist of compute: two at most
    /// up to Ada, four after it (`NV_CE_GRCE_ALLOWED_LCE_MASK`, kernel_ce_gh100.c,
    /// kernel_ce_gb202.c).
    pub fn of(architecture: u32, is_per_runlist: bool) -> Self {
        let shared = match architecture {
            AMPERE | HOPPER | ADA => 2,
            _ => 4,
        };
        let is_known = architecture >= AMPERE;
        Self {
            is_all_compute: !is_known,
            first_alone: (is_known && is_per_runlist).then_some(params::ENGINE_TYPE_COPY0 + shared),
        }
    }

    /// The work of an engine that a program names in the parameters of a group or a channel.
    pub(super) fn kind(&self, engine: u32) -> EngineKind {
        match engine {
            _ if self.is_all_compute || params::is_compute_engine(engine) => EngineKind::Compute,
            _ if params::is_copy_engine(engine) => EngineKind::Copy,
            _ => EngineKind::Other,
        }
    }

    /// The runlist of an engine.
    fn list(&self, engine: u32) -> u8 {
        let own = self.first_alone.and_then(|first| engine.checked_sub(first));
        let list = own.map_or(0, |own| own.saturating_add(1));
        u8::try_from(list).unwrap_or(u8::MAX).min(LAST_LIST)
    }
}

/// The highest number of a runlist: an engine has a number below 84 (`NV2080_ENGINE_TYPE_LAST`,
/// cl2080_notification.h), and the first 11 share one.
const LAST_LIST: u8 = 83;
const LISTS: usize = 84;

/// A group, a channel, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelUnit {
    /// A group.
    Group,
    /// A channel in a group.
    Channel,
    /// A channel with the group that the driver makes for one that is in none.
    Alone,
}

impl ChannelUnit {
    fn has_group(self) -> bool {
        matches!(self, Self::Group | Self::Alone)
    }

    fn has_channel(self) -> bool {
        matches!(self, Self::Channel | Self::Alone)
    }
}

/// The ids that an object takes, in a byte, and whether it makes a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenIds(u8);

impl TakenIds {
    /// None.
    pub(super) const NONE: Self = Self(u8::MAX);
    /// Of a group that makes a context, which is on the first runlist.
    const CONTEXT_GROUP: Self = Self(u8::MAX - 1);
    /// Of a channel that is in no group and makes a context.
    const CONTEXT_ALONE: Self = Self(u8::MAX - 2);

    /// Of a group, or of a channel that is in none, for that engine.
    pub(super) fn of(engines: &Engines, unit: ChannelUnit, engine: u32) -> Self {
        match (engines.kind(engine), unit) {
            (EngineKind::Compute, ChannelUnit::Group) => Self::CONTEXT_GROUP,
            (EngineKind::Compute, ChannelUnit::Alone) => Self::CONTEXT_ALONE,
            _ => Self::on(unit, engines.list(engine)),
        }
    }

    /// A context is made as well.
    pub(super) fn makes_context(self) -> bool {
        [Self::CONTEXT_GROUP, Self::CONTEXT_ALONE].contains(&self)
    }

    /// Of a channel in a group that took these.
    pub(super) fn in_group(self) -> Self {
        self.parts()
            .map_or(Self::NONE, |(_, list)| Self::on(ChannelUnit::Channel, list))
    }

    fn on(unit: ChannelUnit, list: u8) -> Self {
        let unit = match unit {
            ChannelUnit::Group => 0,
            ChannelUnit::Channel => 1,
            ChannelUnit::Alone => 2,
        };
        Self(list.min(LAST_LIST) * 3 + unit)
    }

    /// Their unit and their runlist; `None`: there are none.
    fn parts(self) -> Option<(ChannelUnit, u8)> {
        let list = self.0 / 3;
        Some(match (self, self.0 % 3) {
            (Self::NONE, _) => return None,
            (Self::CONTEXT_GROUP, _) => (ChannelUnit::Group, 0),
            (Self::CONTEXT_ALONE, _) => (ChannelUnit::Alone, 0),
            (_, 0) => (ChannelUnit::Group, list),
            (_, 1) => (ChannelUnit::Channel, list),
            _ => (ChannelUnit::Alone, list),
        })
    }
}

/// Ids that are taken of one runlist.
#[derive(Clone, Copy, Debug, Default)]
struct ListCount {
    groups: u16,
    channels: u16,
}

/// The ids that an instance has taken, of all runlists of a GPU, and its limit.
#[derive(Debug)]
pub(super) struct ChannelIds {
    limit: u32,
    lists: [ListCount; LISTS],
    /// Groups and channels that were refused.
    refused: u64,
}

impl ChannelIds {
    pub(super) fn new() -> Self {
        Self {
            limit: RUNLIST_IDS,
            lists: [ListCount::default(); LISTS],
            refused: 0,
        }
    }

    /// The most groups and channels of a runlist.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Below what is taken, nothing more is granted until enough is given back.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Groups or channels, whichever are more, of the runlist where they are the most.
    pub(super) fn most(&self) -> u32 {
        let each = self.lists.iter().map(|list| list.groups.max(list.channels));
        each.max().map_or(0, u32::from)
    }

    /// How many were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes ids, as far as the limit allows.
    pub(super) fn take(&mut self, ids: TakenIds) -> Result<(), RefusalCause> {
        let Some((unit, list)) = ids.parts() else {
            return Ok(());
        };
        let Some(list) = self.lists.get_mut(usize::from(list)) else {
            return Ok(());
        };
        let limit = u16::try_from(self.limit).unwrap_or(u16::MAX);
        let lack = if unit.has_group() && list.groups >= limit {
            Some(RefusalCause::NoGroups)
        } else if unit.has_channel() && list.channels >= limit {
            Some(RefusalCause::NoChannels)
        } else {
            None
        };
        if let Some(lack) = lack {
            self.refused = self.refused.saturating_add(1);
            return Err(lack);
        }
        list.groups += u16::from(unit.has_group());
        list.channels += u16::from(unit.has_channel());
        Ok(())
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, ids: TakenIds) {
        let Some((unit, list)) = ids.parts() else {
            return;
        };
        if let Some(list) = self.lists.get_mut(usize::from(list)) {
            lower(&mut list.groups, u16::from(unit.has_group()));
            lower(&mut list.channels, u16::from(unit.has_channel()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY2: u32 = 11;
    const COPY4: u32 = 13;
    const NVDEC0: u32 = 19;

    #[test]
    fn ids_reach_the_limit_of_each_runlist() {
        let engines = Engines::of(HOPPER, true);
        let mut ids = ChannelIds::new();
        ids.set_limit(2);
        let group = |engine| TakenIds::of(&engines, ChannelUnit::Group, engine);
        assert_eq!(
            [(); 3].map(|()| ids.take(group(1)).is_ok()),
            [true, true, false]
        );
        // The copy engines of the runlist of compute are on it, the others are not.
        assert_eq!(ids.take(group(10)), Err(RefusalCause::NoGroups));
        assert_eq!(ids.take(group(COPY2)), Ok(()));
        // Channels have ids of their own.
        let channel = group(1).in_group();
        assert_eq!(
            [(); 3].map(|()| ids.take(channel).is_ok()),
            [true, true, false]
        );
        assert_eq!((ids.most(), ids.refused()), (2, 3));
        ids.give(channel);
        ids.give(group(1));
        let alone = TakenIds::of(&engines, ChannelUnit::Alone, 1);
        assert_eq!(ids.take(alone), Ok(()));
        assert_eq!(ids.take(alone), Err(RefusalCause::NoGroups));
        ids.give(group(1));
        assert_eq!(ids.take(alone), Err(RefusalCause::NoChannels));
    }

    #[test]
    fn without_runlists_of_their_own_all_engines_share() {
        for engines in [Engines::of(HOPPER, false), Engines::of(0x160, true)] {
            let lists = [0, 1, 9, COPY2, NVDEC0, u32::MAX].map(|engine| engines.list(engine));
            assert_eq!(lists, [0; 6]);
        }
    }

    #[test]
    fn runlists_are_those_of_the_architecture() {
        let lists = |architecture| {
            let engines = Engines::of(architecture, true);
            [1, 10, COPY2, COPY4, NVDEC0].map(|engine| engines.list(engine))
        };
        assert_eq!(lists(HOPPER), [0, 0, 1, 3, 9]);
        // Blackwell, and what comes after it, has up to four copy engines beside compute.
        assert_eq!(lists(0x1a0), [0, 0, 0, 1, 7]);
        assert_eq!(Engines::of(HOPPER, true).list(u32::MAX), LAST_LIST);
    }

    #[test]
    fn before_ampere_everything_is_compute() {
        for architecture in [0, 0x140, 0x160] {
            let kind = Engines::of(architecture, false).kind(COPY2);
            assert_eq!(kind, EngineKind::Compute, "{architecture:#x}");
        }
        let engines = Engines::of(AMPERE, false);
        let kinds = [0, 1, 8, 9, COPY2, NVDEC0].map(|engine| engines.kind(engine));
        use EngineKind::*;
        assert_eq!(kinds, [Compute, Compute, Compute, Copy, Copy, Other]);
    }

    #[test]
    fn the_default_divides_a_runlist() {
        assert_eq!([1, 16, 64, 0].map(default_limit), [2044, 127, 31, 2044]);
    }

    #[test]
    fn every_id_is_told_by_its_byte() {
        for list in 0..=LAST_LIST {
            for unit in [ChannelUnit::Group, ChannelUnit::Channel, ChannelUnit::Alone] {
                assert_eq!(TakenIds::on(unit, list).parts(), Some((unit, list)));
            }
        }
        assert_eq!(TakenIds::NONE.parts(), None);
        let engines = Engines::of(HOPPER, true);
        let compute = |unit| TakenIds::of(&engines, unit, 1);
        assert_eq!(
            compute(ChannelUnit::Group).parts(),
            Some((ChannelUnit::Group, 0))
        );
        assert_eq!(
            compute(ChannelUnit::Alone).parts(),
            Some((ChannelUnit::Alone, 0))
        );
        assert!(compute(ChannelUnit::Group).makes_context());
        assert!(!compute(ChannelUnit::Group).in_group().makes_context());
        let copies = TakenIds::of(&engines, ChannelUnit::Alone, COPY2);
        assert!(!copies.makes_context());
    }
}
