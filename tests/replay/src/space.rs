// SPDX-License-Identifier: GPL-2.0
//! The knowledge of a replayed process: real handles, descriptors, addresses for recorded ones, and
//! what does not exist because a call that would have made it was refused or passed over.
//!
//! Descriptors and addresses of mappings are not translated: they are made to be the recorded ones
//! (`dup3`, `MAP_FIXED_NOREPLACE`), so that they are right wherever a program may have put them.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    bytes::{put_u32, put_u64, u32_at, u64_at},
    layout::{Field, Kind},
};

/// An object as the recording names it: client and handle.
pub type Name = (u32, u32);

/// A mapping that the program made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Length in bytes.
    pub len: u64,
    /// Its real place; `None` if the call was passed over.
    pub real: Option<u64>,
    /// Whether it is managed memory (a UVM file's).
    pub managed: bool,
}

/// The state of one replayed process.
#[derive(Debug, Default)]
pub struct ReplaySpace {
    clients: HashMap<u32, u32>,
    foreign: HashMap<u32, u32>,
    foreign_dead: HashSet<Name>,
    changes: Vec<(Name, bool)>,
    objects: HashMap<Name, u32>,
    dead: HashSet<Name>,
    dead_clients: HashSet<u32>,
    open: HashSet<i32>,
    dead_fds: HashSet<i32>,
    dead_contexts: HashSet<i32>,
    linear: HashMap<u64, u64>,
    groups: HashMap<u64, u64>,
    pids: HashMap<u32, u32>,
    uuids: Vec<([u8; 16], [u8; 16])>,
    maps: BTreeMap<u64, Mapping>,
    dead_ranges: HashSet<u64>,
    channels: Vec<Name>,
}

impl ReplaySpace {
    /// A client that another replayed process made: recorded handle and real one.
    pub fn add_foreign(&mut self, recorded: u32, real: u32) {
        self.foreign.insert(recorded, real);
    }

    /// Whether an object of another replayed process does not exist.
    pub fn set_foreign(&mut self, name: Name, missing: bool) {
        if missing {
            self.foreign_dead.insert(name);
        } else {
            self.foreign_dead.remove(&name);
        }
    }

    /// Objects that were lost (true), or made after they had been lost, since this was asked last.
    pub fn take_changes(&mut self) -> Vec<(Name, bool)> {
        std::mem::take(&mut self.changes)
    }

    /// The real handle of a client.
    pub fn client(&self, recorded: u32) -> u32 {
        let own = self.clients.get(&recorded);
        *own.or_else(|| self.foreign.get(&recorded))
            .unwrap_or(&recorded)
    }

    /// The real handle of an object.
    pub fn object(&self, name: Name) -> u32 {
        if name.0 == name.1 {
            return self.client(name.0);
        }
        *self.objects.get(&name).unwrap_or(&name.1)
    }

    /// A client came into being.
    pub fn add_client(&mut self, recorded: u32, real: u32) {
        self.clients.insert(recorded, real);
        self.dead_clients.remove(&recorded);
    }

    /// An object came into being.
    pub fn add_object(&mut self, name: Name, real: u32) {
        self.objects.insert(name, real);
        if self.dead.remove(&name) {
            self.changes.push((name, false));
        }
    }

    /// An object that the recording made does not exist here.
    pub fn lose(&mut self, name: Name) {
        if name.0 == name.1 {
            self.dead_clients.insert(name.0);
        }
        self.objects.remove(&name);
        self.dead.insert(name);
        self.changes.push((name, true));
    }

    /// An object was freed; one that is the client takes everything of it along.
    pub fn free(&mut self, name: Name) {
        if name.0 == name.1 {
            self.clients.remove(&name.0);
            self.objects.retain(|n, _| n.0 != name.0);
            self.dead.retain(|n| n.0 != name.0);
            self.dead_clients.remove(&name.0);
            self.channels.retain(|n| n.0 != name.0);
        }
        self.objects.remove(&name);
        self.dead.remove(&name);
        self.channels.retain(|n| *n != name);
    }

    /// Whether an object is one that does not exist here.
    pub fn is_dead(&self, name: Name) -> bool {
        if self.dead_clients.contains(&name.0) || self.dead.contains(&name) {
            return true;
        }
        !self.clients.contains_key(&name.0) && self.foreign_dead.contains(&name)
    }

    /// Whether any word of the bytes is the handle of an object that does not exist here. Small
    /// numbers are no handles that a driver or a program chooses.
    pub fn mentions_dead(&self, client: u32, bytes: &[u8]) -> bool {
        words(bytes).any(|(_, word)| word > 0xFFFF && self.is_dead((client, word)))
    }

    /// A channel was made.
    pub fn add_channel(&mut self, name: Name) {
        self.channels.push(name);
    }

    /// The channels of a client that were made last, newest first, as real handles.
    pub fn last_channels(&self, client: u32, count: usize) -> Vec<u32> {
        let own = self.channels.iter().rev().filter(|n| n.0 == client);
        own.take(count).map(|n| self.object(*n)).collect()
    }

    /// A descriptor was opened under its recorded number.
    pub fn open(&mut self, fd: i32) {
        self.open.insert(fd);
        self.dead_fds.remove(&fd);
        self.dead_contexts.remove(&fd);
    }

    /// A descriptor of the recording could not be opened here.
    pub fn lose_fd(&mut self, fd: i32) {
        self.open.remove(&fd);
        self.dead_fds.insert(fd);
    }

    /// A descriptor is closed; whether it was open here.
    pub fn close(&mut self, fd: i32) -> bool {
        self.dead_fds.remove(&fd);
        self.dead_contexts.remove(&fd);
        self.open.remove(&fd)
    }

    /// Whether the recording has this descriptor open and we have not.
    pub fn is_dead_fd(&self, fd: i32) -> bool {
        self.dead_fds.contains(&fd)
    }

    /// Whether the descriptor is open here.
    pub fn is_open(&self, fd: i32) -> bool {
        self.open.contains(&fd)
    }

    /// The call that would have prepared the file for `mmap` was passed over.
    pub fn lose_context(&mut self, fd: i32) {
        self.dead_contexts.insert(fd);
    }

    /// Whether `mmap` of that file cannot work here.
    pub fn is_dead_context(&self, fd: i32) -> bool {
        self.dead_contexts.contains(&fd) || self.is_dead_fd(fd)
    }

    /// The file is prepared for `mmap`.
    pub fn add_context(&mut self, fd: i32) {
        self.dead_contexts.remove(&fd);
    }

    /// An address that the driver made up.
    pub fn add_linear(&mut self, recorded: u64, real: u64) {
        self.linear.insert(recorded, real);
    }

    /// A GPU's UUID.
    pub fn add_uuid(&mut self, recorded: [u8; 16], real: [u8; 16]) {
        if recorded != [0; 16] && !self.uuids.iter().any(|u| u.0 == recorded) {
            self.uuids.push((recorded, real));
        }
    }

    /// A process of the recordings: recorded id and real one.
    pub fn add_pid(&mut self, recorded: u32, real: u32) {
        self.pids.insert(recorded, real);
    }

    /// Replaces process ids at these offsets, a first one and the distance to the next.
    pub fn translate_pids(&self, at: Option<(usize, usize)>, bytes: &mut [u8]) {
        let Some((first, step)) = at else { return };
        for at in (first..bytes.len().saturating_sub(3)).step_by(step) {
            if let Some(real) = self.pids.get(&u32_at(bytes, at)) {
                put_u32(bytes, at, *real);
            }
        }
    }

    /// A range group.
    pub fn add_group(&mut self, recorded: u64, real: u64) {
        self.groups.insert(recorded, real);
    }

    /// Nothing is mapped in a UVM range of the recording.
    pub fn lose_range(&mut self, base: u64) {
        self.dead_ranges.insert(base);
    }

    /// Something is mapped in a UVM range, or it is gone.
    pub fn restore_range(&mut self, base: u64) {
        self.dead_ranges.remove(&base);
    }

    /// Whether [`ReplaySpace::lose_range`] was said of a range.
    pub fn is_dead_range(&self, base: u64) -> bool {
        self.dead_ranges.contains(&base)
    }

    /// A mapping was made (or passed over) at a recorded address.
    pub fn add_map(&mut self, recorded: u64, map: Mapping) {
        self.maps.insert(recorded, map);
    }

    /// Cuts `[start, start + len)` out of the mappings. Returns what was cut: recorded address and
    /// piece.
    pub fn cut_maps(&mut self, start: u64, len: u64) -> Vec<(u64, Mapping)> {
        let end = start.saturating_add(len);
        let hit: Vec<_> = self
            .maps
            .range(..end)
            .filter(|(&at, m)| at + m.len > start)
            .map(|(&at, &m)| (at, m))
            .collect();
        let mut cut = Vec::new();
        for (at, map) in hit {
            self.maps.remove(&at);
            let piece = |from: u64, to: u64| Mapping {
                len: to - from,
                real: map.real.map(|real| real + (from - at)),
                managed: map.managed,
            };
            let (from, to) = (at.max(start), (at + map.len).min(end));
            if at < from {
                self.maps.insert(at, piece(at, from));
            }
            if to < at + map.len {
                self.maps.insert(to, piece(to, at + map.len));
            }
            cut.push((from, piece(from, to)));
        }
        cut
    }

    /// Bytes of managed memory that are mapped.
    pub fn managed(&self) -> u64 {
        let managed = self.maps.values().filter(|m| m.managed);
        managed.map(|m| m.len).sum()
    }

    /// Whether every byte of a range lies in mappings.
    pub fn is_mapped(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        let mut reached = start;
        for (&at, map) in self.maps.range(..end) {
            if at <= reached && at + map.len > reached {
                reached = at + map.len;
            }
        }
        reached >= end
    }

    /// The real address of a recorded one.
    pub fn address(&self, recorded: u64) -> u64 {
        let below = self.maps.range(..=recorded).next_back();
        match below {
            Some((at, map)) if recorded < at + map.len => {
                map.real.map_or(recorded, |real| real + (recorded - at))
            }
            _ => recorded,
        }
    }

    /// Whether a recorded address lies in a mapping that was passed over.
    pub fn is_dead_address(&self, recorded: u64) -> bool {
        let below = self.maps.range(..=recorded).next_back();
        below.is_some_and(|(at, map)| recorded < at + map.len && map.real.is_none())
    }

    /// Replaces client handles, handles that the driver chose and UUIDs wherever they are in
    /// parameters whose fields are not known one by one.
    pub fn translate(&self, client: u32, bytes: &mut [u8]) {
        for at in (0..bytes.len().saturating_sub(3)).step_by(4) {
            let word = u32_at(bytes, at);
            if word <= 0xFFFF {
                continue;
            }
            let real = if self.clients.contains_key(&word) || self.foreign.contains_key(&word) {
                self.client(word)
            } else {
                self.object((client, word))
            };
            put_u32(bytes, at, real);
        }
        for at in (0..bytes.len().saturating_sub(15)).step_by(4) {
            let Some(found) = bytes.get(at..at + 16) else {
                break;
            };
            if let Some((_, real)) = self.uuids.iter().find(|u| u.0 == found) {
                bytes[at..at + 16].copy_from_slice(real);
            }
        }
    }

    /// Replaces what is in one known field.
    pub fn translate_field(&self, recorded: &[u8], bytes: &mut [u8], field: Field) {
        let at = field.at;
        match field.kind {
            Kind::Client => put_u32(bytes, at, self.client(u32_at(recorded, at))),
            Kind::Object | Kind::ObjectOf(_) => {
                let name = object_name(recorded, field);
                put_u32(bytes, at, self.object(name));
            }
            Kind::Linear => {
                let value = u64_at(recorded, at);
                put_u64(bytes, at, *self.linear.get(&value).unwrap_or(&value));
            }
            Kind::Mapped | Kind::HostMemory(_) => {
                put_u64(bytes, at, self.address(u64_at(recorded, at)));
            }
            Kind::Group => {
                let value = u64_at(recorded, at);
                put_u64(bytes, at, *self.groups.get(&value).unwrap_or(&value));
            }
            Kind::Fd | Kind::List(_) => {}
        }
    }
}

/// The object that a field names.
pub fn object_name(bytes: &[u8], field: Field) -> Name {
    let client_at = match field.kind {
        Kind::ObjectOf(at) => at,
        _ => 0,
    };
    (u32_at(bytes, client_at), u32_at(bytes, field.at))
}

/// The aligned 32-bit words of a slice, with their offsets.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = (usize, u32)> + '_ {
    (0..bytes.len() / 4).map(|i| (4 * i, u32_at(bytes, 4 * i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_translated_by_client() {
        let mut s = ReplaySpace::default();
        s.add_client(0xC1D0_0018, 0xC1D0_0001);
        s.add_object((0xC1D0_0018, 0xCAF0_0001), 0xCAF0_0007);
        let mut bytes = [0; 12];
        put_u32(&mut bytes, 0, 0xC1D0_0018);
        put_u32(&mut bytes, 4, 0xCAF0_0001);
        put_u32(&mut bytes, 8, 0x18);
        s.translate(0xC1D0_0018, &mut bytes);
        let seen: Vec<_> = words(&bytes).map(|w| w.1).collect();
        assert_eq!(seen, [0xC1D0_0001, 0xCAF0_0007, 0x18]);
    }

    #[test]
    fn foreign_client_is_known_unless_hidden() {
        let mut s = ReplaySpace::default();
        s.add_foreign(5 << 16, 1);
        assert_eq!(s.client(5 << 16), 1);
        s.add_client(5 << 16, 2);
        assert_eq!(s.client(5 << 16), 2);
    }

    #[test]
    fn objects_below_a_lost_one_are_lost() {
        let mut s = ReplaySpace::default();
        s.lose((1, 0x5C00_0001));
        let mut bytes = [0; 8];
        put_u32(&mut bytes, 4, 0x5C00_0001);
        assert!(s.mentions_dead(1, &bytes));
        assert!(!s.mentions_dead(2, &bytes));
        s.add_object((1, 0x5C00_0001), 0x5C00_0001);
        assert!(!s.mentions_dead(1, &bytes));
        s.lose((3, 3));
        assert!(s.is_dead((3, 0x5C00_0009)));
    }

    #[test]
    fn uuids_are_found_at_any_word() {
        let mut s = ReplaySpace::default();
        let recorded: [u8; 16] = std::array::from_fn(|i| u8::try_from(i).unwrap_or(0));
        s.add_uuid(recorded, [9; 16]);
        let mut bytes = vec![0; 4];
        bytes.extend(recorded);
        s.translate(0, &mut bytes);
        assert_eq!(bytes[4..], [9; 16]);
    }

    #[test]
    fn maps_are_cut_like_munmap_does() {
        let mut s = ReplaySpace::default();
        let live = |len, real| Mapping {
            len,
            real: Some(real),
            managed: false,
        };
        s.add_map(0x1000, live(0x3000, 0x1000));
        s.add_map(0x8000, live(0x1000, 0xF000));
        assert_eq!(s.cut_maps(0x2000, 0x1000), [(0x2000, live(0x1000, 0x2000))]);
        assert!(s.is_mapped(0x1000, 0x1000) && s.is_mapped(0x3000, 0x1000));
        assert!(!s.is_mapped(0x1000, 0x2000));
        assert_eq!(s.address(0x8010), 0xF010);
        assert_eq!(s.cut_maps(0, u64::MAX).len(), 3);
    }
}
