// SPDX-License-Identifier: GPL-2.0
//! Controls that are answered here and never reach the driver.
//!
//! They would give a tenant a say in how long its work runs, when others stop, how fast the GPU's
//! clocks go, or who else may use it, or they would report what others do. But CUDA uses them in
//! every program, or nvidia-smi does, and must not notice. So they are checked as the driver checks
//! them (ctrla06c.h and ctrl2080perf.h name the limits, the checks themselves are in the GPU's
//! firmware), what can be asked for again is remembered in the accounting, and the answer is
//! success.

use super::{
    call::Call,
    stop::{
        get,
        set,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        class::Kind,
        control::Answered,
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        params::{
            self,
            gpumon,
            perf_boost,
            preempt,
            timeslice, //
        },
        status::NvStatus, //
    },
    policy::Boost, //
};

/// Answers a control on an object, and fills in what it asks for.
pub(super) fn answer(
    call: &mut impl Call,
    (client, object): (ClientHandle, ObjectHandle),
    answered: Answered,
    bytes: &mut [u8],
) -> Result<(), Stop> {
    let require = |call: &mut _, kind| require(call, (client, object), kind);
    match answered {
        Answered::Ignored(kind) => require(call, kind),
        Answered::SetTimeslice => {
            let wanted = get(timeslice::TIMESLICE_US, bytes)?;
            let set =
                call.accounting(|accounting| accounting.set_timeslice(client, object, wanted));
            Ok(set?)
        }
        Answered::GetTimeslice => {
            let remembered = call.look(|accounting| accounting.timeslice(client, object))?;
            Ok(set(timeslice::TIMESLICE_US, bytes, remembered)?)
        }
        Answered::Preempt => {
            let timed = get(preempt::B_MANUAL_TIMEOUT, bytes)? != 0;
            if timed && get(preempt::TIMEOUT_US, bytes)? > params::MOST_PREEMPT_TIMEOUT_US {
                return Err(Stop::status(NvStatus::NV_ERR_INVALID_ARGUMENT));
            }
            require(call, Kind::ChannelGroup)
        }
        Answered::PerfBoost => {
            let boost = boost(call, bytes)?;
            let set = call.accounting(|accounting| accounting.set_boost(client, object, boost));
            Ok(set?)
        }
        Answered::Samples => {
            let ring = bytes.len().saturating_sub(gpumon::SAMPLES);
            if usize::try_from(get(gpumon::BUF_SIZE, bytes)?) != Ok(ring) {
                return Err(Stop::status(NvStatus::NV_ERR_INVALID_ARGUMENT));
            }
            require(call, Kind::Subdevice)?;
            // A ring in which there is no sample yet: the driver's has those of all processes of
            // the GPU.
            set(gpumon::COUNT, bytes, 0)?;
            set(gpumon::TRACKER, bytes, 0)?;
            bytes.get_mut(gpumon::SAMPLES..).unwrap_or_default().fill(0);
            Ok(())
        }
    }
}

/// Refuses an object that is not the tenant's, or not of this kind.
fn require(
    call: &mut impl Call,
    (client, object): (ClientHandle, ObjectHandle),
    kind: Kind,
) -> Result<(), Stop> {
    Ok(call.look(|accounting| accounting.require(client, object, kind))?)
}

/// The boost that a program asks for.
fn boost(call: &impl Call, bytes: &[u8]) -> Result<Boost, Stop> {
    let flags = get(perf_boost::FLAGS, bytes)?;
    let seconds = get(perf_boost::DURATION, bytes)?;
    let wanted = flags & params::PERF_BOOST_FLAGS_CMD;
    let finite = seconds <= params::MOST_PERF_BOOST_S;
    let is_known = wanted != params::PERF_BOOST_FLAGS_CMD;
    if !is_known || !(finite || seconds == params::PERF_BOOST_INFINITE) {
        return Err(Stop::status(NvStatus::NV_ERR_INVALID_ARGUMENT));
    }
    // Neither CUDA nor Vulkan asks for a boost by one level. It counts as one to the highest.
    Ok(match wanted {
        params::PERF_BOOST_CLEAR => Boost::OFF,
        _ if finite => Boost::until(call.uptime_s().saturating_add(seconds.into())),
        _ => Boost::ENDLESS,
    })
}
