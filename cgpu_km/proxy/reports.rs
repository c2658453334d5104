// SPDX-License-Identifier: GPL-2.0
//! Reports that are rewritten: what is kept of the question, and what is done to the answer.
//!
//! The question is kept as it was checked. The parameters that come back may have been changed by
//! another thread of the program.

use super::{
    call::Call,
    copied::Copied,
    lists,
    preemption,
    stop::{
        set,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        control::Care,
        fb::FbReport,
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        names::{
            GpuNames,
            ProcessNames, //
        },
        params::preemption_mode,
        status::NvStatus, //
    },
    policy::{
        report::{
            self,
            SizeAsked, //
        },
        FbView,
        GpuId, //
    },
    store::List, //
};

/// How the report of one control is rewritten.
pub(super) enum Report {
    /// It is not.
    AsItIs,
    /// The GPUs that are not the tenant's are left out, or were not asked about.
    Gpus(GpuNames, lists::HiddenNames),
    /// The processes that are not the tenant's are left out.
    ProcessList,
    /// The processes that are not the tenant's were not asked about; the object of the question
    /// tells the GPU.
    Processes(lists::HiddenProcesses, (ClientHandle, ObjectHandle)),
    /// Memory is that of the tenant's share of this GPU, for this client; with the numbers that
    /// were asked for.
    Memory(FbReport, (ClientHandle, GpuId), List<u8>),
    /// There are no dma-bufs; with the numbers that were asked for.
    Features(List<u8>),
    /// The mode in which compute work is preempted is this one, as far as the program knows.
    Preemption(u32),
}

impl Report {
    /// The rewriting that a control needs. Hides from the driver what `params` name that is not the
    /// tenant's. `of` is the object that is asked, `gpu` its GPU.
    pub(super) fn of(
        call: &mut impl Call,
        care: Care,
        of: (ClientHandle, ObjectHandle),
        gpu: Option<GpuId>,
        params: &mut [u8],
        lists: &[Option<Copied>],
    ) -> Result<Self, Stop> {
        Ok(match care {
            Care::Gpus(names) => Self::Gpus(names, lists::hide_gpus(call, names, params)?),
            Care::Processes(ProcessNames::Listed) => Self::ProcessList,
            Care::Processes(ProcessNames::Given) => {
                Self::Processes(lists::hide_processes(call, params)?, of)
            }
            Care::Memory(report) => {
                let gpu = gpu.ok_or(Stop::status(NvStatus::NV_ERR_OBJECT_NOT_FOUND))?;
                let pairs = match (report, lists.first()) {
                    (FbReport::InfoV2, _) => report::fb_info_v2_pairs(params),
                    (FbReport::Info, Some(Some(list))) => &list.bytes,
                    (FbReport::Info | FbReport::Regions, _) => &[],
                };
                Self::Memory(report, (of.0, gpu), copy(pairs)?)
            }
            Care::Features => Self::Features(copy(report::fb_info_v2_pairs(params))?),
            Care::Preemption => Self::Preemption(preemption::always_cilp(params)?),
            Care::Plain
            | Care::Share
            | Care::Schedule
            | Care::OneGpu
            | Care::AddressSpace
            | Care::Bound(_)
            | Care::Profile(_)
            | Care::Statistics
            | Care::Poll
            | Care::Firmware
            | Care::Export(_)
            | Care::Answer(_) => Self::AsItIs,
        })
    }

    /// Rewrites the parameters and lists that came back. `is_ok`: the driver says that it has
    /// worked. That is an output, so names are removed whatever it says.
    ///
    /// # Errors
    ///
    /// The tenant's share was taken away during the call.
    pub(super) fn rewrite(
        &self,
        call: &mut impl Call,
        is_ok: bool,
        params: &mut [u8],
        lists: &mut [Option<Copied>],
    ) -> Result<(), Stop> {
        match self {
            Self::AsItIs => {}
            Self::Gpus(names, hidden) => lists::show_gpus(call, *names, hidden, params),
            Self::ProcessList => lists::show_processes(call, params),
            Self::Processes(hidden, (client, object)) => {
                let gpu = call.look(|accounting| accounting.gpu_of(*client, *object));
                lists::show_usage(call, gpu, hidden, params);
            }
            Self::Memory(..) if !is_ok => {}
            Self::Memory(report, (client, gpu), asked) => {
                let view = fb_view(call, (*client, *gpu), asked);
                let view = view.ok_or(Stop::status(NvStatus::NV_ERR_OBJECT_NOT_FOUND))?;
                match (report, lists.first_mut()) {
                    (FbReport::InfoV2, _) => report::rewrite_fb_info_v2(view, asked, params),
                    (FbReport::Regions, _) => report::rewrite_regions(view, params),
                    (FbReport::Info, Some(Some(list))) => {
                        report::rewrite_fb_info(view, asked, &mut list.bytes);
                    }
                    (FbReport::Info, _) => {}
                }
            }
            Self::Features(asked) => report::rewrite_gpu_info_v2(asked, params),
            Self::Preemption(asked) => set(preemption_mode::CILP_PREEMPT_MODE, params, *asked)?,
        }
        Ok(())
    }
}

/// The memory as a client is told it that asks for these pairs.
#[inline(never)] // Its frame would stand in that of every control.
fn fb_view(
    call: &mut impl Call,
    (client, gpu): (ClientHandle, GpuId),
    asked: &[u8],
) -> Option<FbView> {
    match report::size_asked(asked) {
        SizeAsked::Size => call.accounting(|accounting| accounting.tell_size(client, gpu)),
        SizeAsked::Free => call.look(|accounting| accounting.fb_view_known(client, gpu)),
        SizeAsked::Other => call.look(|accounting| accounting.fb_view(gpu)),
    }
}

fn copy(bytes: &[u8]) -> Result<List<u8>, Stop> {
    let mut copy = List::zeros(bytes.len())?;
    copy.copy_from_slice(bytes);
    Ok(copy)
}
