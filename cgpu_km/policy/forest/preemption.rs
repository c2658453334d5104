// SPDX-License-Identifier: GPL-2.0
//! Whether a kernel can be taken off the GPU while it runs.
//!
//! The driver has three modes for the compute work of a channel group. Under CILP a kernel stops at
//! any instruction. Under CTA it runs on until its blocks end, and under WFI until the kernel ends.
//! A neighbour waits for that: 766 ms beside a kernel of 0.8 s, on an H200
//! (docs/measurements/2026-11-23-latency.md). CUDA asks for CILP, and any program can ask for
//! another mode or for none.
//!
//! So the module asks for CILP itself. It can do so when the group has a context, which the driver
//! makes with the first [graphics object](Kind::GraphicsObject) on one of its channels. From then
//! on work can run, if the channel is on the runlist. So a group goes onto the runlist after its
//! mode is set, as with CUDA, or the object is refused. Vulkan does it the other way round; it is
//! let through where the tenant may have graphics.

use super::{
    is_scheduled,
    Forest, //
};
use crate::{
    nvidia::class::Kind,
    policy::{
        event::{
            PreemptionOrder,
            RefusalCause, //
        },
        object::{
            Object,
            ObjectLife,
            Preemption, //
        },
        records::RecordId,
        steps::step, //
    },
    store::Exhausted, //
};

impl Forest {
    /// Makes room for one more object of a kind, of which the scheduler may have to hear.
    pub(in crate::policy) fn reserve_for(&mut self, kind: Kind) -> Result<(), Exhausted> {
        if is_scheduled(kind) {
            self.channels.reserve()?;
        }
        self.reserve()
    }

    /// The object that shares a context with a channel: its group, or itself if it is in none.
    pub(in crate::policy) fn context_of(&self, channel: RecordId) -> RecordId {
        let is_group = |object: &Object| object.kind == Kind::ChannelGroup;
        let parent = self.objects.get(channel).and_then(|channel| channel.parent);
        let group = parent.filter(|&parent| self.objects.get(parent).is_some_and(is_group));
        group.unwrap_or(channel)
    }

    /// A graphics object is about to be made on a channel. Gives what its context belongs to.
    pub(in crate::policy) fn begin_graphics(
        &mut self,
        channel: RecordId,
        may_run: bool,
    ) -> Result<RecordId, RefusalCause> {
        let id = self.context_of(channel);
        let subdevice = self.subdevice_of(channel);
        let context = self.objects.get_mut(id);
        let context = context.ok_or(RefusalCause::UnknownObject)?;
        match context.preemption {
            Preemption::AnyTime | Preemption::AnyTimeRuns => Ok(id),
            Preemption::BeingSet => Err(RefusalCause::PreemptionBeingSet),
            Preemption::AsMadeRuns if !may_run => Err(RefusalCause::RunsAlready),
            Preemption::AsMade | Preemption::AsMadeRuns => {
                subdevice.ok_or(RefusalCause::NoSubdevice)?;
                context.preemption = Preemption::BeingSet;
                Ok(id)
            }
        }
    }

    /// The control by which the mode of a context is to be set; `None`: it is set.
    pub(in crate::policy) fn preemption_order(&self, context: RecordId) -> Option<PreemptionOrder> {
        let object = self.objects.get(context)?;
        let subdevice = self.objects.get(self.subdevice_of(context)?)?;
        let is_due = object.preemption == Preemption::BeingSet;
        is_due.then_some(PreemptionOrder {
            subdevice: subdevice.handle,
            channels: object.handle,
        })
    }

    /// The call that [`Forest::begin_graphics`] agreed to is over.
    pub(in crate::policy) fn end_graphics(&mut self, context: RecordId, preemption: Preemption) {
        if let Some(context) = self.objects.get_mut(context) {
            if context.preemption == Preemption::BeingSet {
                context.preemption = preemption;
            }
        }
    }

    /// A channel or graphics object is about to go, or has gone, and the context may go with it:
    /// its mode is to be set anew.
    pub(in crate::policy) fn forget_preemption(&mut self, going: RecordId) {
        let Some(object) = self.objects.get(going) else {
            return;
        };
        let channel = match object.kind {
            Kind::Channel => Some(going),
            Kind::GraphicsObject => object.parent,
            _ => None,
        };
        let context = channel.map(|channel| self.context_of(channel));
        if let Some(context) = context.and_then(|context| self.objects.get_mut(context)) {
            context.preemption = match context.preemption {
                Preemption::AnyTime => Preemption::AsMade,
                Preemption::AnyTimeRuns => Preemption::AsMadeRuns,
                other => other,
            };
        }
    }

    /// A channel or a group of channels is about to be put on the runlist.
    pub(in crate::policy) fn begin_schedule(
        &mut self,
        channel: RecordId,
    ) -> Result<(), RefusalCause> {
        let context = self.context_of(channel);
        let context = self.objects.get_mut(context);
        let context = context.ok_or(RefusalCause::UnknownObject)?;
        context.preemption = match context.preemption {
            Preemption::BeingSet => return Err(RefusalCause::PreemptionBeingSet),
            Preemption::AsMade | Preemption::AsMadeRuns => Preemption::AsMadeRuns,
            Preemption::AnyTime | Preemption::AnyTimeRuns => Preemption::AnyTimeRuns,
        };
        Ok(())
    }

    /// The subdevice of the device that an object is below of. The driver allows one
    /// (`subdeviceConstruct_IMPL()` in subdevice.c).
    fn subdevice_of(&self, id: RecordId) -> Option<RecordId> {
        let mut device = self.objects.get(id)?;
        while device.kind != Kind::Device {
            step();
            device = self.objects.get(device.parent?)?;
        }
        let mut child = device.child;
        while let Some(id) = child {
            step();
            let object = self.objects.get(id)?;
            if object.kind == Kind::Subdevice && object.life == ObjectLife::Here {
                return Some(id);
            }
            child = object.next;
        }
        None
    }
}
