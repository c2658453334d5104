// SPDX-License-Identifier: GPL-2.0
//! `NV_ESC_RM_CONTROL`: a command to an RM object.
//!
//! Most controls pass as they are. Those with pointers inside their parameters have what is pointed
//! to copied as well, so that the driver never reads the program's memory for a decision of ours;
//! those that report memory are rewritten on the way back; those that go through descriptors have a way of
//! their own ([`super::exports`]); a few are answered here ([`super::answer`]).

use super::answer;
use super::copied::Bytes;
use super::exports;
use super::frontend::allowed;
use super::frontend::get;
use super::frontend::is_elsewhere;
use super::frontend::set;
use super::handles;
use super::lists;
use super::Call;
use super::Copied;
use super::Errno;
use super::Gap;
use super::Part;
use super::PointerAt;
use super::Route;
use super::Session;
use super::UserAddr;
use crate::nvidia::class::Kind;
use crate::nvidia::control::Care;
use crate::nvidia::control::ControlEntry;
use crate::nvidia::control::Direction;
use crate::nvidia::control::Pointer;
use crate::nvidia::control::LARGEST_PARAMS;
use crate::nvidia::fb;
use crate::nvidia::handle::ClientHandle;
use crate::nvidia::handle::ControlCmd;
use crate::nvidia::handle::ObjectHandle;
use crate::nvidia::names;
use crate::nvidia::nvos;
use crate::nvidia::params::group_schedule;
use crate::nvidia::params::share_policy;
use crate::nvidia::rmapi::tells_too_much;
use crate::nvidia::status::NvStatus;
use crate::nvidia::wire::Field;
use crate::policy::report;
use crate::policy::Audited;
use crate::policy::CallKind;
use crate::policy::GpuId;
use crate::policy::Reason;
use crate::store::List;

/// Where the pointer to the parameters stands.
pub(super) const PARAMS_AT: PointerAt = PointerAt {
    part: 0,
    offset: nvos::nvos54::PARAMS.offset(),
};
/// Most pointers in the parameters of one control that we allow.
const MOST_POINTERS: usize = 4;

/// Runs `NV_ESC_RM_CONTROL` on its outer struct.
pub(super) fn control(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    outer: &mut [u8],
) -> Result<i32, Errno> {
    use nvos::nvos54::*;
    let client = ClientHandle(get(H_CLIENT, outer)?);
    let object = ObjectHandle(get(H_OBJECT, outer)?);
    let cmd = ControlCmd(get(CMD, outer)?);
    let size = get(PARAMS_SIZE, outer)?;
    let pointer = UserAddr(get(PARAMS, outer)?);
    let flags = get(FLAGS, outer)?;

    let (file, own_gpu) = call.accounting(|accounting| {
        (
            accounting.client_file(client),
            accounting.gpu_of(client, object),
        )
    });
    let gpu = own_gpu.or(session.gpu());
    let entry = call.tables().control(cmd);
    let verdict = if file.is_none() {
        Err(refused(NvStatus::NV_ERR_INVALID_CLIENT, Reason::Foreign))
    } else if flags != 0 {
        // Calls from interrupts, around the driver's locks, or with parameters in another encoding,
        // in which the tables' sizes and pointers do not hold. No program sets any.
        Err(refused(
            NvStatus::NV_ERR_INVALID_ARGUMENT,
            Reason::Parameters,
        ))
    } else {
        listed(call, cmd, entry, gpu)
            .and_then(|()| check(entry, size, pointer))
            .and_then(|()| firmware(call, cmd, entry, client, object))
            .and_then(|()| reported_gpu(cmd, own_gpu))
    };
    let reported = match verdict {
        Ok(reported) => reported,
        Err(refused) => {
            note(call, cmd, gpu, refused.reason);
            return set(STATUS, outer, refused.status.0).map(|()| 0);
        }
    };
    if entry.is_none() {
        note(call, cmd, gpu, Some(Reason::PassedUnseen));
    }
    let answered = entry.is_some_and(|entry| entry.care == Care::Answer);
    if pointer.is_null() {
        if answered {
            let status = answer::answer(call, client, object, cmd, &mut [])?;
            return set(STATUS, outer, status.0).map(|()| 0);
        }
        return super::frontend::plain(call, code, outer);
    }

    let len = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
    let mut params = Copied::none();
    params.take(call, pointer, len)?;
    if answered {
        let status = answer::answer(call, client, object, cmd, &mut params.bytes)?;
        params.write_back(call)?;
        return set(STATUS, outer, status.0).map(|()| 0);
    }
    if entry.is_some_and(|entry| entry.care == Care::Export) {
        let returned = exports::control(call, session, code, outer, &mut params.bytes)?;
        params.write_back(call)?;
        return Ok(returned);
    }
    if let Err(refused) = policy(call, entry, &params.bytes)? {
        note(call, cmd, gpu, refused.reason);
        return set(STATUS, outer, refused.status.0).map(|()| 0);
    }
    let pointers = entry.map_or(&[][..], |entry| entry.pointers);
    let mut lists = read_lists(call, pointers, &params.bytes)?;
    let hidden = lists::hide(call, cmd, &mut params.bytes)?;
    let asked = asked(cmd, &params.bytes, &lists)?;
    let route = match tells_too_much(cmd) && lists.iter().all(Option::is_some) {
        true => Route::Unseen,
        false => Route::Caller,
    };
    if route == Route::Unseen && is_elsewhere(session, file) {
        // As the driver refuses it where a program calls.
        return set(STATUS, outer, NvStatus::NV_ERR_INVALID_CLIENT.0).map(|()| 0);
    }
    let nested = (&mut *params.bytes, pointers, &mut *lists);
    let returned = forward(call, code, outer, nested, route)?;
    lists::show(call, cmd, &hidden, &mut params.bytes);
    if cmd == names::GET_PID_INFO {
        let gpu = call.look(|accounting| accounting.gpu_of(client, object));
        lists::tell_usage(call, gpu, &hidden, &mut params.bytes);
    }

    let ok = returned == 0 && get(STATUS, outer)? == NvStatus::NV_OK.0;
    if cmd == fb::GPU_GET_INFO_V2 {
        report::rewrite_gpu_info_v2(&asked, &mut params.bytes);
    }
    if let (true, Some(gpu)) = (ok, reported) {
        let Some(view) = call.look(|accounting| accounting.fb_view(gpu)) else {
            // The share was taken away meanwhile.
            return set(STATUS, outer, NvStatus::NV_ERR_OBJECT_NOT_FOUND.0).map(|()| 0);
        };
        match cmd {
            fb::FB_GET_INFO_V2 => report::rewrite_fb_info_v2(view, &asked, &mut params.bytes),
            fb::FB_GET_REGIONS => report::rewrite_regions(view, &mut params.bytes),
            fb::FB_GET_INFO => {
                if let Some(Some(list)) = lists.first_mut() {
                    report::rewrite_fb_info(view, &asked, &mut list.bytes);
                }
            }
            _ => {}
        }
    }
    for (list, pointer) in lists.iter().zip(pointers) {
        // After an error the driver copies none of them back.
        if let (Some(list), true) = (list, ok && pointer.direction != Direction::In) {
            list.write_back(call)?;
        }
    }
    params.write_back(call)?;
    Ok(returned)
}

/// A control that does not reach the driver.
struct Refused {
    /// What the program is told.
    status: NvStatus,
    /// Why; `None`: the driver would say the same, and it is nothing to take note of.
    reason: Option<Reason>,
}

fn refused(status: NvStatus, reason: Reason) -> Refused {
    Refused {
        status,
        reason: Some(reason),
    }
}

fn note(call: &mut impl Call, cmd: ControlCmd, gpu: Option<GpuId>, reason: Option<Reason>) {
    if let Some(reason) = reason {
        let noted = Audited {
            kind: CallKind::Control,
            number: cmd.0,
            reason,
        };
        call.audit(&noted, gpu);
    }
}

/// Whether the tables have a control, for this tenant and GPU.
fn listed(
    call: &mut impl Call,
    cmd: ControlCmd,
    entry: Option<&ControlEntry>,
    gpu: Option<GpuId>,
) -> Result<(), Refused> {
    let unsupported = |reason| refused(NvStatus::NV_ERR_NOT_SUPPORTED, reason);
    match entry {
        Some(entry) => allowed(call, gpu, entry.capabilities).map_err(unsupported),
        // A GSS legacy control has no entry in the driver's own tables either.
        None if cmd.is_gss_legacy() => Ok(()),
        None => Err(unsupported(Reason::Unlisted)),
    }
}

/// The size of a control's parameters: compare `_rmapiRmControl()` in
/// src/nvidia/src/kernel/rmapi/control.c for the order and the statuses. That of a GSS legacy control is
/// the caller's.
fn check(entry: Option<&ControlEntry>, size: u32, pointer: UserAddr) -> Result<(), Refused> {
    let expected = entry.map_or(size, |entry| entry.params);
    if size != expected || size > LARGEST_PARAMS || (size == 0) != pointer.is_null() {
        return Err(Refused {
            status: NvStatus::NV_ERR_INVALID_ARGUMENT,
            reason: None,
        });
    }
    Ok(())
}

/// A control that goes to the GPU's firmware unseen: the driver asks neither whose client it names, nor
/// for any class of the object (`RmGssLegacyRpcCmd()` in rmapi_gss_legacy_control.c), nor does anybody
/// but the firmware know what it does. So it must name a device or subdevice of the tenant's own, and
/// those that the driver takes from administrators alone are refused as it refuses them.
fn firmware(
    call: &mut impl Call,
    cmd: ControlCmd,
    entry: Option<&ControlEntry>,
    client: ClientHandle,
    object: ObjectHandle,
) -> Result<(), Refused> {
    if entry.is_some() {
        return Ok(());
    }
    if cmd.is_gss_privileged() {
        return Err(refused(
            NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS,
            Reason::Forbidden,
        ));
    }
    let (kind, gpu) = call.accounting(|accounting| {
        (
            accounting.kind_of(client, object),
            accounting.gpu_of(client, object),
        )
    });
    match (kind, gpu) {
        (Some(Kind::Device | Kind::Subdevice), Some(_)) => Ok(()),
        _ => Err(refused(
            NvStatus::NV_ERR_OBJECT_NOT_FOUND,
            Reason::Parameters,
        )),
    }
}

/// The GPU whose memory a control reports. It must be known before the driver is asked: while another
/// thread's call makes the object, or frees it, the driver may have an object that the accounting does not know,
/// and would tell of the whole GPU.
fn reported_gpu(cmd: ControlCmd, gpu: Option<GpuId>) -> Result<Option<GpuId>, Refused> {
    if !matches!(
        cmd,
        fb::FB_GET_INFO | fb::FB_GET_INFO_V2 | fb::FB_GET_REGIONS
    ) {
        return Ok(None);
    }
    gpu.map(Some).ok_or(Refused {
        status: NvStatus::NV_ERR_OBJECT_NOT_FOUND,
        reason: None,
    })
}

/// What the parameters of some controls may not say.
///
/// Those that name a client name one of the tenant's own: the driver looks some of them up for themselves.
/// Those that share objects (`cliresCtrlCmdClientSetInheritedSharePolicy_IMPL()` in client_resource.c)
/// share them as [`handles::check_policy`] allows. Those that put channels on the runlist do it as a whole
/// or not at all: a runlist that is submitted later, or channels in it that are not enabled, are for
/// schedulers.
fn policy(
    call: &mut impl Call,
    entry: Option<&ControlEntry>,
    params: &[u8],
) -> Result<Result<(), Refused>, Errno> {
    let clients = entry.map_or(&[][..], |entry| entry.clients);
    if !handles::are_own(call, clients, params) {
        return Ok(Err(refused(handles::FOREIGN, Reason::Foreign)));
    }
    match entry.map(|entry| entry.care) {
        Some(Care::Share) => {
            let kind = get(share_policy::TYPE, params)?;
            let target = get(share_policy::TARGET, params)?;
            let checked = handles::check_policy(call, kind, target);
            Ok(checked.map_err(|status| refused(status, Reason::Foreign)))
        }
        Some(Care::Schedule) => {
            // Before 580 there is no room for the second.
            let skips = [group_schedule::B_SKIP_SUBMIT, group_schedule::B_SKIP_ENABLE]
                .into_iter()
                .any(|skip| skip.get(params).is_some_and(|skip| skip != 0));
            Ok(match skips {
                true => Err(refused(
                    NvStatus::NV_ERR_INVALID_ARGUMENT,
                    Reason::Parameters,
                )),
                false => Ok(()),
            })
        }
        _ => Ok(Ok(())),
    }
}

/// The numbers that a report of memory is asked for, as they stand before the call.
fn asked(cmd: ControlCmd, params: &[u8], lists: &List<Option<Copied>>) -> Result<List<u8>, Errno> {
    let pairs: &[u8] = match (cmd, lists.first()) {
        (fb::FB_GET_INFO_V2 | fb::GPU_GET_INFO_V2, _) => report::fb_info_v2_pairs(params),
        (fb::FB_GET_INFO, Some(Some(list))) => &list.bytes,
        _ => &[],
    };
    let mut copy = List::zeros(pairs.len())?;
    copy.copy_from_slice(pairs);
    Ok(copy)
}

/// Copies what the pointers inside `params` point to; `None` for a null pointer or an empty list.
fn read_lists(
    call: &mut impl Call,
    pointers: &[Pointer],
    params: &[u8],
) -> Result<List<Option<Copied>>, Errno> {
    let mut lists = List::new();
    lists.reserve(pointers.len())?;
    for pointer in pointers {
        let at = UserAddr(get(Field::<u64>::at(pointer.at), params)?);
        // More than the driver takes: compare embeddedParamCopyIn() in embedded_param_copy.c.
        let len = pointer.bytes(params).ok_or(Errno::EINVAL)?;
        let list = match at.is_null() || len == 0 {
            true => None,
            false if pointer.direction == Direction::Out => Some(Copied {
                at,
                bytes: Bytes::zeros(len)?,
                gap: Gap::default(),
            }),
            false => Some(Copied::read(call, at, len)?),
        };
        lists.push(list)?;
    }
    Ok(lists)
}

/// Forwards the outer struct, the parameters and what they point to.
fn forward(
    call: &mut impl Call,
    code: u32,
    outer: &mut [u8],
    (params, pointers, lists): (&mut [u8], &[Pointer], &mut [Option<Copied>]),
    route: Route,
) -> Result<i32, Errno> {
    if pointers.len() > MOST_POINTERS {
        return Err(Errno::EINVAL);
    }
    let outer = Part::argument(outer);
    let params = Part::pointed(params, PARAMS_AT);
    if pointers.is_empty() {
        return call.forward(code, &mut [outer, params], route);
    }
    let mut parts = List::new();
    parts.reserve(2 + lists.len())?;
    parts.push(outer)?;
    parts.push(params)?;
    for (list, pointer) in lists.iter_mut().zip(pointers) {
        if let Some(list) = list {
            parts.push(Part::pointed(
                &mut list.bytes,
                PointerAt {
                    part: 1,
                    offset: pointer.at,
                },
            ))?;
        }
    }
    call.forward(code, &mut parts, route)
}
