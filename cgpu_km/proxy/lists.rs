// SPDX-License-Identifier: GPL-2.0
//! What names the host's GPUs and processes: a tenant sees its own.
//!
//! The driver tells every client of all of them. What a program names that is not its tenant's is
//! turned into a name that nothing has, before the driver sees it: it refuses or ignores it as its own
//! rules say, and what it would have told is never written anywhere. What the driver lists is filtered
//! on the way back, whatever its status says: that is an output, which the program can have changed. Its
//! records of GPUs are kept since a GPU was opened.

use super::frontend::get;
use super::frontend::plain;
use super::frontend::set;
use super::Call;
use super::Errno;
use crate::nvidia::handle::ControlCmd;
use crate::nvidia::names;
use crate::nvidia::names::names;
use crate::nvidia::names::Names;
use crate::nvidia::nvos::card_info;
use crate::nvidia::params::active_id;
use crate::nvidia::params::active_ids;
use crate::nvidia::params::attach_ids;
use crate::nvidia::params::attached_ids;
use crate::nvidia::params::boost_group;
use crate::nvidia::params::boost_groups;
use crate::nvidia::params::device_ids;
use crate::nvidia::params::get_pid_info;
use crate::nvidia::params::get_pids;
use crate::nvidia::params::pid_info;
use crate::nvidia::params::probed_ids;
use crate::nvidia::params::GPU_ID_END;
use crate::nvidia::wire::Field;
use crate::nvidia::wire::Items;
use crate::policy::GpuId;
use crate::policy::ProcessId;
use crate::store::List;

/// Bytes of an id of a GPU or a process.
const ID_SIZE: usize = 4;
/// The id in an entry that has nothing else.
const ID: Field<u32> = Field::at(0);

/// A name that the driver was not given.
#[derive(Clone, Copy)]
struct Foreign {
    at: Field<u32>,
    named: u32,
}

/// What the parameters of a call named.
pub(super) struct Hidden {
    names: Option<Names>,
    foreign: List<Foreign>,
    /// The tenant's own processes, with the places of their entries.
    own: List<(usize, ProcessId)>,
}

/// Puts a name that nothing has in the place of each GPU and process that is not the tenant's.
pub(super) fn hide(
    call: &mut impl Call,
    cmd: ControlCmd,
    params: &mut [u8],
) -> Result<Hidden, Errno> {
    let mut hidden = Hidden {
        names: names(cmd),
        foreign: List::new(),
        own: List::new(),
    };
    match hidden.names {
        Some(Names::Given(lists)) => {
            for list in lists {
                for at in (0..list.used(params)).filter_map(|index| list.ids.item(index)) {
                    let Some(named) = at.get(params) else { break };
                    let is_id = named != GPU_ID_END && named != names::GPU_ID_ALL;
                    if is_id && call.gpu_by_id(named).is_none() {
                        hidden.foreign.push(Foreign { at, named })?;
                        set(at, params, names::GPU_ID_UNKNOWN)?;
                    }
                }
            }
        }
        Some(Names::ProcessInfo) => {
            let count = get(get_pid_info::PID_INFO_LIST_COUNT, params)?;
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            for index in 0..count.min(names::MOST_PID_INFOS) {
                let base = get_pid_info::PID_INFO_LIST + index * pid_info::SIZE;
                let Some(at) = pid_info::PID.within(base) else {
                    break;
                };
                let named = get(at, params)?;
                match own_process(call, named) {
                    Some(process) => hidden.own.push((base, process))?,
                    None => {
                        hidden.foreign.push(Foreign { at, named })?;
                        set(at, params, names::PID_UNKNOWN)?;
                    }
                }
            }
        }
        _ => {}
    }
    Ok(hidden)
}

/// After the driver: gives the program its own words back, and leaves in the lists only what is the
/// tenant's.
pub(super) fn show(call: &mut impl Call, cmd: ControlCmd, hidden: &Hidden, params: &mut [u8]) {
    let Some(names) = hidden.names else { return };
    for Foreign { at, named } in hidden.foreign.iter() {
        let _ = at.set(params, *named);
    }
    match names {
        Names::Given(_) => {
            // The attaching of GPUs tells which one it failed at.
            if let (Some(first), 0x215) = (hidden.foreign.first(), cmd.0) {
                if attach_ids::FAILED_ID.get(params) == Some(names::GPU_ID_UNKNOWN) {
                    let _ = attach_ids::FAILED_ID.set(params, first.named);
                }
            }
        }
        Names::Attached => {
            keep_ids(call, attached_ids::GPU_IDS, params);
        }
        Names::Probed => {
            let kept = keep_ids(call, probed_ids::GPU_IDS, params);
            // Who is excluded is nobody's.
            keep(
                ids(probed_ids::EXCLUDED_GPU_IDS, params),
                ID_SIZE,
                0xff,
                |_, _| false,
            );
            let flags = ids(names::PROBED_FLAGS, params);
            keep(flags, ID_SIZE, 0, |index, _| kept & bit(index) != 0);
        }
        Names::Instances => {
            let told = device_ids::DEVICE_IDS.get(params).unwrap_or(0);
            let own = (0..u32::BITS).filter(|instance| {
                call.look(|accounting| accounting.share(GpuId(*instance)))
                    .is_some()
            });
            let own = own.fold(0, |mask, instance| mask | 1 << instance);
            let _ = device_ids::DEVICE_IDS.set(params, told & own);
        }
        Names::Active => keep_counted(
            params,
            active_ids::NUM_DEVICES,
            active_ids::DEVICES,
            active_id::SIZE,
            |entry| is_own_gpu(call, active_id::GPU_ID, entry),
        ),
        Names::Groups => keep_counted(
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
        Names::Processes => keep_counted(
            params,
            get_pids::PID_TBL_COUNT,
            get_pids::PID_TBL.offset(),
            ID_SIZE,
            |entry| {
                ID.get(entry)
                    .is_some_and(|number| own_process(call, number).is_some())
            },
        ),
        Names::ProcessInfo => {}
    }
}

/// After a `GPU_GET_PID_INFO`: has each of the tenant's processes hold what the accounting says, which add up to
/// what the tenant is charged. The driver counts shared memory for each process that has it, and what is
/// only behind a descriptor for none.
pub(super) fn tell_usage(
    call: &mut impl Call,
    gpu: Option<GpuId>,
    hidden: &Hidden,
    params: &mut [u8],
) {
    use pid_info::*;
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

/// `NV_ESC_CARD_INFO`: a record for each GPU, and zeros. The driver is not asked: it would tell of all the
/// host's GPUs, and refuse a program that has less room than these need (`nvidia_read_card_info()`, nv.c).
pub(super) fn card_info(call: &impl Call, bytes: &mut [u8]) -> Result<i32, Errno> {
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
pub(super) fn attach_gpus(call: &mut impl Call, code: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
    for id in bytes.chunks_exact(ID_SIZE).filter_map(|id| ID.get(id)) {
        if id != 0 && call.gpu_by_id(id).is_none() {
            // As for a GPU that is not there.
            return Err(Errno::EINVAL);
        }
    }
    plain(call, code, bytes)
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

/// The bytes of a list of ids; empty where the branch has no such list.
fn ids(list: Items<u32>, params: &mut [u8]) -> &mut [u8] {
    let end = list.offset() + ID_SIZE * list.count();
    params.get_mut(list.offset()..end).unwrap_or_default()
}

/// Leaves the tenant's GPUs in a list that [`GPU_ID_END`] fills up; a bit for each place that stayed.
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

/// Moves the entries of a list that `stays` says yes to (it is given each one's place and bytes) to the
/// front, fills up with `rest`, and tells how many stayed.
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
        // Where it stays in its own place, there is nothing to move.
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
