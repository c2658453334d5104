// SPDX-License-Identifier: GPL-2.0
//! The objects that the driver has made on the GPU, as a tree: what is freed takes with it what
//! is below.

use crate::names::ObjectId;
use std::collections::BTreeMap;

/// One object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GspObject {
    /// Handle of its parent, in the same client.
    pub parent: u32,
    /// Its class.
    pub class: u32,
    /// The engine of a channel group; 0: none.
    pub engine: u32,
    /// The address space's handle; of an address space that is its device's own, the device's.
    pub space: u32,
}

/// All objects of all clients.
#[derive(Debug, Default)]
pub struct Objects {
    all: BTreeMap<ObjectId, GspObject>,
}

impl Objects {
    /// Adds an object.
    pub fn add(&mut self, id: ObjectId, object: GspObject) {
        self.all.insert(id, object);
    }

    /// An object.
    pub fn get(&self, id: ObjectId) -> Option<&GspObject> {
        self.all.get(&id)
    }

    /// The handle of an object or of the nearest one above it that has this class.
    pub fn above(&self, id: ObjectId, class: u32) -> Option<u32> {
        let mut at = id;
        // A tree of the driver's is not deep; a circle must not be endless.
        for _ in 0..16 {
            let object = self.all.get(&at)?;
            if object.class == class {
                return Some(at.handle);
            }
            at.handle = object.parent;
        }
        None
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Removes an object and all below it, or a whole client. Returns what was removed, leaves
    /// first.
    pub fn remove(&mut self, id: ObjectId) -> Vec<ObjectId> {
        let mut found = vec![id];
        if id.handle == id.client {
            let client = |other: &&ObjectId| other.client == id.client && **other != id;
            found.extend(self.all.keys().filter(client));
        } else {
            let mut next = 0;
            while let Some(parent) = found.get(next).copied() {
                let below = self.all.iter().filter(|(other, object)| {
                    other.client == parent.client
                        && object.parent == parent.handle
                        && **other != parent
                });
                let below: Vec<ObjectId> = below.map(|(other, _)| *other).collect();
                found.extend(below.into_iter().filter(|other| *other != id));
                next += 1;
            }
        }
        found.reverse();
        for gone in &found {
            self.all.remove(gone);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(client: u32, handle: u32) -> ObjectId {
        ObjectId { client, handle }
    }

    fn tree() -> Objects {
        let mut objects = Objects::default();
        for (client, handle, parent) in [(1, 1, 0), (1, 2, 1), (1, 3, 2), (1, 4, 2), (2, 3, 2)] {
            let object = GspObject {
                parent,
                class: 0x80,
                engine: 0,
                space: 0,
            };
            objects.add(id(client, handle), object);
        }
        objects
    }

    #[test]
    fn children_go_with_their_parent() {
        let mut objects = tree();
        assert_eq!(objects.remove(id(1, 2)), [id(1, 4), id(1, 3), id(1, 2)]);
        assert_eq!(objects.len(), 2);
    }

    #[test]
    fn client_takes_all_its_objects() {
        let mut objects = tree();
        objects.remove(id(1, 1));
        assert_eq!(objects.len(), 1);
        assert!(objects.get(id(2, 3)).is_some());
    }
}
