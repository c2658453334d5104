// SPDX-License-Identifier: GPL-2.0
//! Names of the host's GPUs and processes: a tenant sees its own.
//!
//! The driver tells every client of all of them. A name that is not the tenant's is replaced,
//! before the driver sees it, by a name that nothing has; that of a process always. The driver
//! refuses or ignores it as its own rules say, and never writes what it would have told. The
//! driver's own lists are filtered on the way back, whatever its status says: that is an output,
//! which the program can have changed. Its records of GPUs are kept since a GPU was opened.

use super::{
    call::{
        Call,
        Errno, //
    },
    sent::plain,
    stop::{
        get,
        set,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        names::{
            self,
            GpuNames, //
        },
        nvos::card_info,
        params::{
            active_id,
            active_ids,
            attach_ids,
            attached_ids,
            boost_group,
            boost_groups,
            device_ids,
            get_pid_info,
            get_pids,
            pid_info,
            probed_ids,
            GPU_ID_END, //
        },
        status::NvStatus,
        wire::{
            Field,
            Items, //
        }, //
    },
    policy::{
        GpuId,
        ProcessId, //
    },
    store::List, //
};
use core::ops::Range;

/// Bytes of an id of a GPU or a process.
const ID_SIZE: usize = 4;
/// The id in an entry that has nothing else.
const ID: Field<u32> = Field::at(0);

/// The names that the driver was not given, with their places.
pub(super) struct HiddenNames(List<(Field<u32>, u32)>);

impl HiddenNames {
    /// Puts a name that nothing has in the place of another one.
    fn hide(&mut self, at: Field<u32>, with: u32, params: &mut [u8]) -> Result<(), Errno> {
        self.0.push((at, get(at, params)?))?;
        set(at, params, with)
    }

    /// Gives the program its own words back.
    fn restore(&self, params: &mut [u8]) {
        for (at, named) in self.0.iter() {
            let _ = at.set(params, *named);
        }
    }
}

/// A question about processes, of which the driver gets another one.
pub(super) struct HiddenProcesses {
    /// How many entries it had.
    count: u32,
    /// The first one as it was.
    first: [u8; pid_info::SIZE],
    /// The tenant's own processes, with the places of their entries.
    own: List<(usize, ProcessId)>,
}

/// Hides the GPUs in a question that are not the tenant's.
pub(super) fn hide_gpus(
    call: &mut impl Call,
    names: GpuNames,
    params: &mut [u8],
) -> Result<HiddenNames, Errno> {
    let mut hidden = HiddenNames(List::new());
    for list in names.given() {
        for at in (0..list.used(params)).filter_map(|index| list.ids.item(index)) {
            let Some(named) = at.get(params) else { break };
            let is_id = named != GPU_ID_END && named != names::GPU_ID_ALL;
            if is_id && call.gpu_by_id(named).is_none() {
                hidden.hide(at, names::GPU_ID_UNKNOWN, params)?;
            }
        }
    }
    Ok(hidden)
}

/// Makes a question about a process that does not exist of a question about what processes hold.
///
/// The driver goes through all clients of the host for each of up to 200 names, with the locks of
/// all GPUs held, and for one that it finds through every object of its clients
/// (`gpuFindClientInfoWithPidIterator_IMPL()`, gpu_rmapi.c). What they hold comes from the
/// accounting ([`show_usage`]), and the rest of an answer is the same for all processes.
pub(super) fn hide_processes(
    call: &mut impl Call,
    params: &mut [u8],
) -> Result<HiddenProcesses, Errno> {
    let mut own = List::new();
    let count = get(get_pid_info::PID_INFO_LIST_COUNT, params)?;
    for base in entries(count) {
        let entry = params.get(base..).filter(|entry| asks_for_memory(entry));
        let process = entry.and_then(|entry| pid_info::PID.get(entry));
        if let Some(process) = process.and_then(|process| own_process(call, process)) {
            own.push((base, process))?;
        }
    }
    let mut first = [0; pid_info::SIZE];
    let asked = params.get_mut(FIRST).ok_or(Errno::EINVAL)?;
    first.copy_from_slice(asked);
    set(pid_info::PID, asked, names::PID_UNKNOWN)?;
    set(pid_info::INDEX, asked, names::PID_INFO_VIDEO_MEMORY)?;
    set(get_pid_info::PID_INFO_LIST_COUNT, params, count.min(1))?;
    Ok(HiddenProcesses { count, first, own })
}

/// The first entry of a question about processes.
const FIRST: Range<usize> =
    get_pid_info::PID_INFO_LIST..get_pid_info::PID_INFO_LIST + pid_info::SIZE;

/// The places of so many entries, as far as the question has room for them.
fn entries(count: u32) -> impl Iterator<Item = usize> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    (0..count.min(names::MOST_PID_INFOS)).map(|index| FIRST.start + index * pid_info::SIZE)
}

/// After the driver: gives the program its own words back, and leaves in the report only the
/// tenant's GPUs.
pub(super) fn show_gpus(
    call: &mut impl Call,
    names: GpuNames,
    hidden: &HiddenNames,
    params: &mut [u8],
) {
    hidden.restore(params);
    match names {
        GpuNames::Single | GpuNames::P2p | GpuNames::P2pMatrix | GpuNames::Detach => {}
        GpuNames::Attach => {
            let failed = attach_ids::FAILED_ID.get(params);
            if let (Some((_, first)), Some(names::GPU_ID_UNKNOWN)) = (hidden.0.first(), failed) {
                let _ = attach_ids::FAILED_ID.set(params, *first);
            }
        }
        GpuNames::Attached => {
            keep_ids(call, attached_ids::GPU_IDS, params);
        }
        GpuNames::Probed => {
            let kept = keep_ids(call, probed_ids::GPU_IDS, params);
            // An excluded GPU is nobody's.
            let excluded = ids(probed_ids::EXCLUDED_GPU_IDS, params);
            keep(excluded, ID_SIZE, 0xff, |_, _| false);
            let flags = ids(names::PROBED_FLAGS, params);
            keep(flags, ID_SIZE, 0, |index, _| kept & bit(index) != 0);
        }
        GpuNames::Instances => {
            let told = device_ids::DEVICE_IDS.get(params).unwrap_or(0);
            let is_own = |instance: &u32| {
                let share = call.look(|accounting| accounting.share(GpuId(*instance)));
                share.is_some()
            };
            let own = (0..u32::BITS).filter(is_own);
            let own = own.fold(0, |mask, instance| mask | 1 << instance);
            let _ = device_ids::DEVICE_IDS.set(params, told & own);
        }
        GpuNames::Active => keep_counted(
            params,
            active_ids::NUM_DEVICES,
            active_ids::DEVICES,
            active_id::SIZE,
            |entry| is_own_gpu(call, active_id::GPU_ID, entry),
        ),
        GpuNames::BoostGroups => keep_counted(
            params,
            boost_groups::GROUP_COUNT,
            boost_groups::P_BOOST_GROUPS,
            boost_group::SIZE,
            |group| {
                let count = boost_group::GPU_COUNT.get(group).unwrap_or(0);
                let mut gpus = (0..).take(usize::try_from(count).unwrap_or(usize::MAX));
                gpus.all(|index| {
                    let id = boost_group::GPU_IDS.item(index);
                    id.is_some_and(|id| is_own_gpu(call, id, group))
                })
            },
        ),
    }
}

/// After the driver: leaves in a list of processes only the tenant's.
pub(super) fn show_processes(call: &mut impl Call, params: &mut [u8]) {
    let (count, start) = (get_pids::PID_TBL_COUNT, get_pids::PID_TBL.offset());
    keep_counted(params, count, start, ID_SIZE, |entry| {
        let number = ID.get(entry);
        number.is_some_and(|number| own_process(call, number).is_some())
    });
}

/// After the driver: gives the program its own words back, and each entry the driver's answer. For
/// the tenant's processes that says what the accounting says, which adds up to what the tenant is
/// charged. (The driver counts shared memory for each process that has it, and memory that is only
/// behind a descriptor for none.)
pub(super) fn show_usage(
    call: &mut impl Call,
    gpu: Option<GpuId>,
    hidden: &HiddenProcesses,
    params: &mut [u8],
) {
    use pid_info::*;
    let _ = get_pid_info::PID_INFO_LIST_COUNT.set(params, hidden.count);
    let mut answer = [0; pid_info::SIZE];
    if let Some(first) = params.get_mut(FIRST) {
        answer.copy_from_slice(first);
        first.copy_from_slice(&hidden.first);
    }
    for base in entries(hidden.count) {
        if let Some(entry) = params.get_mut(base..base + pid_info::SIZE) {
            answer_entry(entry, &answer);
        }
    }
    for &(base, process) in hidden.own.iter() {
        let held = gpu.map_or(0, |gpu| {
            call.look(|accounting| accounting.held_by(gpu, process))
        });
        let places = [
            (MEM_PRIVATE, held),
            (MEM_SHARED_OWNED, 0),
            (MEM_SHARED_DUPED, 0),
            (PROTECTED_MEM_PRIVATE, 0),
            (PROTECTED_MEM_SHARED_OWNED, 0),
            (PROTECTED_MEM_SHARED_DUPED, 0),
        ];
        for (field, bytes) in places {
            // All lie in the entry, which was there when it was looked at.
            let _ = field.within(base).and_then(|at| at.set(params, bytes));
        }
    }
}

/// Whether an entry asks for memory: otherwise for nothing that the driver knows.
fn asks_for_memory(entry: &[u8]) -> bool {
    pid_info::INDEX.get(entry) == Some(names::PID_INFO_VIDEO_MEMORY)
}

/// Answers an entry as `subdeviceCtrlCmdGpuGetPidInfo_IMPL()` does (subdevice_ctrl_gpu_kernel.c).
fn answer_entry(entry: &mut [u8], answer: &[u8; pid_info::SIZE]) {
    let is_known = asks_for_memory(entry);
    // Otherwise its figures stay as they were.
    let answered = if is_known {
        pid_info::RESULT.offset()..answer.len()
    } else {
        pid_info::SMC_SUBSCRIPTION.start..answer.len()
    };
    if let (Some(into), Some(from)) = (entry.get_mut(answered.clone()), answer.get(answered)) {
        into.copy_from_slice(from);
    }
    if !is_known {
        let _ = pid_info::RESULT.set(entry, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
    }
}

/// `NV_ESC_CARD_INFO`: a record for each GPU, and zeros. The driver is not asked: it would report
/// all the host's GPUs, and refuse a program that has less room than these need
/// (`nvidia_read_card_info()`, nv.c).
#[inline(never)] // As `frontend::run`.
pub(super) fn card_info(call: &impl Call, bytes: &mut [u8]) -> Result<i32, Stop> {
    bytes.fill(0);
    let mut room = bytes.chunks_exact_mut(card_info::SIZE);
    for number in 0..names::MOST_GPUS {
        let Some(card) = call.card(number) else { break };
        let place = room.next().ok_or(Errno::EINVAL)?;
        place.copy_from_slice(&card);
    }
    Ok(0)
}

/// `NV_ESC_ATTACH_GPUS_TO_FD`: a list of GPUs' ids, in which 0 is none.
#[inline(never)] // As `frontend::run`.
pub(super) fn attach_gpus(call: &mut impl Call, code: u32, bytes: &mut [u8]) -> Result<i32, Stop> {
    for id in bytes.chunks_exact(ID_SIZE).filter_map(|id| ID.get(id)) {
        if id != 0 && call.gpu_by_id(id).is_none() {
            // As for a GPU that is not there.
            return Err(Errno::EINVAL.into());
        }
    }
    Ok(plain(call, code, bytes)?)
}

fn is_own_gpu(call: &impl Call, id: Field<u32>, entry: &[u8]) -> bool {
    id.get(entry).is_some_and(|id| call.gpu_by_id(id).is_some())
}

/// The tenant's process that has this number for the caller.
fn own_process(call: &mut impl Call, number: u32) -> Option<ProcessId> {
    let process = call.process_by_number(number)?;
    call.look(|accounting| accounting.has_process(process))
        .then_some(process)
}

/// The bytes of a list of ids; empty if the branch has no such list.
fn ids(list: Items<u32>, params: &mut [u8]) -> &mut [u8] {
    let end = list.offset() + ID_SIZE * list.count();
    params.get_mut(list.offset()..end).unwrap_or_default()
}

/// Leaves the tenant's GPUs in a list that [`GPU_ID_END`] fills up; a bit for each place that
/// stayed.
fn keep_ids(call: &impl Call, list: Items<u32>, params: &mut [u8]) -> u32 {
    let mut kept = 0;
    keep(ids(list, params), ID_SIZE, 0xff, |index, id| {
        let own = is_own_gpu(call, ID, id);
        kept |= if own { bit(index) } else { 0 };
        own
    });
    kept
}

fn bit(index: usize) -> u32 {
    u32::try_from(index).map_or(0, |index| 1u32.checked_shl(index).unwrap_or(0))
}

/// Leaves some entries of a list with a count.
fn keep_counted(
    params: &mut [u8],
    count: Field<u32>,
    start: usize,
    size: usize,
    mut own: impl FnMut(&[u8]) -> bool,
) {
    let told = count.get(params).unwrap_or(0);
    let told = usize::try_from(told).unwrap_or(usize::MAX);
    let Some(room) = params.get_mut(start..) else {
        return;
    };
    let len = told.min(room.len() / size) * size;
    let kept = match room.get_mut(..len) {
        Some(entries) => keep(entries, size, 0, |_, entry| own(entry)),
        None => 0,
    };
    let _ = count.set(params, u32::try_from(kept).unwrap_or(0));
}

/// Moves those entries of a list to the front that `stays` says yes to, fills up with `rest`, and
/// returns how many stayed. `stays` is given the place and the bytes of each.
fn keep(
    entries: &mut [u8],
    size: usize,
    rest: u8,
    mut stays: impl FnMut(usize, &[u8]) -> bool,
) -> usize {
    let mut kept = 0;
    for index in 0..entries.len() / size {
        let Some((before, here)) = entries.split_at_mut_checked(index * size) else {
            break;
        };
        let Some(entry) = here.get(..size) else { break };
        if !stays(index, entry) {
            continue;
        }
        // If it stays in its own place, there is nothing to move.
        if let Some(place) = before.get_mut(kept * size..kept * size + size) {
            place.copy_from_slice(entry);
        }
        kept += 1;
    }
    if let Some(left) = entries.get_mut(kept * size..) {
        left.fill(rest);
    }
    kept
}
