// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Every command on a host in memory: what it prints, for people and for programs, how it ends, and
//! what it left behind.

mod apply;
mod bug_report;
mod containers;
mod events;
mod fake;
mod hook;
mod lists;
mod metrics;
mod processes;
mod settings;

use cgpu_fake::H200;
use cgpu_uapi::{
    capability, CallKind, Cause, Limited, Policy, Refusal, RefusalReason, CGPUFS_MOUNT,
};
use cgpuctl::{
    cli::Cli,
    command::top::Key,
    error::Problem,
    exit::Exit,
    host::{Host, PathError},
};
use clap::Parser;
use fake::{errno, Fake, Op};
use insta::{assert_snapshot, with_settings};
use nix::errno::Errno;
use zerocopy::FromZeros;

/// How a command ended and what it wrote.
struct Ran {
    exit: Exit,
    out: String,
    err: String,
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { exit, out, err } = self;
        write!(
            f,
            "exit {} ({exit:?})\n-- stdout\n{out}-- stderr\n{err}",
            exit.code()
        )
    }
}

fn run(fake: &Fake, line: &str) -> Ran {
    let cli = Cli::try_parse_from(["cgpuctl"].into_iter().chain(line.split_whitespace()))
        .unwrap_or_else(|e| panic!("{line}: {e}"));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = cgpuctl::run(&cli, fake, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran {
        exit,
        out: text(out),
        err: text(err),
    }
}

/// Runs a line that must succeed without a word on stderr.
fn done(fake: &Fake, line: &str) -> String {
    let ran = run(fake, line);
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Done, ""), "{line}");
    ran.out
}

/// Runs a line that must fail, as a sentence and nothing else.
fn fails(fake: &Fake, line: &str, exit: Exit) -> String {
    let ran = run(fake, line);
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (exit, ""),
        "{line}: {}",
        ran.err
    );
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    ran.err
}

/// Two GPUs; `train` on both of them, `infer` on the first; `train` is at work on GPU 0.
fn busy_host() -> Fake {
    let fake = Fake::new(2);
    done(
        &fake,
        "inst create train --gpu 0 --gpu 1 --mem 24GiB --weight 30",
    );
    done(&fake, "inst create infer --gpu 0 --mem 8GiB");
    fake.with(|s| {
        s.instances[0].memory_used_bytes = 10 << 30;
        s.instances[0].memory_overhead_bytes = 9_024 << 10;
        s.instances[0].memory_peak_bytes = 12 << 30;
        s.instances[0].memory_refused = 3;
        s.instances[0].calls_refused = 1;
        s.instances[0].memory_managed_bytes = 3 << 30;
        s.instances[0].memory_spilled_bytes = 5 << 30;
        s.instances[0].managed_refused = 2;
        let id = s.instances[0].id;
        let limits = s.limits.get_mut(&id).expect("beside the instance");
        (limits[1].limit, limits[1].is_set) = (2000, 1);
        (limits[1].used, limits[1].refused) = (370, 5);
        s.instances[0].channels = 24;
        s.instances[0].channels_refused = 1;
        s.instances[0].open_files = 2;
        s.instances[0].tenant_open_files = 3;
        s.instances[0].processes = 1;
        s.gpus[0].used_bytes = (13 << 30) + (9_024 << 10);
        s.refusals = (refusals(), 3);
    });
    fake
}

/// The same, and nothing was refused.
fn sober_host() -> Fake {
    let fake = busy_host();
    fake.with(|s| s.refusals = (vec![], 0));
    fake
}

/// Refusals of a program that wanted to draw, and others.
fn refusals() -> Vec<Refusal> {
    let (draw, film) = (capability::GRAPHICS, capability::VIDEO);
    [
        (
            CallKind::Class.number(),
            0xcb97,
            RefusalReason::Capability.number(),
            draw,
            1,
            "HOPPER_A",
        ),
        (
            CallKind::Control.number(),
            0x80_1109,
            RefusalReason::Capability.number(),
            draw | film,
            12,
            "NV0080_CTRL_CMD_GR_GET_CAPS_V2",
        ),
        (
            CallKind::Escape.number(),
            0x41,
            RefusalReason::Forbidden.number(),
            0,
            2,
            "NV_ESC_RM_IDLE_CHANNELS",
        ),
        (
            CallKind::Control.number(),
            0x2080_8777,
            RefusalReason::PassedUnseen.number(),
            0,
            7,
            "",
        ),
        (
            CallKind::Uvm.number(),
            62,
            RefusalReason::Unlisted.number(),
            0,
            1,
            "UVM_TOOLS_READ_PROCESS_MEMORY",
        ),
    ]
    .map(|(kind, number, reason, capabilities, count, name)| {
        let mut record = Refusal::new_zeroed();
        record.kind = kind;
        record.number = number;
        record.reason = reason;
        record.capabilities = capabilities;
        record.count = count;
        record.last_seconds = 1_795_291_201;
        record.last_process = 4711;
        record.name[..name.len()].copy_from_slice(name.as_bytes());
        record
    })
    .to_vec()
}

/// The golden of a command line in both forms.
fn golden(name: &str, make: impl Fn() -> Fake, line: &str) {
    // A host in memory may have files, in a folder of its own.
    let one = |line: &str| {
        let fake = make();
        let mut ran = run(&fake, line);
        let root = fake.root().display().to_string();
        ran.out = ran
            .out
            .replace(&format!("{root}/"), "/")
            .replace(&root, "/");
        ran.err = ran
            .err
            .replace(&format!("{root}/"), "/")
            .replace(&root, "/");
        ran
    };
    let text = one(line);
    let json = one(&format!("{line} --json"));
    assert_eq!(text.exit, json.exit);
    assert_eq!(text.err, json.err);
    let parsed: serde_json::Value = serde_json::from_str(&json.out).expect("one JSON object");
    assert_eq!(parsed["schema"], 1);
    with_settings!({ description => format!("cgpuctl {line}"), omit_expression => true }, {
        assert_snapshot!(format!("{name}.text"), text);
        assert_snapshot!(format!("{name}.json"), json.out);
    });
}

#[test]
fn each_command_prints_its_golden() {
    for (name, line) in [
        ("gpu_list", "gpu list"),
        ("inst_list", "inst list"),
        ("version", "version"),
        ("inst_show", "inst show train"),
        ("inst_show_gpu", "inst show train --gpu 0000:2a:00.0"),
        (
            "inst_create",
            "inst create new --gpu 1 --mem 16GiB --weight 5 --managed deny \
             --capabilities graphics,compute",
        ),
        (
            "inst_create_host_mem",
            "inst create new --gpu 1 --mem 16GiB --host-mem 2GiB",
        ),
        ("inst_create_small", "inst create new --gpu 1 --mem 512MiB"),
        (
            "inst_create_no_device",
            "inst create web- --gpu 1 --mem 2GiB",
        ),
        ("inst_create_tenant", "inst create new --gpu 1,0 --mem 16GB"),
        (
            "inst_set",
            "inst set train --gpu 0,1 --mem 900MiB --weight 40 --priority high --burst 500 \
             --capabilities video,compute --managed charge --channels 200 --clients default --objects 20000 \
             --events 100 --bar1 64MiB --host-mem 8GiB --files 5000 --mappings 64 \
             --exports 2000",
        ),
        ("inst_set_mem", "inst set-mem infer 10GiB"),
        ("inst_set_mem_below", "inst set-mem train 900MiB --gpu 0"),
        (
            "inst_set_weight",
            "inst set-weight train 40 --gpu 0 --gpu 1",
        ),
        (
            "inst_set_managed",
            "inst set-managed train charge --gpu 0 --gpu 1",
        ),
        (
            "inst_set_channels",
            "inst set-channels train 200 --gpu 0 --gpu 1",
        ),
        ("inst_set_limit", "inst set-limit infer objects 20000"),
        ("inst_set_limit_bar1", "inst set-limit infer bar1 64MiB"),
        (
            "inst_set_limit_default",
            "inst set-limit infer clients default",
        ),
        ("inst_set_burst", "inst set-burst train 500 --gpu 0 --gpu 1"),
        ("gpu_set_policy_fair", "gpu set-policy 1 fair"),
        ("gpu_set", "gpu set 1 --period interactive --burst 50"),
        ("gpu_set_all", "gpu set all --policy soft"),
        ("inst_set_caps", "inst set-caps infer video,compute"),
        ("inst_show_refused", "inst show infer --refused"),
        ("inst_destroy", "inst destroy infer"),
        ("inst_mounts", "inst mounts train"),
        ("status", "status"),
        ("unload_in_use", "unload"),
    ] {
        golden(name, busy_host, line);
    }
    golden(
        "inst_show_refused_none",
        sober_host,
        "inst show infer --refused",
    );
    golden("gpu_list_none", || Fake::new(0), "gpu list");
    golden("inst_list_none", || Fake::new(1), "inst list");
    golden("unload_none", || Fake::new(1), "unload");
    let idle = || {
        let fake = Fake::new(1);
        done(&fake, "inst create train --gpu 0 --mem 24GiB");
        fake
    };
    golden("unload", idle, "unload");
    let driverless = || Fake::new(0).fail(Op::Gpus, 0, errno(Cause::DriverMissing));
    let assumed = || {
        let fake = Fake::new(1);
        fake.with(|s| s.assumed = true);
        fake
    };
    golden("status_assumed", assumed, "status");
    golden("status_driver_missing", driverless, "status");
    golden("gpu_list_driver_missing", driverless, "gpu list");
    let unknown = || Fake::new(0).fail(Op::Gpus, 0, errno(Cause::UnknownDriver));
    golden("status_driver_unknown", unknown, "status");
}

#[test]
fn each_format_is_ready_for_its_runtime() {
    let fake = busy_host();
    for format in ["podman", "docker", "containerd"] {
        let text = done(&fake, &format!("inst mounts infer --format {format}"));
        if format == "containerd" {
            let oci: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(oci["mounts"].as_array().map(Vec::len), Some(3));
            assert_eq!(oci["linux"]["resources"]["devices"][0]["minor"], 5);
        } else {
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(
                text.split_whitespace().all(|word| word.starts_with("--")),
                "{text}"
            );
        }
    }
}

#[test]
fn each_cause_has_sentence_and_exit_code() {
    let mut table = String::new();
    for cause in Cause::ALL {
        let fake = busy_host().fail(Op::Create, 0, errno(cause));
        let line = "inst create new --gpu 0 --mem 24GiB";
        let ran = run(&fake, line);
        assert_ne!(ran.exit, Exit::Done, "{cause:?}");
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        table += &format!("{cause:?}: exit {}\n  {}", ran.exit.code(), ran.err);
        // The same cause from a command that has no facts to tell is a sentence too.
        let ran = run(
            &busy_host().fail(Op::Instances, 0, errno(cause)),
            "inst list",
        );
        assert_ne!(ran.exit, Exit::Done, "{cause:?}");
        table += &format!("  {}", ran.err);
    }
    with_settings!({ omit_expression => true }, { assert_snapshot!("causes", table) });
}

#[test]
fn a_refusal_is_one_sentence() {
    let full = H200 - (32u64 << 30);
    let mut table = String::new();
    for (line, exit) in [
        ("inst create train --gpu 0 --mem 1GiB", Exit::Refused),
        ("inst create new --gpu 0 --mem 120GiB", Exit::Refused),
        (
            &format!("inst create new --gpu 0 --mem {}B", full + 1),
            Exit::Refused,
        ),
        ("inst create new --gpu 0 --mem 141GiB", Exit::Refused),
        (
            "inst create new --gpu 0 --mem 141GiB --overcommit",
            Exit::Refused,
        ),
        ("inst create new --gpu 2 --mem 1GiB", Exit::NotFound),
        ("inst create new --gpu 99:00.0 --mem 1GiB", Exit::NotFound),
        ("inst create new --gpu GPU-0000 --mem 1GiB", Exit::NotFound),
        (
            "inst create new --gpu 0 --gpu 29:00.0 --mem 1GiB",
            Exit::Usage,
        ),
        ("inst create train --gpu 1,0 --mem 1GiB", Exit::Refused),
        ("inst show nobody", Exit::NotFound),
        ("inst show infer --gpu 1", Exit::NotFound),
        ("inst mounts nobody", Exit::NotFound),
        ("inst set-mem nobody 1GiB", Exit::NotFound),
        ("inst set-mem train 1GiB", Exit::Usage),
        ("inst set-mem infer 117GiB", Exit::Refused),
        ("inst set-mem infer 141GiB", Exit::Refused),
        ("inst set-weight train 7", Exit::Usage),
        ("inst set-caps train rdma", Exit::Usage),
        ("inst set-caps nobody rdma", Exit::NotFound),
        ("inst destroy train", Exit::Usage),
        ("inst destroy train --gpu 0", Exit::Refused),
        ("inst destroy train --gpu 1,0", Exit::Refused),
        ("inst destroy infer --gpu 1", Exit::NotFound),
        ("unload", Exit::Refused),
    ] {
        let sentence = fails(&busy_host(), line, exit);
        table += &format!("$ cgpuctl {line}\n{sentence}");
    }
    with_settings!({ omit_expression => true }, { assert_snapshot!("refusals", table) });
}

#[test]
fn the_limit_that_a_refusal_names_is_accepted() {
    let fake = busy_host();
    let sentence = fails(&fake, "inst create new --gpu 0 --mem 120GiB", Exit::Refused);
    let size = sentence
        .split("take at most ")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .expect("a size");
    done(&fake, &format!("inst create new --gpu 0 --mem {size}"));
    let sentence = fails(&fake, "inst create huge --gpu 1 --mem 1TiB", Exit::Refused);
    let size = sentence
        .trim_end()
        .split("take at most ")
        .nth(1)
        .expect("a size");
    done(
        &fake,
        &format!("inst create huge --gpu 1 --mem {size} --overcommit"),
    );
}

#[test]
fn limits_add_up_to_the_gpu_exactly() {
    let fake = Fake::new(1);
    done(
        &fake,
        &format!("inst create a --gpu 0 --mem {}B", H200 - (2 << 30)),
    );
    fails(
        &fake,
        &format!("inst create b --gpu 0 --mem {}B", (2u64 << 30) + 1),
        Exit::Refused,
    );
    done(&fake, "inst create b --gpu 0 --mem 2GiB");
    let full = fails(&fake, "inst create c --gpu 0 --mem 1GiB", Exit::Refused);
    assert!(full.contains("all of which is allotted"), "{full}");
    done(&fake, "inst create c --gpu 0 --mem 1GiB --overcommit");
    // An instance's own limit does not stand in its way.
    done(&fake, "inst set-mem a 1GiB");
    done(&fake, "inst set-mem a 2GiB");
}

#[test]
fn tenant_is_made_whole_or_not() {
    let fake = Fake::new(3);
    fake.with(|s| s.gpus[2].memory_bytes = 1 << 30);
    let sentence = fails(&fake, "inst create t --gpu 0,1,2 --mem 8GiB", Exit::Refused);
    assert!(sentence.contains("on GPU 2:"), "{sentence}");
    assert!(sentence.ends_with("; what this command had made on GPUs 0 and 1 was removed again\n"));
    assert_eq!(fake.names(), []);
    assert!(fake.with(|s| s.mounts.is_empty() && !s.mount_point_exists));

    let fake = fake.fail(Op::Destroy, 0, errno(Cause::Busy));
    let sentence = fails(&fake, "inst create t --gpu 0,1,2 --mem 8GiB", Exit::Refused);
    assert!(
        sentence.ends_with("; what this command had made on GPU 1 could not be removed again\n")
    );
    assert_eq!(fake.names(), [("t".to_owned(), 1)]);
}

#[test]
fn an_instance_without_its_host_limit_is_removed() {
    let fake = Fake::new(2).fail(Op::SetLimit, 1, Errno::EIO);
    let line = "inst create t --gpu 0,1 --mem 8GiB --host-mem 2GiB";
    let sentence = fails(&fake, line, Exit::Failed);
    assert!(sentence.contains("on GPU 1:"), "{sentence}");
    assert!(
        sentence.ends_with("on GPUs 0 and 1 was removed again\n"),
        "{sentence}"
    );
    assert_eq!(fake.names(), []);

    let fake = Fake::new(2);
    done(&fake, line);
    let what = Limited::HostMemory.number();
    fake.with(|s| {
        let limits = s.limits.values().flatten().filter(|l| l.what == what);
        let limits: Vec<_> = limits.map(|l| (l.is_set, l.limit)).collect();
        assert_eq!(limits, [(1, 2 << 30); 2]);
    });
}

#[test]
fn interrupted_change_says_what_was_done() {
    let fake = busy_host().fail(Op::SetWeight, 1, Errno::EIO);
    let sentence = fails(&fake, "inst set-weight train 9 --gpu 1,0", Exit::Failed);
    assert!(
        sentence.ends_with("; on GPU 1 it was set before\n"),
        "{sentence}"
    );
    let weights = fake.with(|s| [s.instances[0].weight, s.instances[1].weight]);
    assert_eq!(weights, [30, 9]);
}

#[test]
fn create_mounts_cgpufs_once() {
    let fake = Fake::new(1);
    done(&fake, "inst create a --gpu 0 --mem 1GiB");
    done(&fake, "inst create b --gpu 0 --mem 1GiB");
    let mounts = || fake.with(|s| s.mounts.clone());
    assert_eq!(mounts(), [std::path::Path::new(CGPUFS_MOUNT)]);
    fails(&fake, "inst create b --gpu 0 --mem 1GiB", Exit::Refused);
    assert_eq!(mounts().len(), 1);

    let fake = Fake::new(1).fail(Op::Mount, 0, Errno::EINVAL);
    let sentence = fails(&fake, "inst create a --gpu 0 --mem 1GiB", Exit::Failed);
    assert!(
        sentence.contains("mounting cgpufs at /run/cgpu/dev failed"),
        "{sentence}"
    );
    assert_eq!(fake.names(), []);
}

#[test]
fn missing_module_and_missing_rights_differ() {
    for line in [
        "gpu list",
        "inst list",
        "inst create a --gpu 0 --mem 1GiB",
        "status",
        "unload",
    ] {
        for (errno, exit) in [
            (Errno::ENOENT, Exit::NotLoaded),
            (Errno::ENXIO, Exit::NotLoaded),
            (Errno::ENODEV, Exit::NotLoaded),
            (Errno::EPERM, Exit::NotPermitted),
            (Errno::EACCES, Exit::NotPermitted),
            (Errno::EMFILE, Exit::Failed),
        ] {
            fails(&Fake::new(1).fail(Op::Open, 0, errno), line, exit);
        }
    }
    // An errno that is a cause of an ioctl means something else when the device is opened.
    assert_eq!(
        Cause::from_errno(Errno::ENXIO as i32),
        Some(Cause::NoSuchGpu)
    );
}

#[test]
fn root_is_told_which_path_is_closed() {
    for errno in [Errno::EPERM, Errno::EACCES] {
        let error = PathError {
            action: "making the folder",
            path: "/run/cgpu".into(),
            errno,
        };
        let root = Problem::of_path(error.clone(), true);
        let said = format!("making the folder /run/cgpu failed: {errno:?}");
        assert!(root.to_string().starts_with(&said), "{root}");
        let user = Problem::of_path(error, false);
        assert_eq!(user, Problem::NotPermitted);
        assert_eq!((root.exit(), root.slug()), (user.exit(), user.slug()));
    }
}

#[test]
fn unload_leaves_nothing_or_everything() {
    let idle = || {
        let fake = Fake::new(1);
        done(&fake, "inst create a --gpu 0 --mem 1GiB");
        fake
    };
    let fake = idle();
    done(&fake, "unload");
    assert!(fake.with(|s| s.unloaded && s.mounts.is_empty() && !s.mount_point_exists));

    // Mounted over itself, as by hand.
    let fake = idle();
    fake.with(|s| s.mounts.push(CGPUFS_MOUNT.into()));
    done(&fake, "unload");

    // A container holds a proxy node: the kernel refuses, the mount is back, the instance is still
    // there.
    let fake = idle();
    let held = fake.control().expect("open");
    fails(&fake, "unload", Exit::Refused);
    drop(held);
    assert_eq!(fake.names(), [("a".to_owned(), 0)]);
    assert_eq!(fake.with(|s| s.mounts.len()), 1);

    // A program that has the control device open for a moment holds nothing up.
    for errno in [Errno::EAGAIN, Errno::EBUSY] {
        let fake = idle().fail(Op::Unload, 0, errno).fail(Op::Unload, 1, errno);
        done(&fake, "unload");
        assert!(fake.with(|s| s.unloaded && s.mounts.is_empty()));
    }

    // Somebody sits in the folder.
    let fake = idle().fail(Op::Unmount, 0, Errno::EBUSY);
    fails(&fake, "unload", Exit::Refused);
    assert!(fake.with(|s| !s.unloaded && s.mounts.len() == 1));

    // A proxy node is bind-mounted where we see it.
    let fake = idle();
    fake.with(|s| s.mounts.push("/srv/x/nvidia0".into()));
    let sentence = fails(&fake, "unload", Exit::Refused);
    assert!(
        sentence.contains("mounted at /srv/x/nvidia0;"),
        "{sentence}"
    );
    assert!(fake.with(|s| !s.unloaded && s.mounts.len() == 2));

    fails(
        &idle().fail(Op::Unload, 0, Errno::EPERM),
        "unload",
        Exit::NotPermitted,
    );
    fails(
        &idle().fail(Op::Unload, 0, Errno::ENOENT),
        "unload",
        Exit::NotLoaded,
    );
}

#[test]
fn a_failure_is_a_json_object_too() {
    let ran = run(&busy_host(), "--json inst create train --gpu 0 --mem 1GiB");
    let json: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let error = &json["error"];
    assert_eq!(json["schema"], 1);
    assert_eq!(error["cause"], "name_taken");
    assert_eq!(error["exit_code"], ran.exit.code());
    assert_eq!(
        format!("cgpuctl: {}\n", error["message"].as_str().expect("text")),
        ran.err
    );
}

#[test]
fn closed_pipe_succeeds_and_full_disk_fails() {
    struct Sink(std::io::ErrorKind);
    impl std::io::Write for Sink {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let cli = Cli::try_parse_from(["cgpuctl", "gpu", "list"]).expect("valid");
    for (kind, exit) in [
        (std::io::ErrorKind::BrokenPipe, Exit::Done),
        (std::io::ErrorKind::StorageFull, Exit::Failed),
    ] {
        let ended = cgpuctl::run(&cli, &Fake::new(1), &mut Sink(kind), &mut Vec::new());
        assert_eq!(ended, exit);
    }
}

#[test]
fn no_control_device_is_left_open() {
    let fake = busy_host();
    for line in [
        "gpu list",
        "inst list",
        "status",
        "inst mounts train",
        "inst destroy nobody",
    ] {
        run(&fake, line);
        assert_eq!(fake.with(|s| s.open), 0, "{line}");
    }
}

/// Two GPUs, whose instances have been given compute time.
fn sharing_host() -> Fake {
    let fake = busy_host();
    fake.with(|s| {
        for compute in s.compute.values_mut() {
            compute.state |= cgpu_uapi::state::WORKING;
            compute.preemptions = 7;
            compute.blocked_ns = 1_500_000_000;
            compute.blocked_tasks = 1;
        }
    });
    fake
}

#[test]
fn compute_is_shared_as_told() {
    golden(
        "gpu_set_policy",
        busy_host,
        "gpu set-policy 0 4 --period throughput --max-instances 4 --priority-percent 60",
    );
    golden(
        "inst_set_priority",
        busy_host,
        "inst set-priority train high --gpu 0,1",
    );
    golden("inst_suspend", busy_host, "inst suspend infer");
    golden("inst_resume", busy_host, "inst resume infer");
    golden("top", sharing_host, "top");
    golden("top_none", || Fake::new(1), "top --once");
}

/// Both GPUs are left to the driver, and all instances have the weight that nobody chose.
fn unshared_host() -> Fake {
    let fake = busy_host();
    fake.with(|s| {
        for gpu in s.gpu_compute.values_mut() {
            gpu.policy = Policy::Native.number();
        }
        for instance in &mut s.instances {
            instance.weight = cgpu_uapi::WEIGHT_DEFAULT;
        }
    });
    fake
}

#[test]
fn a_setting_without_its_effect_draws_a_warning() {
    for (name, line) in [
        ("inst_set_weight_native", "inst set-weight train 30 --gpu 1"),
        (
            "inst_create_weight_native",
            "inst create new --gpu 1 --mem 8Gi --weight 30",
        ),
        ("gpu_set_policy_fixed", "gpu set-policy 1 fixed"),
        (
            "gpu_set_native",
            "gpu set 1 --period interactive --burst 50 --priority-percent 60",
        ),
        (
            "inst_set_native",
            "inst set train --gpu 1 --priority high --burst 50",
        ),
        ("inst_set_burst_native", "inst set-burst infer 0"),
    ] {
        golden(name, unshared_host, line);
    }
    // Defaults have no effect that could be missed.
    for line in [
        "gpu set 1 --policy native",
        "gpu set 1 --period latency --burst 200 --priority-percent 80",
        "gpu set 1 --max-instances 4",
        "inst set train --gpu 1 --priority normal --burst gpu",
    ] {
        done(&unshared_host(), line);
    }
    let fixed = || {
        let fake = Fake::new(1);
        run(&fake, "gpu set-policy 0 fixed");
        fake
    };
    golden(
        "inst_create_fixed",
        fixed,
        "inst create new --gpu 0 --mem 8Gi",
    );
}

#[test]
fn compute_settings_reach_the_module_as_written() {
    let fake = busy_host();
    done(&fake, "gpu set-policy 0 weight");
    done(
        &fake,
        "gpu set-policy 0 soft --period throughput --prio-ratio 33",
    );
    let gpu = fake.with(|s| s.gpu_compute[&0]);
    assert_eq!((gpu.policy, gpu.period, gpu.priority_percent), (4, 1, 33));
    assert_eq!(gpu.max_instances, 16);
    // The names that these options had once.
    done(&fake, "gpu set-policy 1 fixed --max-inst 5 --prio-ratio 40");
    let gpu = fake.with(|s| s.gpu_compute[&1]);
    let set = (gpu.policy, gpu.max_instances, gpu.priority_percent);
    assert_eq!(set, (3, 5, 40));
    done(&fake, "gpu set-policy 1 fixed --burst 1000");
    assert_eq!(fake.with(|s| s.gpu_compute[&1].burst_ms), 1000);
    let burst = |fake: &Fake| {
        let bursts = fake.with(|s| s.compute.values().map(|c| c.burst_ms).collect::<Vec<_>>());
        bursts
            .into_iter()
            .filter(|burst| *burst != cgpu_uapi::BURST_OF_GPU)
            .collect::<Vec<_>>()
    };
    done(&fake, "inst set-burst infer 50");
    assert_eq!(burst(&fake), [50]);
    done(&fake, "inst set-burst infer gpu");
    assert!(burst(&fake).is_empty());
    done(&fake, "inst set-priority infer high");
    done(&fake, "inst suspend infer");
    let state = |fake: &Fake| {
        let infer = fake.with(|s| {
            s.compute
                .values()
                .find(|c| c.key.name.as_str() == Some("infer"))
                .copied()
        });
        infer.expect("is there").state
            & (cgpu_uapi::state::HIGH_PRIORITY | cgpu_uapi::state::SUSPENDED)
    };
    assert_eq!(state(&fake), 3);
    done(&fake, "inst resume infer");
    assert_eq!(state(&fake), 1);
    done(&fake, "inst set-priority infer normal");
    assert_eq!(state(&fake), 0);
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let fake = busy_host();
    done(&fake, "inst set-weight infer 80");
    let said = fails(&fake, "gpu set-policy 0 fixed", Exit::Refused);
    assert!(said.contains("(30 and 80)"), "{said}");
    assert_eq!(fake.with(|s| s.gpu_compute[&0].policy), 2);
    fails(&fake, "gpu set-policy 7 fixed", Exit::NotFound);
    fails(&fake, "inst suspend nobody", Exit::NotFound);
}

/// A screen that notes what is drawn, and presses keys; where it presses none, time passes.
struct KeyScreen {
    host: Fake,
    frames: Vec<String>,
    keys: Vec<Option<Key>>,
}

impl cgpuctl::command::top::Screen for KeyScreen {
    fn draw(&mut self, frame: &str) -> std::io::Result<()> {
        self.frames.push(frame.to_owned());
        Ok(())
    }

    fn key(&mut self, wait: std::time::Duration) -> std::io::Result<Option<Key>> {
        let key = self.keys.remove(0);
        if key.is_none() {
            self.host.pause(wait);
        }
        Ok(key)
    }
}

#[test]
fn the_live_view_refreshes_and_sorts_and_ends() {
    let fake = sharing_host();
    let control = fake.control().expect("opens");
    let keys = [None, Some(Key::Name), Some(Key::Reverse), Some(Key::Quit)];
    let mut screen = KeyScreen {
        host: fake.clone(),
        frames: vec![],
        keys: keys.to_vec(),
    };
    let interval = std::time::Duration::from_secs(1);
    cgpuctl::command::top::live(&*control, interval, &mut screen).expect("ends");
    let first = |frame: &String| {
        let mut lines = frame.lines().skip_while(|line| !line.starts_with("NAME"));
        lines
            .nth(1)
            .expect("an instance")
            .split_whitespace()
            .next()
            .map(str::to_owned)
    };
    let names: Vec<_> = screen.frames.iter().map(first).collect();
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(
        names,
        // Before any time has passed nobody has a share: by name.
        [
            named("infer"),
            named("train"),
            named("infer"),
            named("train")
        ]
    );
    assert_ne!(screen.frames[0], screen.frames[1]);
    assert!(screen.frames[1].contains("27.0 %"), "{}", screen.frames[0]);
}

/// Each key of the terminal orders the instances: no two orders are alike here.
#[test]
fn live_view_sorts_by_its_keys() {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    let fake = Fake::new(1);
    for (name, weight) in [("a", 10), ("b", 30), ("c", 40), ("d", 20)] {
        let create = format!("inst create {name} --gpu 0 --mem 8GiB --weight {weight}");
        done(&fake, &create);
    }
    // Of those that work each has a share as large as its weight.
    fake.with(|s| {
        for compute in s.compute.values_mut() {
            if compute.key.name.as_str() != Some("c") {
                compute.state |= cgpu_uapi::state::WORKING;
            }
        }
        for (instance, memory) in s.instances.iter_mut().zip([3, 1, 2, 4]) {
            instance.memory_used_bytes = memory << 30;
        }
    });
    let control = fake.control().expect("opens");
    let of = |code, modifiers| Key::of(&KeyEvent::new(code, modifiers));
    let key = |c: char| of(KeyCode::Char(c), KeyModifiers::NONE);
    let keys = ['n', 's', 'm', 'w', 'r', 's'].map(key);
    assert!(keys.iter().all(Option::is_some));
    let mut screen = KeyScreen {
        host: fake.clone(),
        frames: vec![],
        keys: [[None].as_slice(), &keys, &[key('q')]].concat(),
    };
    let interval = std::time::Duration::from_secs(1);
    cgpuctl::command::top::live(&*control, interval, &mut screen).expect("ends");
    let order = |frame: &String| {
        let rows = frame.lines().skip_while(|line| !line.starts_with("NAME"));
        let rows = rows.skip(1).take_while(|line| !line.is_empty());
        let names = rows.filter_map(|line| line.split_whitespace().next().map(str::to_owned));
        names.collect::<String>()
    };
    let orders: Vec<_> = screen.frames.iter().map(order).collect();
    // At first nobody has a share; the order stays turned round.
    let wanted = [
        "abcd", "bdac", "abcd", "bdac", "dacb", "cbda", "adbc", "cadb",
    ];
    assert_eq!(orders, wanted);
    for (end, modifiers) in [
        (KeyCode::Char('q'), KeyModifiers::NONE),
        (KeyCode::Esc, KeyModifiers::NONE),
        (KeyCode::Char('c'), KeyModifiers::CONTROL),
    ] {
        assert_eq!(of(end, modifiers), Some(Key::Quit));
    }
    assert_eq!(key('c'), None);
    assert_eq!(key('x'), None);
}
