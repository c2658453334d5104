// SPDX-License-Identifier: GPL-2.0
//! Controls that act on the whole GPU or on the GPU's time (nvidia-protocol 6.4).
//!
//! A control without a handler in the open driver goes to the GPU's firmware as it comes: the
//! function named then is the one that hands it over.

use super::{
    attack::{attack, Attack, Driver, Sign},
    scene::{Attacker, OWN},
    victims,
};
use crate::{
    bytes::{put_u32, put_u64},
    guest::{rm, tools::Verdict},
};

const TO_FIRMWARE: &str = "resource.c:rmresControl_Prologue_IMPL";

/// An attack by a control with parameters of `size` zeros on the subdevice.
macro_rules! subdevice {
    ($name:literal, $function:expr, $driver:ident, $cmd:literal, $size:literal) => {
        attack($name, $function, Driver::$driver, Sign::Gpu, |a| {
            a.control(rm::SUBDEVICE_HANDLE, $cmd, &mut [0; $size])
        })
    };
}

pub(super) const ATTACKS: &[Attack] = &[
    subdevice!("the GPU's power set", TO_FIRMWARE, Passes, 0x2080_0112, 12),
    attack(
        "the GPU marked for reset",
        "control.c:_rmapiRmControl",
        Driver::NotModelled,
        Sign::Told,
        |a| a.control(rm::SUBDEVICE_HANDLE, 0x2080_01a9, &mut []),
    ),
    subdevice!(
        "the GPU partitioned",
        "kernel_mig_manager.c:subdeviceCtrlCmdGpuSetPartitions_IMPL",
        Refuses,
        0x2080_0174,
        392
    ),
    attack(
        "the GPU's microcode replaced (PUSH_UCODE_IMAGE)",
        "client_resource.c:cliresCtrlCmdPushUcodeImage_IMPL",
        Driver::NotModelled,
        Sign::Told,
        |a| a.control(a.client.handle, 0x285, &mut [0; 24]),
    ),
    subdevice!(
        "the counters of NVLink cleared",
        "control.c:_rmapiRmControl",
        Refuses,
        0x2080_3005,
        32
    ),
    attack(
        "NVLink of the GPUs not brought up",
        "client_resource.c:cliresCtrlCmdGpuDisableNvlinkInit_IMPL",
        Driver::Passes,
        Sign::Gpu,
        |a| a.control(a.client.handle, 0x281, &mut [0; 32]),
    ),
    subdevice!(
        "an I2C bus written to",
        TO_FIRMWARE,
        Passes,
        0x2080_0602,
        276
    ),
    subdevice!(
        "the power state set",
        "kern_perf_pwr.c:subdeviceCtrlCmdPerfSetPowerstate_KERNEL",
        Passes,
        0x2080_205b,
        4
    ),
    subdevice!(
        "the power limit set",
        "kern_perf_pwr.c:subdeviceCtrlCmdPerfRatedTdpSetControl_KERNEL",
        Passes,
        0x2080_206f,
        12
    ),
    subdevice!(
        "the auxiliary power state set",
        "kern_perf_pwr.c:subdeviceCtrlCmdPerfSetAuxPowerState_KERNEL",
        Passes,
        0x2080_2092,
        4
    ),
    attack(
        "the clocks raised",
        "kern_perf_boost.c:subdeviceCtrlCmdKPerfBoost_IMPL",
        Driver::Passes,
        Sign::Gpu,
        |a| {
            // As CUDA asks: to the highest, without an end.
            let mut boost = [0; 8];
            put_u32(&mut boost, 0, 0x12);
            put_u32(&mut boost, 4, u32::MAX);
            a.control(rm::SUBDEVICE_HANDLE, 0x2080_200a, &mut boost)
        },
    ),
    subdevice!(
        "the watchdog switched off",
        "kernel_rc_watchdog_ctrl.c:subdeviceCtrlCmdRcDisableWatchdog_IMPL",
        Passes,
        0x2080_220a,
        0
    ),
    subdevice!(
        "the watchdog switched on",
        "kernel_rc_watchdog_ctrl.c:subdeviceCtrlCmdRcEnableWatchdog_IMPL",
        Passes,
        0x2080_220b,
        0
    ),
    attack(
        "a register of the bus interface written to",
        TO_FIRMWARE,
        Driver::Passes,
        Sign::Gpu,
        |a| diagnostic(a, 0x208f_0703, &mut [0; 8]),
    ),
    attack(
        "memory cells marked as bad (ECC)",
        TO_FIRMWARE,
        Driver::Passes,
        Sign::Gpu,
        |a| diagnostic(a, 0x208f_050e, &mut [0; 24]),
    ),
    attack(
        "writes to memory made faulty (ECC)",
        TO_FIRMWARE,
        Driver::Passes,
        Sign::Gpu,
        |a| diagnostic(a, 0x208f_0511, &mut [0; 16]),
    ),
    attack(
        "an error injected into the switching of contexts",
        "control.c:_rmapiRmControl",
        Driver::NotModelled,
        Sign::Told,
        |a| diagnostic(a, 0x208f_1206, &mut [0; 12]),
    ),
    attack(
        "page table entries written",
        "dma.c:deviceCtrlCmdDmaSetPteInfo_IMPL",
        Driver::Passes,
        Sign::Gpu,
        |a| a.control(rm::DEVICE_HANDLE, 0x80_180a, &mut [0; 184]),
    ),
    attack(
        "properties of channels set",
        TO_FIRMWARE,
        Driver::Passes,
        Sign::Gpu,
        |a| a.control(rm::DEVICE_HANDLE, 0x80_170f, &mut [0; 16]),
    ),
    attack(
        "channels idled with the GPU's lock held (FIFO_IDLE_CHANNELS)",
        "kernel_fifo_ctrl.c:deviceCtrlCmdFifoIdleChannels_IMPL",
        Driver::Passes,
        Sign::Gpu,
        |a| a.control(rm::DEVICE_HANDLE, 0x80_1714, &mut [0; 16396]),
    ),
    subdevice!(
        "channels given other buffers (UPDATE_CHANNEL_INFO)",
        "control.c:_rmapiRmControl",
        Refuses,
        0x2080_1116,
        32
    ),
    subdevice!(
        "the runlist's policy set",
        "control.c:_rmapiRmControl",
        Refuses,
        0x2080_1115,
        8
    ),
    attack(
        "another's channel watched by counters (GR_CTXSW_PM_BIND)",
        TO_FIRMWARE,
        Driver::Passes,
        Sign::Gpu,
        |a| {
            let mut bind = [0; 40];
            put_u32(&mut bind, 0, a.victim.client);
            put_u32(&mut bind, 4, victims::CHANNEL);
            a.control(rm::SUBDEVICE_HANDLE, 0x2080_1209, &mut bind)
        },
    ),
    attack(
        "the GPU's counters reserved",
        "kern_profiler_v2_ctrl.c:profilerBaseCtrlCmdReserveHwpmLegacy_IMPL",
        Driver::Passes,
        Sign::Gpu,
        |a| {
            a.alloc(rm::SUBDEVICE_HANDLE, OWN, 0x90cc, &mut [])?;
            a.control(OWN, 0xb0cc_0101, &mut [0])
        },
    ),
    attack(
        "a longer timeslice than the others'",
        "kernel_channel_group_api.c:kchangrpapiCtrlCmdSetTimeslice_IMPL",
        Driver::Passes,
        Sign::Share,
        |a| {
            let mut slice = [0; 8];
            put_u64(&mut slice, 0, 1_000_000);
            a.control(a.group()?, 0xa06c_0103, &mut slice)
        },
    ),
    attack(
        "kernels that cannot be preempted, as made",
        "kernel_graphics_object.c:kgrobjConstruct_IMPL",
        Driver::Passes,
        Sign::Share,
        |a| a.compute().map(drop),
    ),
    attack(
        "kernels that cannot be preempted, on running channels",
        "kernel_graphics_object.c:kgrobjConstruct_IMPL",
        Driver::Passes,
        Sign::Share,
        |a| {
            let channel = a.channel()?;
            a.prepare("the group's schedule", a.schedule(OWN, false))?;
            a.alloc(channel, OWN + 2, 0xcbc0, &mut [0; 16])
        },
    ),
    attack(
        "kernels that cannot be preempted, asked for (GR_SET_CTXSW_PREEMPTION_MODE)",
        TO_FIRMWARE,
        Driver::Passes,
        Sign::Share,
        |a| {
            a.compute()?;
            set_preemption_mode(a, 2)?;
            set_preemption_mode(a, 0)
        },
    ),
    attack(
        "a realtime channel group",
        TO_FIRMWARE,
        Driver::Passes,
        Sign::Share,
        |a| a.control(a.group()?, 0xa06c_0110, &mut [1]),
    ),
    attack(
        "a higher place among the others (interleave)",
        "control.c:_rmapiRmControl",
        Driver::Refuses,
        Sign::Share,
        |a| a.control(a.group()?, 0xa06c_0107, &mut [2, 0, 0, 0]),
    ),
    attack(
        "a channel's higher place among the others (interleave)",
        "control.c:_rmapiRmControl",
        Driver::Refuses,
        Sign::Share,
        |a| a.control(a.channel()?, 0xa06f_0109, &mut [2, 0, 0, 0]),
    ),
    attack(
        "a runlist submitted later (GPFIFO_SCHEDULE, bSkipSubmit)",
        "kernel_channel_group_api.c:kchangrpapiCtrlCmdGpFifoSchedule_IMPL",
        Driver::Passes,
        Sign::Told,
        |a| a.schedule(a.group()?, true),
    ),
    attack(
        "registers by way of a debugger (EXEC_REG_OPS)",
        "kernel_sm_debugger_session_ctrl.c:ksmdbgssnCtrlCmdDebugExecRegOps_IMPL",
        Driver::NotModelled,
        Sign::Told,
        |a| a.control(a.debugger()?, 0x83de_031d, &mut [0; 3208]),
    ),
    attack(
        "the MMU's mode for debuggers set (SET_MODE_MMU_DEBUG)",
        TO_FIRMWARE,
        Driver::Passes,
        Sign::Gpu,
        |a| a.control(a.debugger()?, 0x83de_0307, &mut [1, 0, 0, 0]),
    ),
    attack(
        "another mode for debuggers set (SET_MODE_ERRBAR_DEBUG)",
        TO_FIRMWARE,
        Driver::Passes,
        Sign::Gpu,
        |a| a.control(a.debugger()?, 0x83de_031f, &mut [1, 0, 0, 0]),
    ),
    attack(
        "places for objects behind nobody's file (CREATE_EXPORT_OBJECT_FD)",
        "os.c:cliresCtrlCmdOsUnixCreateExportObjectFd_IMPL",
        Driver::NotModelled,
        Sign::Told,
        |a| a.control(a.client.handle, 0x3d0a, &mut [0; 76]),
    ),
    attack(
        "the session of memory between hosts (IMEX)",
        "imex_session_api.c:imexsessionapiConstruct_IMPL",
        Driver::NotModelled,
        Sign::Told,
        |a| a.alloc(a.client.handle, OWN, 0xf1, &mut [0; 32]),
    ),
    attack(
        "a partition of the GPU",
        "gpu_instance_subscription.c:gisubscriptionConstruct_IMPL",
        Driver::NotModelled,
        Sign::Told,
        |a| a.alloc(rm::SUBDEVICE_HANDLE, OWN, 0xc637, &mut [0; 16]),
    ),
    attack(
        "the fabric manager's session",
        "fm_session_api.c:fmsessionapiConstruct_IMPL",
        Driver::Refuses,
        Sign::Told,
        |a| a.alloc(a.client.handle, OWN, 0xf, &mut [0; 16]),
    ),
    attack(
        "all video memory as one object (NV01_MEMORY_LOCAL_PHYSICAL)",
        "phys_mem.c:physmemConstruct_IMPL",
        Driver::Refuses,
        Sign::Told,
        |a| a.alloc(rm::DEVICE_HANDLE, OWN, 0xc2, &mut [0; 24]),
    ),
    attack(
        "the doorbells of the privileged",
        "usermode_api.c:usrmodeConstruct_IMPL",
        Driver::Refuses,
        Sign::Told,
        |a| a.alloc(rm::SUBDEVICE_HANDLE, OWN, rm::USERMODE, &mut [0, 1]),
    ),
    attack(
        "a reservation of the GPU for one client",
        "subdevice_ctrl_gpu_kernel.c:subdeviceCtrlCmdGpuAcquireComputeModeReservation_IMPL",
        Driver::NotModelled,
        Sign::Gpu,
        |a| a.control(rm::SUBDEVICE_HANDLE, 0x2080_0145, &mut []),
    ),
    attack(
        "a virtual GPU configured",
        "control.c:_rmapiRmControl",
        Driver::Refuses,
        Sign::Told,
        |a| {
            let mut params = vec![0; 5440];
            put_u32(&mut params, 0, 1);
            a.control(rm::SUBDEVICE_HANDLE, 0xa081_0101, &mut params)
        },
    ),
];

/// A control of the object for diagnostics.
fn diagnostic(a: &Attacker, cmd: u32, params: &mut [u8]) -> Verdict {
    a.alloc(rm::SUBDEVICE_HANDLE, OWN, 0x208f, &mut [])?;
    a.control(OWN, cmd, params)
}

/// Sets the mode of the own group's compute work: 0 WFI, 1 CTA, 2 CILP.
fn set_preemption_mode(attacker: &Attacker, mode: u32) -> Verdict {
    let mut params = [0; 32];
    put_u32(&mut params, 0, 1);
    put_u32(&mut params, 4, OWN);
    put_u32(&mut params, 12, mode);
    attacker.control(rm::SUBDEVICE_HANDLE, 0x2080_1210, &mut params)
}
