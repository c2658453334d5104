// SPDX-License-Identifier: GPL-2.0
//! Which objects of the tree may come to be shown to the processor, and which are.

use super::Forest;
use crate::{
    nvidia::handle::{
        ClientHandle,
        ObjectHandle, //
    },
    policy::{
        ids::FileId,
        object::{
            key_of,
            Object,
            ObjectLife, //
        },
        records::RecordId,
        steps::step, //
    },
    store::Exhausted, //
};

impl Forest {
    /// Whether nothing that ends an object's mappings is in flight, for it or anything above it.
    pub(in crate::policy) fn can_be_shown(&self, id: RecordId) -> bool {
        let above = |object: &Object| object.parent;
        let mut at = Some(id);
        while let Some(object) = at.and_then(|at| self.objects.get(at)) {
            step();
            let key = object.key();
            if object.ending != 0 || self.freeing.iter().any(|freed| *freed == key) {
                return false;
            }
            at = above(object);
        }
        true
    }

    /// A free of a name is in flight that nothing has, until [`Forest::forget_free`].
    pub(in crate::policy) fn note_free(
        &mut self,
        client: ClientHandle,
        object: ObjectHandle,
    ) -> Result<RecordId, Exhausted> {
        self.freeing.insert(key_of(client, object))
    }

    /// That free is over.
    pub(in crate::policy) fn forget_free(&mut self, noted: RecordId) {
        self.freeing.remove(noted);
    }

    /// The mappings of an object and of all below it are about to end, until
    /// [`Forest::keep_mappings`]. Whether the driver has the object.
    pub(in crate::policy) fn end_mappings(&mut self, id: RecordId) -> bool {
        let Some(object) = self.objects.get_mut(id) else {
            return false;
        };
        object.ending = object.ending.saturating_add(1);
        object.life == ObjectLife::Here
    }

    /// The call that [`Forest::end_mappings`] was for is over, and the object is still there.
    pub(in crate::policy) fn keep_mappings(&mut self, id: RecordId) {
        if let Some(object) = self.objects.get_mut(id) {
            if object.ending != u8::MAX {
                object.ending = object.ending.saturating_sub(1);
            }
        }
    }

    /// A file that shows `top` or an object below it. `at` is where to go on: 0 at first. The
    /// record of the file that was found before may have been removed since.
    pub(in crate::policy) fn next_shown(&self, top: RecordId, at: &mut usize) -> Option<FileId> {
        if self.shown.is_empty() {
            return None;
        }
        let has_children = |object: &Object| object.child.is_some();
        if !self.objects.get(top).is_some_and(has_children) {
            return self.shown.file_of(top);
        }
        self.shown.next(at, |object| self.is_below(object, top))
    }

    /// Whether an object is `top` or hangs from it.
    pub(in crate::policy) fn is_below(&self, object: RecordId, top: RecordId) -> bool {
        let mut at = Some(object);
        while let Some(id) = at {
            step();
            if id == top {
                return true;
            }
            at = self.objects.get(id).and_then(|object| object.parent);
        }
        false
    }

    /// The mappings of all objects of a file's clients are about to end, for good.
    pub(in crate::policy) fn end_mappings_of(&mut self, file: FileId) {
        let mut at = self.by_file.get(file.0);
        while let Some(client) = at.and_then(|at| self.clients.get(at)) {
            step();
            at = client.next;
            self.end_mappings(client.root);
        }
    }

    /// A file that shows an object of one of the clients of `file`. `at` as in
    /// [`Forest::next_shown`].
    pub(in crate::policy) fn next_shown_of(&self, file: FileId, at: &mut usize) -> Option<FileId> {
        let client = |object: RecordId| self.clients.get(self.objects.get(object)?.owner?);
        self.shown.next(at, |object| {
            step();
            client(object).is_some_and(|client| client.file == file)
        })
    }
}
