// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `doctor` on hosts in memory: a sound one, and one for every thing that can be wrong.

#[expect(dead_code, reason = "it serves the other commands too")]
mod fake;

use cgpu_uapi::{Cause, Instance, CGPUFS_MOUNT};
use cgpuctl::{
    doctor::{examine, Finding, FindingState},
    exit::Exit,
    host::FileStatus,
};
use fake::{errno, Fake, Op, PREFLIGHT};
use insta::assert_snapshot;
use nix::errno::Errno;
use std::path::{Path, PathBuf};
use zerocopy::FromZeros as _;

const DEVTMPFS: u64 = 6;
const CGPUFS: u64 = 0x2b;

/// A character device of this number in a filesystem.
fn node(device: u64, major: u64, minor: u64, mode: u32) -> FileStatus {
    FileStatus {
        device,
        mode: 0o020_000 | mode,
        is_char_device: true,
        major,
        minor,
        ..FileStatus::default()
    }
}

/// A program of this user.
fn program(uid: u32) -> FileStatus {
    FileStatus {
        mode: 0o100_755,
        uid,
        ..FileStatus::default()
    }
}

fn text(fake: &Fake, path: &str, text: &str) {
    fake.with(|s| s.texts.insert(path.into(), text.to_owned()));
}

fn status(fake: &Fake, path: &str, status: FileStatus) {
    fake.with(|s| s.statuses.insert(path.into(), status));
}

/// A host on which everything is as it must be, with one program in a container.
fn sound() -> Fake {
    let fake = Fake::new(1)
        .with_driver()
        .file("/usr/local/sbin/cgpu-hook", "");
    for name in ["cgpu-create.json", "cgpu-remove.json"] {
        let hook = r#"{"hook": {"path": "/usr/local/sbin/cgpu-hook"}}"#;
        text(
            &fake,
            &format!("/usr/share/containers/oci/hooks.d/{name}"),
            hook,
        );
    }
    text(&fake, PREFLIGHT, "");
    text(&fake, "/proc/sys/kernel/osrelease", "7.2.12\n");
    text(&fake, "/lib/modules/7.2.12/build/Makefile", "");
    fake.with(|s| s.mounts.push(PathBuf::from(CGPUFS_MOUNT)));
    text(
        &fake,
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: x\n",
    );
    text(
        &fake,
        "/proc/driver/nvidia/params",
        "Mobile: 0\nModifyDeviceFiles: 1\n",
    );
    text(
        &fake,
        "/proc/devices",
        "Character devices:\n195 nvidia\n509 nvidia-uvm\n",
    );
    for (path, major, minor) in [
        ("/dev/nvidia0", 195, 0),
        ("/dev/nvidiactl", 195, 255),
        ("/dev/nvidia-uvm", 509, 0),
    ] {
        status(&fake, path, node(DEVTMPFS, major, minor, 0o600));
    }
    status(&fake, "/dev/null", node(DEVTMPFS, 1, 3, 0o666));
    let folder = |device, mode: u32| FileStatus {
        device,
        mode: 0o040_000 | mode,
        ..FileStatus::default()
    };
    status(&fake, "/run/cgpu", folder(7, 0o700));
    status(&fake, CGPUFS_MOUNT, folder(CGPUFS, 0o755));
    // Holds proxy nodes, and something else.
    text(&fake, "/proc/41/comm", "python3\n");
    status(&fake, "/proc/41/fd/3", node(CGPUFS, 195, 0, 0o666));
    status(&fake, "/proc/41/fd/4", node(CGPUFS, 509, 0, 0o666));
    status(&fake, "/proc/41/fd/5", node(DEVTMPFS, 1, 3, 0o666));
    // Holds the real ones, as it should.
    text(&fake, "/proc/42/comm", "nvidia-persiste\n");
    text(&fake, "/proc/42/exe", "/usr/bin/nvidia-persistenced");
    status(&fake, "/proc/42/exe", program(0));
    status(&fake, "/proc/42/fd/3", node(DEVTMPFS, 195, 255, 0o600));
    fake
}

/// The findings that are not sound: there must be exactly one.
fn only(fake: &Fake) -> Finding {
    let mut bad: Vec<_> = examine(fake)
        .into_iter()
        .filter(|f| f.state != FindingState::Ok)
        .collect();
    assert_eq!(bad.len(), 1, "{bad:#?}");
    let bad = bad.remove(0);
    assert!(!bad.fix.is_empty(), "{bad:?}");
    bad
}

#[test]
fn a_sound_host_has_nothing_to_fix() {
    let findings = examine(&sound());
    assert!(
        findings.iter().all(|f| f.state == FindingState::Ok),
        "{findings:#?}"
    );
    // Nothing that is no device of the driver's is looked at.
    assert_eq!(findings.iter().filter(|f| f.check == "nodes").count(), 3);
    assert!(findings.iter().all(|f| f.fix.is_empty()));
}

#[test]
fn a_node_that_others_can_open_is_found() {
    let fake = sound();
    status(&fake, "/dev/nvidia0", node(DEVTMPFS, 195, 0, 0o666));
    let bad = only(&fake);
    assert_eq!((bad.check, bad.state), ("nodes", FindingState::Warning));
    assert_eq!(bad.subject, "/dev/nvidia0");
    assert_eq!(bad.found, "195:0, mode 0666, owner 0");
    // A node of any name counts.
    let fake = sound();
    status(&fake, "/dev/copy", node(DEVTMPFS, 195, 0, 0o644));
    assert_eq!(only(&fake).subject, "/dev/copy");
}

#[test]
fn weights_under_native_are_found() {
    let host = |policy: u32, weights: &[u32]| {
        let fake = sound();
        fake.with(|s| {
            s.gpu_compute.get_mut(&0).expect("a GPU").policy = policy;
            for (id, weight) in (0..).zip(weights) {
                let mut instance = Instance::new_zeroed();
                (instance.id, instance.weight) = (id, *weight);
                s.instances.push(instance);
            }
        });
        fake
    };
    let found = |policy, weights: &[u32]| {
        let all = examine(&host(policy, weights)).into_iter();
        let found: Vec<_> = all.filter(|f| f.check == "weights").collect();
        assert!(found.len() < 2, "{found:#?}");
        found.into_iter().next()
    };
    for (weights, said) in [
        (
            &[1, 30][..],
            "policy native; weights 1 to 30 have no effect",
        ),
        (&[30, 30], "policy native; weight 30 has no effect"),
        (&[100], "policy native; weight 100 has no effect"),
    ] {
        let bad = found(5, weights).expect("a finding");
        assert_eq!(
            (bad.state, bad.found.as_str()),
            (FindingState::Warning, said)
        );
        assert_eq!(bad.fix, "cgpuctl gpu set 0 --policy weight");
        let printed = format!("warning  weights  {}: {}", bad.subject, bad.found);
        assert!(printed.len() <= 80, "{printed}");
    }
    for (policy, weights) in [(5, &[1, 1][..]), (2, &[1, 30]), (3, &[1, 30])] {
        let good = found(policy, weights).expect("a finding");
        assert_eq!(good.state, FindingState::Ok, "{good:?}");
    }
    assert_eq!(found(5, &[]), None);
}

/// A device program, as runc makes them: character devices of these major numbers, nothing else.
/// `extra` comes first.
fn device_program(extra: &[u64], majors: &[i32]) -> Vec<u64> {
    let instruction = |code: u8, registers: u8, offset: i16, value: i32| {
        let ([o0, o1], [v0, v1, v2, v3]) = (offset.to_le_bytes(), value.to_le_bytes());
        u64::from_le_bytes([code, registers, o0, o1, v0, v1, v2, v3])
    };
    let mut code = extra.to_vec();
    code.push(instruction(0x61, 0x12, 0, 0));
    code.push(instruction(0x54, 0x02, 0, 0xffff));
    code.push(instruction(0x61, 0x14, 4, 0));
    for &major in majors {
        code.push(instruction(0x55, 0x02, 3, 2));
        code.push(instruction(0x55, 0x04, 2, major));
        code.push(instruction(0xb4, 0x00, 0, 1));
        code.push(instruction(0x95, 0x00, 0, 0));
    }
    code.push(instruction(0xb4, 0x00, 0, 0));
    code.push(instruction(0x95, 0x00, 0, 0));
    code
}

#[test]
fn container_allowed_a_real_node_is_found() {
    let container = || {
        let fake = sound();
        text(&fake, "/proc/50/comm", "python3\n");
        text(&fake, "/proc/50/cgroup", "0::/pod.slice/one\n");
        text(
            &fake,
            "/proc/50/mountinfo",
            "30 1 0:7 / / rw - overlay o rw\n31 30 0:43 /train/nvidia0 /dev/nvidia0 rw - cgpufs cgpufs rw\n",
        );
        fake
    };
    let programs = |fake: &Fake, group: &str, code: Vec<u64>| {
        fake.with(|s| s.programs.entry(group.into()).or_default().push(code));
    };
    let of_container = |fake: &Fake| {
        let all = examine(fake).into_iter();
        all.filter(|f| f.check == "containers").collect::<Vec<_>>()
    };
    // Kept from them by its own group.
    let fake = container();
    programs(
        &fake,
        "/sys/fs/cgroup/pod.slice/one",
        device_program(&[], &[1, 511]),
    );
    let found = of_container(&fake);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].state, FindingState::Ok, "{found:?}");
    assert_eq!(found[0].subject, "python3 (50)");
    // By one above it, whatever its own allows.
    let fake = container();
    programs(
        &fake,
        "/sys/fs/cgroup/pod.slice/one",
        device_program(&[], &[195, 509]),
    );
    programs(
        &fake,
        "/sys/fs/cgroup/pod.slice",
        device_program(&[], &[511]),
    );
    assert_eq!(of_container(&fake)[0].state, FindingState::Ok);
    // Not kept from the GPU and the control node, or from anything.
    let fake = container();
    programs(
        &fake,
        "/sys/fs/cgroup/pod.slice/one",
        device_program(&[], &[195]),
    );
    let bad = only(&fake);
    assert_eq!((bad.check, bad.state), ("containers", FindingState::Failed));
    assert_eq!(bad.found, "may open 195:0, 195:255");
    assert_eq!(only(&container()).found, "may open 195:0, 195:255, 509:0");
    // To read is enough. The access is masked in the context's own register, as runc does.
    let fake = container();
    let reading = |word: u64| u64::from_le_bytes(word.to_be_bytes());
    let code = [
        0x6113_0000_0000_0000, // r3 = the kind and the access
        0x7703_0000_1000_0000, // r3 >>= 16
        0xbc31_0000_0000_0000, // r1 = r3
        0x5401_0000_0200_0000, // r1 &= to read
        0xb400_0000_0100_0000, // r0 = 1
        0x1d31_0100_0000_0000, // nothing else was asked for
        0xb400_0000_0000_0000, // r0 = 0
        0x9500_0000_0000_0000,
    ];
    programs(
        &fake,
        "/sys/fs/cgroup/pod.slice/one",
        code.map(reading).to_vec(),
    );
    assert_eq!(only(&fake).found, "may open 195:0, 195:255, 509:0");
    // An administrator changes what the group may open, unless in a user namespace of its own.
    for (users, bounding, state) in [
        ("0 0 4294967295\n", "000001ffffffffff", FindingState::Failed),
        ("0 0 4294967295\n", "00000000a80425fb", FindingState::Ok),
        ("0 100000 65536\n", "000001ffffffffff", FindingState::Ok),
    ] {
        let fake = container();
        programs(
            &fake,
            "/sys/fs/cgroup/pod.slice/one",
            device_program(&[], &[1, 511]),
        );
        text(&fake, "/proc/50/uid_map", &format!("         {users}"));
        text(
            &fake,
            "/proc/50/status",
            &format!("CapEff:\t0\nCapBnd:\t{bounding}\n"),
        );
        assert_eq!(of_container(&fake)[0].state, state, "{users} {bounding}");
    }
    // In a way that nobody here understands.
    let fake = container();
    let call = u64::from_le_bytes([0x85, 0, 0, 0, 1, 0, 0, 0]);
    programs(
        &fake,
        "/sys/fs/cgroup/pod.slice/one",
        device_program(&[call], &[511]),
    );
    assert_eq!(only(&fake).state, FindingState::Unknown);
    // The host's own view of the proxy nodes' folder makes nobody a container.
    let fake = sound();
    text(&fake, "/proc/1/cgroup", "0::/\n");
    text(
        &fake,
        "/proc/1/mountinfo",
        "40 1 0:43 / /run/cgpu/dev rw - cgpufs cgpufs rw\n",
    );
    assert_eq!(
        of_container(&fake)[0].found,
        "no container has an instance now"
    );
}

#[test]
fn a_holder_of_a_real_node_is_named() {
    let fake = sound();
    text(&fake, "/proc/43/comm", "Xorg\n");
    status(&fake, "/proc/43/fd/9", node(DEVTMPFS, 195, 0, 0o600));
    status(&fake, "/proc/43/fd/10", node(DEVTMPFS, 195, 0, 0o600));
    status(&fake, "/proc/43/fd/11", node(DEVTMPFS, 509, 0, 0o600));
    let bad = only(&fake);
    assert_eq!((bad.check, bad.state), ("holders", FindingState::Warning));
    assert_eq!(bad.subject, "Xorg (43)");
    assert_eq!(bad.found, "has 195:0, 509:0 open");
}

#[test]
fn a_daemon_is_known_by_its_program() {
    let fake = sound();
    let findings = examine(&fake);
    let known = findings.iter().find(|f| f.subject.ends_with("(42)"));
    assert_eq!(known.expect("told").subject, "nvidia-persistenced (42)");
    text(
        &fake,
        "/proc/42/exe",
        "/usr/bin/nvidia-persistenced (deleted)",
    );
    assert!(examine(&fake).iter().all(|f| f.state == FindingState::Ok));
    // A user's process, which steers the terminal too.
    text(&fake, "/proc/42/exe", "/srv/user/python3");
    text(&fake, "/proc/42/comm", "nv-hostengine\x1b[2J\n");
    assert_eq!(only(&fake).subject, "nv-hostengine?[2J (42)");
    text(&fake, "/proc/42/exe", "/srv/user/nv-hostengine");
    status(&fake, "/proc/42/exe", program(1000));
    assert_eq!(only(&fake).state, FindingState::Warning);
}

#[test]
fn nodes_that_nobody_makes_are_found() {
    let fake = sound();
    text(
        &fake,
        "/proc/driver/nvidia/params",
        "ModifyDeviceFiles: 0\n",
    );
    let findings = examine(&fake);
    assert!(findings.iter().all(|f| f.state == FindingState::Ok));
    fake.with(|s| s.statuses.remove(Path::new("/dev/nvidiactl")));
    let bad = only(&fake);
    assert_eq!(
        (bad.check, bad.state),
        ("modify-device-files", FindingState::Failed)
    );
}

#[test]
fn missing_or_wrong_uvm_node_is_found() {
    let path = "/dev/nvidia-uvm";
    for (major, devices, found) in [
        (None, "509 nvidia-uvm\n", "not there"),
        (None, "", "not there"),
        (Some(508), "509 nvidia-uvm\n", "508:0"),
        (Some(509), "", "509:0, nvidia-uvm is not loaded"),
    ] {
        let fake = sound();
        fake.with(|s| s.statuses.remove(Path::new(path)));
        if let Some(major) = major {
            status(&fake, path, node(DEVTMPFS, major, 0, 0o600));
        }
        text(&fake, "/proc/devices", devices);
        let bad = only(&fake);
        assert_eq!((bad.check, bad.state), ("uvm", FindingState::Failed));
        assert_eq!(bad.found, found);
        assert!(bad.fix.ends_with("nvidia-modprobe -u -c 0"), "{}", bad.fix);
    }
}

#[test]
fn a_mount_point_that_others_can_enter_fails() {
    let fake = sound();
    fake.with(|s| {
        s.statuses
            .get_mut(&PathBuf::from("/run/cgpu"))
            .expect("made")
            .mode |= 0o055
    });
    let bad = only(&fake);
    assert_eq!((bad.check, bad.state), ("cgpufs", FindingState::Failed));
    assert_eq!(bad.found, "mode 0755, owner 0");

    let fake = sound();
    fake.with(|s| s.mounts.push("/mnt/nodes".into()));
    let bad = only(&fake);
    assert_eq!(
        (bad.subject.as_str(), bad.state),
        ("/mnt/nodes", FindingState::Warning)
    );
}

#[test]
fn instances_without_kernel_interface_fail() {
    let shared = |means| {
        let fake = sound();
        fake.with(|s| {
            let mut instance = Instance::new_zeroed();
            instance.key.gpu_minor = 0;
            s.instances.push(instance);
            let gpu = s.gpu_compute.get_mut(&0).expect("a GPU");
            gpu.mechanisms = means;
        });
        fake
    };
    let of_check = |fake: &Fake| {
        let all = examine(fake).into_iter();
        let found = all.filter(|f| f.check == "kernel-interface");
        found.map(|f| (f.subject, f.state)).collect::<Vec<_>>()
    };
    let found = of_check(&shared(cgpu_uapi::mechanism::DOORBELL));
    assert_eq!(found, [("GPU 0".to_owned(), FindingState::Failed)]);
    let found = of_check(&shared(0x1f));
    assert_eq!(found, [("GPU 0".to_owned(), FindingState::Ok)]);
    // Nobody has asked for it yet.
    let fake = sound();
    fake.with(|s| {
        let gpu = s.gpu_compute.get_mut(&0).expect("a GPU");
        gpu.mechanisms = cgpu_uapi::mechanism::DOORBELL;
    });
    assert_eq!(of_check(&fake), []);
}

#[test]
fn a_module_or_driver_that_is_missing_fails() {
    let fake = sound().fail(Op::Open, 0, Errno::ENOENT);
    let findings = examine(&fake);
    let state = |check| findings.iter().find(|f| f.check == check).map(|f| f.state);
    assert_eq!(state("module"), Some(FindingState::Failed));
    assert_eq!(state("driver"), Some(FindingState::Unknown));

    let fake = sound().fail(Op::Gpus, 0, errno(Cause::UnknownDriver));
    let bad = only(&fake);
    assert_eq!((bad.check, bad.state), ("driver", FindingState::Failed));
    assert_eq!(bad.found, "580.159.04, no tables for its branch");

    let fake = sound();
    fake.with(|s| s.assumed = true);
    let bad = only(&fake);
    assert_eq!((bad.check, bad.state), ("driver", FindingState::Failed));
    assert_eq!(
        bad.found,
        "580.159.04, of an unknown branch and taken for 580"
    );

    let fake = sound();
    text(
        &fake,
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Mon\n",
    );
    assert_eq!(only(&fake).found, "580.159.04, proprietary kernel modules");
}

#[test]
fn doctor_misses_parts_of_the_installation() {
    let state = |fake: &Fake, check: &str| {
        let findings = examine(fake);
        let of = findings.iter().find(|f| f.check == check);
        of.expect(check).state
    };
    for check in ["hook", "libraries", "cdi", "headers"] {
        assert_eq!(state(&sound(), check), FindingState::Ok, "{check}");
    }
    let root = |fake: &Fake, path: &str| fake.path_of(path);
    let host = sound();
    std::fs::remove_file(root(&host, "/usr/local/sbin/cgpu-hook")).expect("removed");
    assert_eq!(state(&host, "hook"), FindingState::Warning);
    let host = sound();
    text(
        &host,
        "/usr/share/containers/oci/hooks.d/cgpu-remove.json",
        "{}",
    );
    assert_eq!(state(&host, "hook"), FindingState::Warning);
    let host = sound();
    std::fs::remove_dir_all(root(&host, "/usr/lib")).expect("removed");
    assert_eq!(state(&host, "libraries"), FindingState::Warning);
    let host = sound().fail(Op::Version, 0, Errno::EIO);
    assert_eq!(state(&host, "libraries"), FindingState::Unknown);
    let host = sound();
    host.with(|s| {
        s.texts
            .remove(&PathBuf::from("/lib/modules/7.2.12/build/Makefile"))
    });
    assert_eq!(state(&host, "headers"), FindingState::Warning);
    text(&host, "/lib/modules/7.2.12/build/Kconfig", "");
    assert_eq!(state(&host, "headers"), FindingState::Warning);
    host.with(|s| s.texts.remove(&PathBuf::from("/proc/sys/kernel/osrelease")));
    assert_eq!(state(&host, "headers"), FindingState::Unknown);
}

#[test]
fn doctor_reports_what_preflight_found() {
    let of = |report: &str| {
        let host = sound();
        text(&host, PREFLIGHT, report);
        let findings = examine(&host).into_iter();
        let found = findings.filter(|f| f.check == "preflight");
        found
            .map(|f| (f.state, f.subject, f.fix))
            .collect::<Vec<_>>()
    };
    let line = |word: &str, subject: &str| format!("{word}\t{subject}\tit is so\tchange it\n");
    let said = |state, subject: &str| (state, subject.to_owned(), "change it".to_owned());
    let report = line("lack", "Secure Boot") + &line("warn", "MIG") + &line("warn", "driver");
    assert_eq!(
        of(&report),
        [
            said(FindingState::Failed, "Secure Boot"),
            said(FindingState::Warning, "MIG")
        ],
        "the driver has a check of its own"
    );
    assert_eq!(of(&line("lack", "headers"))[0].0, FindingState::Ok);
    assert_eq!(of("cgpu-preflight: no\n")[0].0, FindingState::Unknown);
    assert_eq!(of("lack\tMIG\n")[0].0, FindingState::Unknown);
    let host = sound();
    host.with(|s| s.texts.remove(Path::new(PREFLIGHT)));
    let bad = only(&host);
    assert_eq!((bad.check, bad.state), ("preflight", FindingState::Unknown));
}

#[test]
fn the_cdi_file_is_held_against_the_instances() {
    use clap::Parser;
    let host = sound();
    let run = |line: &[&str]| {
        let cli = cgpuctl::cli::Cli::try_parse_from(line).expect("a command line");
        let mut out = Vec::new();
        let exit = cgpuctl::run(&cli, &host, &mut out, &mut Vec::new());
        assert_eq!(exit, Exit::Done);
        String::from_utf8(out).expect("UTF-8")
    };
    let cdi = || {
        let mut findings = examine(&host).into_iter();
        findings.find(|f| f.check == "cdi").expect("cdi")
    };
    let state = || cdi().state;
    run(&[
        "cgpuctl", "inst", "create", "a", "--gpu", "0", "--mem", "2GiB",
    ]);
    assert_eq!(state(), FindingState::Warning, "no file");
    let spec = run(&["cgpuctl", "cdi", "generate"]);
    text(&host, "/run/cdi/cgpu.json", &spec);
    assert_eq!(state(), FindingState::Ok);
    text(&host, "/run/cdi/cgpu.json", &spec.replace("511", "512"));
    assert_eq!(state(), FindingState::Warning, "other numbers");
    text(&host, "/run/cdi/cgpu.json", "{\"kind\": \"cgpu.io/gpu\"}");
    assert_eq!(state(), FindingState::Warning, "no CDI file");
    text(&host, "/run/cdi/cgpu.json", &spec);
    // The later folder counts.
    text(&host, "/etc/cdi/cgpu.json", "{\"kind\": \"cgpu.io/gpu\"}");
    text(&host, "/run/cdi/cgpu.json.old", &spec);
    assert_eq!(state(), FindingState::Ok);
    text(&host, "/run/cdi/a.yaml", &spec);
    let two = cdi();
    assert_eq!(two.state, FindingState::Warning);
    assert_eq!(two.subject, "/run/cdi/a.yaml, /run/cdi/cgpu.json");
    assert_eq!(two.fix, "rm /run/cdi/a.yaml");
}

#[test]
fn doctor_prints_its_golden() {
    use clap::Parser;
    let print = |fake: &Fake, line: &[&str]| {
        let cli = cgpuctl::cli::Cli::try_parse_from(line).expect("a command line");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = cgpuctl::run(&cli, fake, &mut out, &mut err);
        assert!(err.is_empty());
        (exit, String::from_utf8(out).expect("UTF-8"))
    };
    let bad = || {
        let fake = sound();
        status(&fake, "/dev/nvidia0", node(DEVTMPFS, 195, 0, 0o666));
        status(&fake, "/dev/nvidiactl", node(DEVTMPFS, 195, 255, 0o666));
        fake.with(|s| {
            s.statuses
                .get_mut(&PathBuf::from("/run/cgpu"))
                .expect("made")
                .mode |= 0o055
        });
        fake
    };
    let (exit, text) = print(&bad(), &["cgpuctl", "doctor"]);
    assert_eq!(exit, Exit::Unsound);
    let columns = text.lines().map(|line| line.chars().count());
    assert!(columns.max() <= Some(80), "{text}");
    // On a terminal the states have colors, and nothing else is another.
    let terminal = bad();
    terminal.with(|s| s.colored = true);
    let (_, colored) = print(&terminal, &["cgpuctl", "doctor"]);
    assert!(
        colored.starts_with("\u{1b}[31mfailed\u{1b}[0m   cgpufs"),
        "{colored}"
    );
    let codes = ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[0m"];
    let plain = codes
        .iter()
        .fold(colored, |text, code| text.replace(code, ""));
    assert_eq!(plain, text);
    assert_snapshot!("doctor.text", text);
    let (exit, json) = print(&bad(), &["cgpuctl", "doctor", "--json"]);
    assert_eq!(exit, Exit::Unsound);
    assert_snapshot!("doctor.json", json);
    let (exit, text) = print(&sound(), &["cgpuctl", "doctor"]);
    assert_eq!(exit, Exit::Done);
    assert_snapshot!("doctor_sound.text", text);
}
