// SPDX-License-Identifier: GPL-2.0
//! An instance's capabilities, and the reports of refused calls.

use cgpu_uapi::{capability, text, CallKind, Cause, Refusal, RefusalReason};

use crate::{
    bytes::put_u32,
    guest::{
        instance::Instance,
        rm,
        tools::{at, equal, fails, holds, sys, tests, Verdict, GIB, GPU},
    },
    layout, sys as os,
};

tests! {
    "capabilities: a class is refused without its set" => classes;
    "capabilities: unknown ones are refused" => unknown;
    "refused calls are told with the driver's names" => told;
    "refused calls: what goes to the firmware unseen is counted" => unseen;
    "refused calls: as many kinds as there is room for" => storm;
    "refused calls: the log has a line" => logged;
}

/// NV20_SUBDEVICE_DIAG: utility. It has no parameters.
const DIAGNOSTICS: u32 = 0x208F;
const INVALID_CLASS: rm::Failure = rm::Failure::Status(0x22);
const OBJECT: u32 = 0x5C00_0040;

fn refusals(instance: &Instance) -> Result<(Vec<Refusal>, u64), String> {
    sys("refusals", instance.control.refusals(instance.name, GPU))
}

/// The only record of a number, if there is one.
fn record(instance: &Instance, number: u32) -> Result<Refusal, String> {
    let (records, _) = refusals(instance)?;
    let found: Vec<_> = records.iter().filter(|r| r.number == number).collect();
    match found.as_slice() {
        [one] => Ok(**one),
        others => Err(format!("{} records of {number:#x}", others.len())),
    }
}

fn classes() -> Verdict {
    let one = Instance::new("sets", GIB)?;
    equal(
        "the default",
        &one.get()?.capabilities,
        &(capability::COMPUTE | capability::UTILITY),
    )?;
    let client = one.client()?;
    let make = || client.alloc(rm::SUBDEVICE_HANDLE, OBJECT, DIAGNOSTICS, &mut []);
    at("with utility", make())?;
    at("free", client.free(OBJECT))?;
    let set = |bits| one.control.set_capabilities("sets", GPU, bits);
    sys("set", set(capability::COMPUTE | capability::GRAPHICS))?;
    equal("without utility", &make(), &Err(INVALID_CLASS))?;
    let seen = record(&one, DIAGNOSTICS)?;
    equal("kind", &seen.kind, &CallKind::Class.number())?;
    equal("reason", &seen.reason, &RefusalReason::Capability.number())?;
    equal("allowed by", &seen.capabilities, &capability::UTILITY)?;
    equal("name", &text(&seen.name), &"NV20_SUBDEVICE_DIAG")?;
    equal("on the GPU", &seen.on_gpu, &1)?;
    // Existing objects stay, and the rest goes on.
    sys("set", set(capability::UTILITY))?;
    at("with utility again", make())?;
    let memory = client.memory(OBJECT + 1, 2 << 20);
    equal("memory for utility", &memory, &Err(INVALID_CLASS))?;
    client.close();
    Ok(())
}

fn unknown() -> Verdict {
    let one = Instance::new("unknown", GIB)?;
    let set = |bits| one.control.set_capabilities("unknown", GPU, bits);
    let cause = Cause::UnknownCapability.errno();
    for bits in [0, capability::ALL + 1, u32::MAX] {
        fails(&format!("{bits:#x}"), set(bits), cause)?;
    }
    let gone = one
        .control
        .set_capabilities("nobody", GPU, capability::RDMA);
    fails("nobody", gone, Cause::NoSuchInstance.errno())?;
    sys("all of them", set(capability::ALL))?;
    equal("set", &one.get()?.capabilities, &capability::ALL)
}

fn told() -> Verdict {
    let (one, two) = (Instance::new("told", GIB)?, Instance::new("other", GIB)?);
    let (client, other) = (one.client()?, two.client()?);
    equal("nothing yet", &refusals(&one)?.0.len(), &0)?;
    let control = |handle, cmd, size: usize| {
        let mut params = vec![0; size];
        rm::control(client.ctl, handle, rm::SUBDEVICE_HANDLE, cmd, &mut params)
    };
    for _ in 0..3 {
        holds(
            "it works",
            control(client.handle, 0x2080_110B, 536).is_err(),
        )?;
    }
    let foreign = control(other.handle, layout::FB_GET_INFO_V2, 1028);
    holds("a foreign client works", foreign.is_err())?;
    holds(
        "a privileged one works",
        control(client.handle, 0x2080_C001, 8).is_err(),
    )?;
    let class = client.alloc(rm::DEVICE_HANDLE, OBJECT, 0xC637, &mut [0; 8]);
    equal("a partition", &class, &Err(INVALID_CLASS))?;
    let mut settings = [0; 72];
    put_u32(&mut settings, 0, client.handle);
    let code = 3 << 30 | 72 << 16 | layout::NV_TYPE << 8 | 0x4d;
    fails(
        "ACCESS_REGISTRY",
        os::ioctl(client.ctl, code, &mut settings),
        libc::EINVAL,
    )?;
    for (number, kind, reason, count, name) in [
        (
            0x2080_110B,
            CallKind::Control.number(),
            RefusalReason::Unlisted.number(),
            3,
            "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS",
        ),
        (
            layout::FB_GET_INFO_V2,
            CallKind::Control.number(),
            RefusalReason::Foreign.number(),
            1,
            "NV2080_CTRL_CMD_FB_GET_INFO_V2",
        ),
        (
            0x2080_C001,
            CallKind::Control.number(),
            RefusalReason::Forbidden.number(),
            1,
            "",
        ),
        (
            0xC637,
            CallKind::Class.number(),
            RefusalReason::Unlisted.number(),
            1,
            "AMPERE_SMC_PARTITION_REF",
        ),
        (
            0x4d,
            CallKind::Escape.number(),
            RefusalReason::Forbidden.number(),
            1,
            "NV_ESC_RM_ACCESS_REGISTRY",
        ),
    ] {
        let seen = record(&one, number)?;
        let fields = (seen.kind, seen.reason, seen.count, text(&seen.name));
        equal(
            &format!("{number:#x}"),
            &fields,
            &(kind, reason, count, name),
        )?;
        equal("process", &seen.last_process, &std::process::id())?;
        // After the first of September 2020: a clock, and not zero.
        holds("the time is wrong", seen.last_seconds > 1_598_918_400)?;
    }
    equal("refused calls", &one.get()?.calls_refused, &7)?;
    equal("the other's", &refusals(&two)?.0.len(), &0)?;
    client.close();
    other.close();
    Ok(())
}

fn unseen() -> Verdict {
    let one = Instance::new("unseen", GIB)?;
    let client = one.client()?;
    // The stand-in is asked.
    let cmd = 0x2080_8159;
    let _ = client.control(rm::SUBDEVICE_HANDLE, cmd, &mut [0; 332]);
    let seen = record(&one, cmd)?;
    equal(
        "reason",
        &seen.reason,
        &RefusalReason::PassedUnseen.number(),
    )?;
    equal("refused calls", &one.get()?.calls_refused, &0)?;
    // It reports what each process does, up to 550.
    let unlisted = 0x2080_a083;
    let made = client.control(rm::SUBDEVICE_HANDLE, unlisted, &mut [0; 8]);
    holds("an unlisted one works", made.is_err())?;
    let seen = record(&one, unlisted)?;
    equal("reason", &seen.reason, &RefusalReason::Unlisted.number())?;
    client.close();
    Ok(())
}

fn storm() -> Verdict {
    let one = Instance::new("storm", GIB)?;
    let client = one.client()?;
    for number in 0..300 {
        let cmd = 0x2080_0F00 + number;
        let made = client.control(rm::SUBDEVICE_HANDLE, cmd, &mut []);
        holds(&format!("{cmd:#x} works"), made.is_err())?;
    }
    let (records, others) = refusals(&one)?;
    equal("kinds", &records.len(), &128)?;
    equal("others", &others, &172)?;
    equal("refused calls", &one.get()?.calls_refused, &300)?;
    client.close();
    Ok(())
}

fn logged() -> Verdict {
    let mut log = crate::standin::KernelLog::from_now();
    let one = Instance::new("logged", GIB)?;
    let client = one.client()?;
    for _ in 0..12 {
        let cmd = 0x2080_110B;
        let made = client.control(rm::SUBDEVICE_HANDLE, cmd, &mut []);
        holds("it works", made.is_err())?;
    }
    let lines = log.lines();
    let of_it = lines.iter().filter(|l| l.contains("FIFO_DISABLE_CHANNELS"));
    equal("lines, for the first and the tenth", &of_it.count(), &2)?;
    client.close();
    Ok(())
}
