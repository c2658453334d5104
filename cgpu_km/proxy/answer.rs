// SPDX-License-Identifier: GPL-2.0
//! Controls that are answered here and never reach the driver.
//!
//! They would give a tenant a say in how long its work runs, when that of others stops, how fast the
//! GPU's clocks go, or who else may use it, or tell it what others do; but CUDA uses them in every program, or
//! nvidia-smi does, and must not notice. So they are checked as the
//! driver checks them (ctrla06c.h and ctrl2080perf.h name the limits, the checks themselves are in the
//! GPU's firmware), what can be asked for again is remembered in the accounting, and the answer is success.

use super::frontend::get;
use super::frontend::set;
use super::Call;
use super::Errno;
use crate::nvidia::class::Kind;
use crate::nvidia::control;
use crate::nvidia::handle::ClientHandle;
use crate::nvidia::handle::ControlCmd;
use crate::nvidia::handle::ObjectHandle;
use crate::nvidia::params;
use crate::nvidia::params::gpumon;
use crate::nvidia::params::perf_boost;
use crate::nvidia::params::preempt;
use crate::nvidia::params::timeslice;
use crate::nvidia::status::NvStatus;
use crate::policy::Boost;
use crate::policy::RefusalCause;

/// Answers a control, and fills in what it asks for.
pub(super) fn answer(
    call: &mut impl Call,
    client: ClientHandle,
    object: ObjectHandle,
    cmd: ControlCmd,
    bytes: &mut [u8],
) -> Result<NvStatus, Errno> {
    let done = match cmd {
        control::SET_TIMESLICE => {
            let wanted = get(timeslice::TIMESLICE_US, bytes)?;
            call.accounting(|accounting| accounting.set_timeslice(client, object, wanted))
        }
        control::GET_TIMESLICE => {
            match call.look(|accounting| accounting.timeslice(client, object)) {
                Ok(remembered) => {
                    set(timeslice::TIMESLICE_US, bytes, remembered)?;
                    Ok(())
                }
                Err(refusal) => Err(refusal),
            }
        }
        control::PREEMPT => {
            let timed = get(preempt::B_MANUAL_TIMEOUT, bytes)? != 0;
            if timed && get(preempt::TIMEOUT_US, bytes)? > params::MOST_PREEMPT_TIMEOUT_US {
                return Ok(NvStatus::NV_ERR_INVALID_ARGUMENT);
            }
            call.look(|accounting| accounting.require(client, object, Kind::ChannelGroup))
        }
        control::PERF_BOOST => {
            let flags = get(perf_boost::FLAGS, bytes)?;
            let seconds = get(perf_boost::DURATION, bytes)?;
            let known = flags & params::PERF_BOOST_FLAGS_CMD != params::PERF_BOOST_FLAGS_CMD;
            let finite = seconds <= params::MOST_PERF_BOOST_S;
            if !known || !(finite || seconds == params::PERF_BOOST_INFINITE) {
                return Ok(NvStatus::NV_ERR_INVALID_ARGUMENT);
            }
            // By one level, as neither CUDA nor Vulkan asks for, counts as to the highest.
            let boost = match flags & params::PERF_BOOST_FLAGS_CMD {
                params::PERF_BOOST_CLEAR => Boost::OFF,
                _ if finite => Boost::until(call.uptime_s().saturating_add(seconds.into())),
                _ => Boost::ENDLESS,
            };
            call.accounting(|accounting| accounting.set_boost(client, object, boost))
        }
        // Where the administrator has set the GPU to exclusive use, the first client to reserve it would
        // keep out the others. Whose the GPU is, the instances say.
        control::ACQUIRE_COMPUTE_MODE_RESERVATION | control::RELEASE_COMPUTE_MODE_RESERVATION => {
            call.look(|accounting| accounting.require(client, object, Kind::Subdevice))
        }
        // The driver counts who wants it, and asks the firmware for the first and after the last
        // (`deviceCtrlCmdKPerfCudaLimitSetControl_IMPL()` in kern_cuda_limit.c).
        control::PERF_CUDA_LIMIT => {
            call.look(|accounting| accounting.require(client, object, Kind::Device))
        }
        // The same (`subdeviceCtrlCmdTimerSetGrTickFreq_IMPL()` in subdevice_ctrl_timer_kernel.c).
        control::SET_GR_TICK_FREQ => {
            call.look(|accounting| accounting.require(client, object, Kind::Subdevice))
        }
        // A ring in which there is no sample yet: what the driver puts there is of all processes of the GPU.
        control::GPUMON_SAMPLES => {
            let ring = bytes.len().saturating_sub(gpumon::SAMPLES);
            if usize::try_from(get(gpumon::BUF_SIZE, bytes)?) != Ok(ring) {
                return Ok(NvStatus::NV_ERR_INVALID_ARGUMENT);
            }
            set(gpumon::COUNT, bytes, 0)?;
            set(gpumon::TRACKER, bytes, 0)?;
            bytes.get_mut(gpumon::SAMPLES..).unwrap_or_default().fill(0);
            call.look(|accounting| accounting.require(client, object, Kind::Subdevice))
        }
        _ => return Ok(NvStatus::NV_ERR_NOT_SUPPORTED),
    };
    Ok(done.map_or_else(
        |refusal: RefusalCause| refusal.status(),
        |()| NvStatus::NV_OK,
    ))
}
