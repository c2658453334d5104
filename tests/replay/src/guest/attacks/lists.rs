// SPDX-License-Identifier: GPL-2.0
//! Attacks by what the driver tells everybody of all GPUs and processes (nvidia-protocol 6.2, the
//! last two rows).

use super::{attack::attacks, scene::Attacker};
use crate::{
    bytes::{put_u32, u32_at, u64_at},
    facts,
    guest::{rm, tools::Verdict},
    layout, standin, sys,
};

attacks! {
    "another's GPU opened (ATTACH_GPUS_TO_FD)": "nv.c:nvidia_ioctl",
        Passes, Told, attach_escape;
    "another's GPU attached (0x215)": "client_resource.c:cliresCtrlCmdGpuAttachIds_IMPL",
        Passes, Told, attach_control;
    "a device on another's GPU": "nv.c:nv_is_gpu_accessible",
        Refuses, Told, device;
    "the host's other GPUs (CARD_INFO)": "nv.c:nvidia_read_card_info",
        Passes, Told, cards;
    "the host's other GPUs (GET_ATTACHED_IDS)": "client_resource.c:cliresCtrlCmdGpuGetAttachedIds_IMPL",
        Passes, Told, attached;
    "what another's GPU is (GET_ID_INFO_V2)": "client_resource.c:cliresCtrlCmdGpuGetIdInfoV2_IMPL",
        Passes, Told, |a| of_the_other(a, 0x205, &mut [0; 32]);
    "what another's GPU is (GET_ID_INFO)": "client_resource.c:cliresCtrlCmdGpuGetIdInfo_IMPL",
        Passes, Told, |a| of_the_other(a, 0x202, &mut [0; 40]);
    "whether another's GPU is drained (QUERY_DRAIN_STATE)": "client_resource.c:cliresCtrlCmdGpuQueryGpuDrainState_IMPL",
        Passes, Told, |a| of_the_other(a, 0x279, &mut [0; 12]);
    "another's GPU detached (0x216)": "client_resource.c:cliresCtrlCmdGpuDetachIds_IMPL",
        Passes, Told, |a| of_the_other(a, 0x216, &mut [0xff; 128]);
    "the host's other GPUs (GET_DEVICE_IDS)": "client_resource.c:cliresCtrlCmdGpuGetDeviceIds_IMPL",
        Passes, Told, |a| {
            let mut mask = [0; 4];
            a.control(a.client.handle, 0x204, &mut mask)?;
            found(u32_at(&mask, 0) & (1 << a.victim.gpus.other.1) != 0)
        };
    "the host's other GPUs (GET_PROBED_IDS)": "client_resource.c:cliresCtrlCmdGpuGetProbedIds_IMPL",
        Passes, Told, |a| {
            let mut ids = [0; 384];
            // Branches before 580 have 64 of them.
            let client = a.client.handle;
            a.control_as_sized(client, client, 0x214, &mut ids)?;
            found((0..96).any(|id| u32_at(&ids, id * 4) == a.victim.gpus.other.0))
        };
    "another's processes (GPU_GET_PIDS)": "subdevice_ctrl_gpu_kernel.c:subdeviceCtrlCmdGpuGetPids_IMPL",
        Passes, Told, pids;
    "what another's process holds (GPU_GET_PID_INFO)": "subdevice_ctrl_gpu_kernel.c:subdeviceCtrlCmdGpuGetPidInfo_IMPL",
        Passes, Told, pid_info;
    "samples of what each process did (GPUMON)": "kern_perf_ctrl.c:subdeviceCtrlCmdPerfGetGpumonPerfmonUtilSamplesV2_KERNEL",
        Passes, Told, samples;
}

fn found(what: bool) -> Verdict {
    if what {
        Ok(())
    } else {
        Err("not in the answer".to_owned())
    }
}

fn attach_escape(a: &Attacker) -> Verdict {
    let mut id = a.victim.gpus.other.0.to_le_bytes();
    let request = 3 << 30 | 4 << 16 | layout::NV_TYPE << 8 | 212;
    let attached = sys::ioctl(a.client.ctl, request, &mut id);
    attached.map(drop).map_err(|e| format!("errno {e}"))
}

fn attach_control(a: &Attacker) -> Verdict {
    let mut params = [0; 132];
    put_u32(&mut params, 0, a.victim.gpus.other.0);
    put_u32(&mut params, 4, u32::MAX);
    a.control(a.client.handle, 0x215, &mut params)
}

fn device(a: &Attacker) -> Verdict {
    let mut params = [0; 56];
    put_u32(&mut params, 0, a.victim.gpus.other.1);
    a.alloc(a.client.handle, super::scene::OWN, rm::DEVICE, &mut params)
}

fn cards(a: &Attacker) -> Verdict {
    let mut cards = [0; 72 * 32];
    let size = u32::try_from(cards.len()).unwrap_or(0);
    let request = 3 << 30 | size << 16 | layout::NV_TYPE << 8 | 200;
    sys::ioctl(a.client.ctl, request, &mut cards).map_err(|e| format!("errno {e}"))?;
    found((0..32).any(|card| u32_at(&cards, card * 72 + 16) == a.victim.gpus.other.0))
}

fn attached(a: &Attacker) -> Verdict {
    let mut ids = [0; 128];
    a.control(a.client.handle, 0x201, &mut ids)?;
    found((0..32).any(|id| u32_at(&ids, id * 4) == a.victim.gpus.other.0))
}

/// A control whose parameters begin with the id of a GPU: of one that is not the tenant's.
fn of_the_other(a: &Attacker, cmd: u32, params: &mut [u8]) -> Verdict {
    put_u32(params, 0, a.victim.gpus.other.0);
    a.control(a.client.handle, cmd, params)
}

fn pids(a: &Attacker) -> Verdict {
    let mut params = vec![0; 3812];
    put_u32(&mut params, 4, rm::SUBDEVICE);
    a.control(rm::SUBDEVICE_HANDLE, 0x2080_018d, &mut params)?;
    let count = usize::try_from(u32_at(&params, 8)).unwrap_or(0).min(950);
    found((0..count).any(|i| u32_at(&params, 12 + 4 * i) == a.victim.process))
}

fn pid_info(a: &Attacker) -> Verdict {
    let mut params = vec![0; 14408];
    put_u32(&mut params, 0, 1);
    put_u32(&mut params, 8, a.victim.process);
    a.control(rm::SUBDEVICE_HANDLE, 0x2080_018e, &mut params)?;
    // Private and shared bytes.
    found((0..3).any(|i| u64_at(&params, 24 + 8 * i) != 0))
}

/// The ring of samples, of which each has its time in front.
fn samples(a: &Attacker) -> Verdict {
    const GET_SAMPLES: u32 = 0x2080_2096;
    const SAMPLE: usize = 776;
    let mut params = vec![0; 16 + 72 * SAMPLE];
    let known = facts::control_size(GET_SAMPLES).filter(|size| *size == params.len());
    let known = known.ok_or_else(|| standin::not_here("this branch has other samples"));
    a.prepare("samples", known)?;
    // Their size.
    put_u32(&mut params, 4, 55_872);
    a.control(rm::SUBDEVICE_HANDLE, GET_SAMPLES, &mut params)?;
    found((0..72).any(|i| u64_at(&params, 16 + i * SAMPLE) != 0))
}
