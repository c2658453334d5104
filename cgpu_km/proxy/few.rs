// SPDX-License-Identifier: GPL-2.0
//! A list that mostly has one value, for which it takes no memory of its own.

use crate::store::{
    Exhausted,
    List, //
};

/// A list that keeps its first value in place.
#[derive(Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    more: List<T>,
}

impl<T> Few<T> {
    pub(super) const fn new() -> Self {
        Self {
            first: None,
            more: List::new(),
        }
    }

    pub(super) fn push(&mut self, value: T) -> Result<(), Exhausted> {
        if self.first.is_some() {
            return self.more.push(value);
        }
        self.first = Some(value);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more.iter())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(self.more.iter_mut())
    }
}
