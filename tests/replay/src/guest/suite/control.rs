// SPDX-License-Identifier: GPL-2.0
//! The control device: who may use it, what it checks, and the errno of each cause.

use cgpu_uapi::{self as uapi, request, Cause};
use zerocopy::FromZeros;

use crate::{
    control::{key, Control},
    facts,
    guest::{
        instance::Instance,
        process::{drop_admin, in_child, unshare},
        tools::{at, control, equal, fails, holds, sys, tests, Verdict, GIB, GPU, MIB},
    },
    standin, sys as os,
};

tests! {
    "control: version and list of GPUs" => version_and_gpus;
    "control: needs CAP_SYS_ADMIN" => needs_admin;
    "control: needs the initial user namespace" => needs_namespace;
    "control: unknown commands and sizes are ENOTTY" => unknown_commands;
    "control: reserved fields must be zero" => reserved_fields;
    "control: every cause has its errno" => causes;
    "control: limits add up to the GPU at most" => overcommit;
    "control: an instance as it was asked for" => instance_values;
    "control: lists say how many there are" => lists;
    "control: 64 instances on a GPU and no more" => sixty_four;
    "control: no instance without the driver's kernel interface" => no_kernel_interface;
}

fn version_and_gpus() -> Verdict {
    let control = control()?;
    let gpus = sys("list", control.gpus())?;
    holds("no GPU", !gpus.is_empty())?;
    for gpu in &gpus {
        holds("no memory", gpu.memory_bytes >= GIB)?;
        let uuid = uapi::text(&gpu.uuid);
        holds("no UUID", uuid.starts_with("GPU-") && uuid.len() == 40)?;
        holds("no PCI address", uapi::text(&gpu.pci).len() == 12)?;
        equal("max_instances", &gpu.max_instances, &16)?;
        equal("free_weight", &gpu.free_weight, &100)?;
        equal("instances", &gpu.instances, &0)?;
    }
    let version = sys("version", control.version())?;
    equal("ABI", &version.abi, &uapi::ABI_VERSION)?;
    holds("no version", !uapi::text(&version.module).is_empty())?;
    equal("driver", &uapi::text(&version.driver), &&*facts::release())?;
    equal("branch", &version.branch, &facts::branch())
}

fn needs_admin() -> Verdict {
    let open = control()?;
    in_child(|| {
        sys("capset", drop_admin())?;
        let opened = Control::open().map(drop);
        fails("open", opened, libc::EPERM)?;
        // A descriptor that came from someone who may does not help.
        fails("version", open.version().map(drop), libc::EPERM)?;
        fails("create", open.create("x", GPU, GIB, 1), libc::EPERM)
    })
}

fn needs_namespace() -> Verdict {
    let open = control()?;
    in_child(|| {
        sys("unshare", unshare(libc::CLONE_NEWUSER))?;
        holds("open works", Control::open().is_err())?;
        fails("version", open.version().map(drop), libc::EPERM)
    })
}

fn unknown_commands() -> Verdict {
    let control = control()?;
    let mut zeros = [0_u64; 64];
    for code in [
        request::VERSION + 0x20,
        request::VERSION + (1 << 16),
        request::INSTANCE_GET - (8 << 16),
        0xC0FF_C67F,
        0x5401,
    ] {
        let what = format!("{code:#x}");
        fails(&what, control.call(code, &mut zeros), libc::ENOTTY)?;
    }
    Ok(())
}

fn reserved_fields() -> Verdict {
    let instance = Instance::new("reserved", GIB)?;
    let control = &instance.control;
    let bad = Cause::Malformed.errno();
    let mut dirty = key("reserved", GPU);
    dirty.reserved[0] = 1;
    fails(
        "destroy",
        control.call(request::INSTANCE_DESTROY, &mut dirty),
        bad,
    )?;
    let mut dirty = key("reserved", GPU);
    dirty.reserved[1] = 1;
    fails(
        "destroy",
        control.call(request::INSTANCE_DESTROY, &mut dirty),
        bad,
    )?;
    let mut get = uapi::InstanceGet::new_zeroed();
    get.key = dirty;
    fails("get", control.call(request::INSTANCE_GET, &mut get), bad)?;
    let mut create = uapi::InstanceCreate::new_zeroed();
    create.key = key("other", GPU);
    create.memory_limit_bytes = GIB;
    create.weight = 1;
    create.flags = 2;
    fails(
        "create",
        control.call(request::INSTANCE_CREATE, &mut create),
        bad,
    )?;
    create.flags = 0;
    create.reserved[6] = 1 << 31;
    fails(
        "create",
        control.call(request::INSTANCE_CREATE, &mut create),
        bad,
    )?;
    let mut memory = uapi::InstanceSetMemory::new_zeroed();
    memory.key = key("reserved", GPU);
    memory.memory_limit_bytes = GIB;
    memory.flags = 1 << 31;
    fails(
        "set-mem",
        control.call(request::INSTANCE_SET_MEMORY, &mut memory),
        bad,
    )?;
    let mut weight = uapi::InstanceSetWeight::new_zeroed();
    weight.key = key("reserved", GPU);
    weight.weight = 1;
    weight.reserved[0] = 1;
    fails(
        "set-weight",
        control.call(request::INSTANCE_SET_WEIGHT, &mut weight),
        bad,
    )?;
    let mut list = uapi::RecordList::new_zeroed();
    list.record_size = 8;
    fails("list", control.call(request::GPU_LIST, &mut list), bad)?;
    fails("list", control.call(request::INSTANCE_LIST, &mut list), bad)
}

fn causes() -> Verdict {
    let instance = Instance::new("causes", GIB)?;
    let c = &instance.control;
    let memory = sys("gpus", c.gpus())?.first().map_or(0, |g| g.memory_bytes);
    let cause =
        |what: &str, result: Result<(), i32>, cause: Cause| fails(what, result, cause.errno());
    let create = |name: &str, gpu, limit, weight| c.create(name, gpu, limit, weight).map(drop);
    cause("taken", create("causes", GPU, GIB, 1), Cause::NameTaken)?;
    cause("no GPU", create("x", 99, GIB, 1), Cause::NoSuchGpu)?;
    cause("zero", create("x", GPU, 0, 1), Cause::LimitZero)?;
    cause(
        "too large",
        create("x", GPU, memory + 1, 1),
        Cause::LimitAboveGpu,
    )?;
    cause(
        "sum too large",
        create("x", GPU, memory, 1),
        Cause::LimitsAboveGpu,
    )?;
    cause(
        "weight 0",
        create("x", GPU, GIB, 0),
        Cause::WeightOutOfRange,
    )?;
    cause(
        "weight 101",
        create("x", GPU, GIB, 101),
        Cause::WeightOutOfRange,
    )?;
    for name in ["", ".", "a/b", "a b", &"n".repeat(uapi::NAME_LEN)] {
        cause(name, create(name, GPU, GIB, 1), Cause::BadName)?;
    }
    // An instance's folder stands beside the files of its GPU.
    let files = format!("/proc/cgpu_km/{GPU}");
    let files = at(&files, std::fs::read_dir(&files))?;
    for file in files
        .filter_map(Result::ok)
        .filter(|file| file.path().is_file())
    {
        let name = file.file_name().into_string().unwrap_or_default();
        cause(&name, create(&name, GPU, GIB, 1), Cause::BadName)?;
    }
    cause("get", c.get("none", GPU).map(drop), Cause::NoSuchInstance)?;
    cause("destroy", c.destroy("none", GPU), Cause::NoSuchInstance)?;
    cause(
        "set-mem",
        c.set_memory("none", GPU, GIB),
        Cause::NoSuchInstance,
    )?;
    cause(
        "set-weight",
        c.set_weight("none", GPU, 1),
        Cause::NoSuchInstance,
    )?;
    cause(
        "set-mem 0",
        c.set_memory("causes", GPU, 0),
        Cause::LimitZero,
    )?;
    cause(
        "set-mem",
        c.set_memory("causes", GPU, memory + 1),
        Cause::LimitAboveGpu,
    )?;
    cause(
        "set-weight",
        c.set_weight("causes", GPU, 101),
        Cause::WeightOutOfRange,
    )?;
    sys("any", c.get("causes", uapi::GPU_ANY))?;
    let path = format!("{}/nvidiactl", instance.folder());
    let fd = sys("open", os::open(&path, libc::O_RDWR))?;
    cause("busy", c.destroy("causes", GPU), Cause::Busy)?;
    sys("close", os::close(fd))
}

fn overcommit() -> Verdict {
    let c = control()?;
    let memory = sys("gpus", c.gpus())?.first().map_or(0, |g| g.memory_bytes);
    let first = Instance::new("over-a", memory / 2)?;
    let rest = memory - memory / 2;
    fails(
        "more",
        c.create("over-b", GPU, rest + MIB, 1),
        Cause::LimitsAboveGpu.errno(),
    )?;
    let second = Instance::new("over-b", rest)?;
    fails(
        "set-mem",
        c.set_memory("over-a", GPU, memory / 2 + MIB),
        Cause::LimitsAboveGpu.errno(),
    )?;
    let gpus = sys("gpus", c.gpus())?;
    equal(
        "allotted",
        &gpus.first().map_or(0, |g| g.allotted_bytes),
        &memory,
    )?;
    let mut create = uapi::InstanceCreate::new_zeroed();
    create.key = key("over-c", GPU);
    create.memory_limit_bytes = memory;
    create.weight = 1;
    create.flags = uapi::FLAG_OVERCOMMIT;
    sys("overcommit", c.call(request::INSTANCE_CREATE, &mut create))?;
    sys("destroy", c.destroy("over-c", GPU))?;
    drop((first, second));
    let gpus = sys("gpus", c.gpus())?;
    equal(
        "allotted",
        &gpus.first().map_or(1, |g| g.allotted_bytes),
        &0,
    )
}

fn instance_values() -> Verdict {
    let c = control()?;
    let id = sys("create", c.create("values", GPU, 3 * GIB, 7))?;
    let seen = sys("get", c.get("values", GPU))?;
    equal("id", &seen.id, &id)?;
    equal("weight", &seen.weight, &7)?;
    equal("limit", &seen.memory_limit_bytes, &(3 * GIB))?;
    let charged = [
        seen.memory_used_bytes,
        seen.memory_overhead_bytes,
        seen.memory_reserved_bytes,
        seen.memory_peak_bytes,
        seen.memory_refused,
        u64::from(seen.open_files),
        u64::from(seen.tenant_open_files),
        u64::from(seen.processes),
    ];
    equal("charges", &charged, &[0; 8])?;
    sys("set-weight", c.set_weight("values", GPU, 99))?;
    sys("set-mem", c.set_memory("values", GPU, GIB))?;
    let seen = sys("get", c.get("values", uapi::GPU_ANY))?;
    equal("weight", &seen.weight, &99)?;
    equal("limit", &seen.memory_limit_bytes, &GIB)?;
    sys("destroy", c.destroy("values", GPU))?;
    let again = sys("create", c.create("values", GPU, GIB, 1))?;
    holds("a number was given twice", again > id)?;
    sys("destroy", c.destroy("values", GPU))
}

fn lists() -> Verdict {
    let one = Instance::new("list-a", GIB)?;
    let _two = Instance::new("list-b", GIB)?;
    let mut record = uapi::Instance::new_zeroed();
    let mut list = uapi::RecordList {
        records: std::ptr::from_mut(&mut record) as u64,
        capacity: 1,
        count: 0,
        record_size: u32::try_from(size_of::<uapi::Instance>()).unwrap_or(0),
        reserved: [0; 5],
    };
    sys("list", one.control.call(request::INSTANCE_LIST, &mut list))?;
    equal("count", &list.count, &2)?;
    holds("nothing written", record.key.name.as_str().is_some())?;
    list.records = 0;
    list.capacity = 0;
    sys("list", one.control.call(request::INSTANCE_LIST, &mut list))?;
    equal("count", &list.count, &2)?;
    list.records = 8;
    list.capacity = 2;
    fails(
        "bad address",
        one.control.call(request::INSTANCE_LIST, &mut list),
        libc::EFAULT,
    )?;
    let all = sys("list", one.control.instances())?;
    let mut names: Vec<_> = all.iter().filter_map(|i| i.key.name.as_str()).collect();
    names.sort_unstable();
    equal("names", &names, &vec!["list-a", "list-b"])
}

fn sixty_four() -> Verdict {
    let c = control()?;
    let name = |i: usize| format!("many-{i}");
    let mut result = Ok(());
    for i in 0..uapi::MAX_INSTANCES_PER_GPU {
        result = sys(&name(i), c.create(&name(i), GPU, 16 * MIB, 1).map(drop));
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        let more = c.create("many-more", GPU, 16 * MIB, 1);
        result = fails("one more", more, Cause::TooMany.errno());
    }
    for i in 0..uapi::MAX_INSTANCES_PER_GPU {
        let _ = c.destroy(&name(i), GPU);
    }
    result
}

/// It is looked for when a GPU gets its first instance.
fn no_kernel_interface() -> Verdict {
    let control = control()?;
    standin::kernel_rmapi(false)?;
    let made = control.create("apart", GPU, GIB, 1);
    standin::kernel_rmapi(true)?;
    fails("create", made, Cause::NoKernelInterface.errno())?;
    let instance = Instance::new("apart", GIB)?;
    let client = instance.client()?;
    client.close();
    Ok(())
}
