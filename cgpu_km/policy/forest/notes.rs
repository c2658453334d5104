// SPDX-License-Identifier: GPL-2.0
//! Objects that stay until a call in flight is over.

use super::Forest;
use crate::{
    nvidia::class::Kind,
    policy::{slots::Slot, steps::step},
    store::Exhausted,
};

impl Forest {
    /// The device that an object is or is below of.
    pub(in crate::policy) fn device_of(&self, slot: Slot) -> Option<Slot> {
        let mut at = Some(slot);
        while let Some(slot) = at {
            step();
            let object = self.objects.get(slot)?;
            if object.kind == Kind::Device {
                return Some(slot);
            }
            at = object.parent;
        }
        None
    }

    /// Whether the driver can note the errors of a channel there: memory, or a context for DMA over
    /// it. (Over a range of addresses the driver makes another range in its place.)
    pub(in crate::policy) fn takes_notes(&self, slot: Slot) -> bool {
        let Some(object) = self.objects.get(slot) else {
            return false;
        };
        let above = object.parent.and_then(|above| self.objects.get(above));
        let memory = match object.kind {
            Kind::ContextDma => above.map(|above| above.kind),
            kind => Some(kind),
        };
        matches!(
            memory,
            Some(Kind::SystemMemory | Kind::VideoMemory | Kind::OsDescriptor)
        )
    }

    /// Keeps an object, and so all above it, until [`Forest::let_go`]. `None`: it is being freed.
    pub(in crate::policy) fn keep(&mut self, slot: Slot) -> Result<Option<Slot>, Exhausted> {
        if !self.can_be_shown(slot) {
            return Ok(None);
        }
        self.kept.insert(slot).map(Some)
    }

    /// The call that kept an object is over.
    pub(in crate::policy) fn let_go(&mut self, kept: Slot) {
        self.kept.remove(kept);
    }

    /// Whether a call in flight keeps an object, or one below it.
    pub(in crate::policy) fn is_kept(&self, slot: Slot) -> bool {
        self.kept.iter().any(|kept| self.is_below(*kept, slot))
    }
}
