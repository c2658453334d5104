// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The commands that tell container engines about instances: `info`, `list`, `cdi`.

use super::{
    busy_host, done, fails,
    fake::{errno, Fake, Op},
    golden, run,
};
use cgpu_client::files::{lock_folder, FileTurn};
use cgpu_uapi::Cause;
use cgpuctl::{
    cdi::{faults, Spec},
    exit::Exit,
};
use nix::errno::Errno;

/// The busy host with the driver's user space, and the hook.
fn host() -> Fake {
    busy_host()
        .with_driver()
        .file("/usr/local/sbin/cgpu-hook", "")
}

/// The host with a CDI file, and with all that the file names: the nodes are plain files here.
fn described() -> Fake {
    let mut host = host();
    done(&host, "cdi generate --to-file /run/cdi/cgpu.json");
    for path in named(&host) {
        if !host.path_of(&path).exists() {
            host = host.file(&path, "");
        }
    }
    host
}

/// Host paths in the CDI file.
fn named(host: &Fake) -> Vec<String> {
    let spec = read(host);
    let mut paths = Vec::new();
    let all = spec.devices.iter().map(|d| &d.container_edits);
    for edits in all.chain([&spec.container_edits]) {
        paths.extend(edits.device_nodes.iter().map(|n| n.path.clone()));
        paths.extend(edits.mounts.iter().map(|m| m.host_path.clone()));
    }
    paths
}

fn read(host: &Fake) -> Spec {
    let text = std::fs::read_to_string(host.path_of("/run/cdi/cgpu.json")).expect("a file");
    serde_json::from_str(&text).expect("a CDI file")
}

#[test]
fn container_commands_print_their_goldens() {
    golden("info", host, "info");
    golden("info_bare", || Fake::new(0), "info");
    golden("list", host, "files");
    golden("list_video", host, "files --capabilities video");
    golden("cdi_generate", host, "cdi generate");
    golden("cdi_generate_bare", busy_host, "cdi generate");
    golden(
        "cdi_generate_file",
        host,
        "cdi generate --to-file /run/cdi/cgpu.json",
    );
    golden("cdi_list", described, "cdi list");
    golden("cdi_validate", described, "cdi validate");
    let changed = || {
        let host = described();
        done(&host, "inst create late --gpu 0 --mem 1GiB");
        done(&host, "inst destroy infer");
        host
    };
    golden("cdi_list_changed", changed, "cdi list");
    golden("cdi_list_none", || Fake::new(1), "cdi list");
    // Of the names that a program may ask for `late` is none yet, and `infer` still is.
    let names = "cgpu.io/gpu=infer\ncgpu.io/gpu=train\n";
    for line in ["cdi list -q", "cdi list -o name"] {
        assert_eq!(done(&changed(), line), names, "{line}");
        assert_eq!(done(&Fake::new(1), line), "", "{line}");
    }
    for (one, other) in [
        ("cdi list -o wide", "cdi list"),
        ("cdi list -o json", "cdi list --json"),
    ] {
        assert_eq!(done(&changed(), one), done(&changed(), other), "{one}");
    }
}

#[test]
fn file_is_valid_by_cdi_rules() {
    let host = described();
    let spec = read(&host);
    assert_eq!(faults(&spec), Vec::<String>::new());
    let names: Vec<_> = spec.devices.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["infer", "train"]);
    let train = &spec.devices[1].container_edits;
    // A tenant on two GPUs: a node for each, its control and its UVM node; and the proxy nodes of
    // them.
    assert_eq!((train.device_nodes.len(), train.mounts.len()), (4, 4));
    assert!(train.device_nodes.iter().all(|n| n.major == Some(511)));
    for mount in &train.mounts {
        assert!(mount.host_path.starts_with("/run/cgpu/dev/train/"));
        assert!(!mount.options.contains(&"nodev".to_owned()));
    }
    let gpus = ["--gpu", "0000:29:00.0", "--gpu", "0000:2a:00.0"];
    assert_eq!(train.hooks[0].args[2..], gpus);
    // The loader's name of a library is a mount of the file itself.
    let common = &spec.container_edits.mounts;
    let loaded = "/usr/lib/x86_64-linux-gnu/libcuda.so.1";
    let mount = common.iter().find(|m| m.container_path == loaded);
    assert!(mount.is_some_and(|m| m.host_path.ends_with("/libcuda.so.580.159.04")));
}

#[test]
fn a_faulty_file_is_refused_with_its_fault() {
    let host = described();
    let text = done(&host, "cdi generate");
    for (name, from, to, said) in [
        ("form", "\"devices\"", "\"deviecs\"", "is no CDI file"),
        ("version", "0.5.0", "0.5", "there is no CDI version"),
        (
            "node",
            "/dev/cgpu-infer-ctl",
            "/dev/cgpu-gone-ctl",
            "there is no /dev/cgpu-gone-ctl",
        ),
        (
            "number",
            "\"minor\": 5",
            "\"minor\": 77",
            "infer: the instance has changed",
        ),
        (
            "name",
            "\"name\": \"infer\"",
            "\"name\": \"other\"",
            "other: there is no such instance",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let host = described().file(&format!("/tmp/{name}.json"), &text.replacen(from, to, 1));
        let sentence = fails(
            &host,
            &format!("cdi validate /tmp/{name}.json"),
            Exit::Failed,
        );
        assert!(sentence.contains(said), "{sentence}");
    }
    let sentence = fails(
        &host
            .file("/run/cdi/cgpu.json", "{}")
            .file("/tmp/a.json", "{}"),
        "cdi validate /tmp/a.json /run/cdi/cgpu.json",
        Exit::Failed,
    );
    let remedy =
        "again with `cgpuctl cdi generate --to-file /run/cdi/cgpu.json`, and remove /tmp/a.json";
    assert!(sentence.contains(remedy), "{sentence}");
    let host = described();
    fails(&host, "cdi validate /tmp/none.json", Exit::Failed);
    fails(&Fake::new(1), "cdi validate", Exit::NotFound);
    // Another vendor's file is none of ours.
    let other = Fake::new(1).file("/etc/cdi/other.json", "{\"kind\": \"x.com/y\"}");
    fails(&other, "cdi validate", Exit::NotFound);
}

#[test]
fn a_file_goes_with_the_last_instance() {
    let host = Fake::new(1);
    fails(&host, "cdi generate", Exit::NotFound);
    done(&host, "inst create a --gpu 0 --mem 2GiB");
    run(&host, "cdi generate --to-file /run/cdi/cgpu.json");
    assert!(host.path_of("/run/cdi/cgpu.json").exists());
    done(&host, "inst destroy a");
    run(&host, "cdi generate --to-file /run/cdi/cgpu.json");
    assert!(!host.path_of("/run/cdi/cgpu.json").exists());
    // Nothing else is left in the folder that engines read.
    let left = std::fs::read_dir(host.path_of("/run/cdi")).expect("a folder");
    assert_eq!(left.count(), 0);
}

#[test]
fn watching_writes_the_file_again_at_every_change() {
    let host = host();
    host.with(|s| {
        s.changes = vec![
            |host| {
                assert_eq!(read(host).devices.len(), 2);
                done(host, "inst create late --gpu 1 --mem 1GiB");
            },
            |host| {
                assert_eq!(read(host).devices.len(), 3);
                // The module is taken out, and comes back.
                host.with(|s| s.unloaded = true);
            },
            |host| {
                assert!(!host.path_of("/run/cdi/cgpu.json").exists());
                host.with(|s| s.unloaded = false);
                done(host, "inst destroy late");
                run(host, "inst create end. --gpu 1 --mem 1GiB");
            },
            |host| {
                assert_eq!(read(host).devices.len(), 2);
                done(host, "inst create last --gpu 1 --mem 1GiB");
            },
        ]
    });
    let line = "cdi generate --watch --output /run/cdi/cgpu.json --json";
    let ran = run(&host, line);
    assert_eq!(ran.exit, Exit::Failed);
    assert_eq!(ran.out.lines().count(), 1, "an object a line: {}", ran.out);
    assert_eq!(ran.err.matches("\"end.\" is left out").count(), 1);
    assert!(host.with(|s| s.changes.is_empty()));
    assert_eq!(read(&host).devices.len(), 3);
}

/// As udev runs the command: for each device, all at once.
#[test]
fn no_file_is_older_than_its_predecessor() {
    let host = host().file("/run/cdi/other.json", "");
    let turn = FileTurn::wait(&host.path_of("/run/cdi/cgpu.json")).expect("free");
    let file_of_one_device = {
        let host = host.clone();
        std::thread::spawn(move || done(&host, "cdi generate --to-file /run/cdi/cgpu.json"))
    };
    std::thread::sleep(std::time::Duration::from_millis(200));
    done(&host, "inst create late --gpu 0 --mem 1GiB");
    drop(turn);
    file_of_one_device.join().expect("written");
    let names: Vec<_> = read(&host).devices.into_iter().map(|d| d.name).collect();
    assert!(names.contains(&"late".to_owned()), "{names:?}");
}

/// Any user can open the folder for reading, and so lock it.
#[test]
fn who_locks_the_folder_holds_up_nobody() {
    let host = host().file("/run/cdi/other.json", "");
    let _lock = lock_folder(&host.path_of("/run/cdi")).expect("locked");
    let (written, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        written.send(done(&host, "cdi generate --to-file /run/cdi/cgpu.json"))
    });
    wait.recv_timeout(std::time::Duration::from_secs(20))
        .expect("written");
}

#[test]
fn name_invalid_in_cdi_is_skipped_with_warning() {
    let host = host();
    run(&host, "inst create end. --gpu 0 --mem 1GiB");
    let ran = run(&host, "cdi generate");
    assert_eq!(ran.exit, Exit::Done);
    assert!(ran.err.contains("\"end.\" is left out"), "{}", ran.err);
    assert!(!ran.out.contains("end."));
}

#[test]
fn libraries_can_be_put_where_the_image_looks() {
    let text = done(&host(), "cdi generate --library-folder /usr/lib64/");
    assert!(
        text.contains("\"containerPath\": \"/usr/lib64/libcuda.so.1\""),
        "{text}"
    );
    assert!(
        text.contains("\"containerPath\": \"/usr/bin/nvidia-smi\""),
        "{text}"
    );
}

#[test]
fn the_driver_may_be_installed_elsewhere() {
    let host = Fake::new(1)
        .file("/run/nvidia/driver/usr/lib64/libcuda.so.580.159.04", "")
        .file(
            "/run/nvidia/driver/usr/lib64/libcuda.so.1",
            "-> libcuda.so.580.159.04",
        );
    let text = done(&host, "list --driver-root /run/nvidia/driver");
    assert!(text.contains("/usr/lib64/libcuda.so.580.159.04"), "{text}");
}

#[test]
fn instances_are_saved_and_restored() {
    let saved = || {
        let host = busy_host();
        done(&host, "inst save");
        host
    };
    golden("inst_save", busy_host, "inst save");
    golden("inst_restore_present", saved, "inst restore");
    let text = std::fs::read_to_string(saved().path_of("/etc/cgpu/instances.toml")).expect("saved");
    let fresh = || Fake::new(2).file("/etc/cgpu/instances.toml", &text);
    golden("inst_restore", fresh, "inst restore");
    let host = fresh();
    done(&host, "inst restore");
    let all = |host: &Fake| {
        let of = |i: &cgpu_uapi::Instance| (i.key.gpu_minor, i.memory_limit_bytes, i.weight);
        let mut all: Vec<_> = host.with(|s| s.instances.iter().map(of).collect());
        all.sort_unstable();
        all
    };
    assert_eq!(all(&host), all(&busy_host()));

    // By hand, with what can be left out left out.
    let by_hand = "[[instance]]\nname = \"a\"\ngpus = [\"0\", \"GPU-00000001-0f7d-4b1e-9c2d-1234567890ab\"]\nmem = \"8GiB\"\n";
    let host = Fake::new(2).file("/etc/a.toml", by_hand);
    done(&host, "inst restore /etc/a.toml");
    assert_eq!(all(&host), [(0, 8 << 30, 1), (1, 8 << 30, 1)]);
    // A GPU that is gone does not keep the others waiting.
    let host = Fake::new(1).file("/etc/a.toml", by_hand);
    let sentence = fails(&host, "inst restore /etc/a.toml", Exit::Failed);
    assert!(sentence.contains("a on GPU-00000001"), "{sentence}");
    assert_eq!(all(&host), [(0, 8 << 30, 1)]);
    for (bad, said) in [
        ("[[instance]]\nname = 1\n", "not understood"),
        (
            "[[instance]]\nname = \"a\"\ngpu = \"0\"\n",
            "not understood",
        ),
        (&by_hand.replace("8GiB", "8"), "needs its unit"),
        (&by_hand.replace("\"a\"", "\"-a\""), "a name has"),
        (&by_hand.replace("\"0\"", "\"zero\""), "name the GPU by"),
    ] {
        let host = Fake::new(2).file("/etc/a.toml", bad);
        let sentence = fails(&host, "inst restore /etc/a.toml", Exit::Failed);
        assert!(sentence.contains(said), "{sentence}");
    }
    fails(&Fake::new(1), "inst restore", Exit::Failed);
}

#[test]
fn a_saved_over_file_is_kept() {
    let by_hand = "# By hand.\n";
    let host = busy_host().file("/etc/cgpu/instances.toml", by_hand);
    let before = || std::fs::read_to_string(host.path_of("/etc/cgpu/instances.toml.before"));
    let said = done(&host, "inst save");
    assert!(said.contains("/etc/cgpu/instances.toml.before"), "{said}");
    assert_eq!(before().expect("kept"), by_hand);
    // Nothing has changed, so what was kept stays.
    let said = done(&host, "inst save");
    assert!(!said.contains("before"), "{said}");
    assert_eq!(before().expect("kept"), by_hand);
}

#[test]
fn instance_without_its_settings_is_removed() {
    let text = "[[instance]]\nname = \"a\"\ngpus = [\"0\"]\nmem = \"1GiB\"\npriority = \"high\"\n\
        channels = 64\nlimits = { objects = 9000 }\n";
    for op in [Op::SetChannels, Op::SetLimit, Op::SetCompute] {
        let host = Fake::new(1).file("/etc/cgpu/instances.toml", text);
        let host = host.fail(op, 0, Errno::EIO);
        let sentence = fails(&host, "inst restore", Exit::Failed);
        assert!(sentence.contains("it was removed again"), "{sentence}");
        assert_eq!(host.names(), []);
        done(&host, "inst restore");
        assert_eq!(host.names().len(), 1);
    }
    let host = Fake::new(1).file("/etc/cgpu/instances.toml", text);
    let host = host
        .fail(Op::SetLimit, 0, Errno::EIO)
        .fail(Op::Destroy, 0, Errno::EBUSY);
    let sentence = fails(&host, "inst restore", Exit::Failed);
    assert!(
        sentence.contains("without all of its settings"),
        "{sentence}"
    );
}

#[test]
fn compute_settings_are_saved_and_restored() {
    let host = busy_host();
    done(
        &host,
        "gpu set-policy 1 soft --period throughput --max-inst 8 --prio-ratio 60 --burst 400",
    );
    done(&host, "inst set-burst train 30 --gpu 1");
    done(&host, "inst set-priority train high --gpu 1");
    done(&host, "inst suspend train --gpu 1");
    done(&host, "inst save");
    let text = std::fs::read_to_string(host.path_of("/etc/cgpu/instances.toml")).expect("saved");
    let restored = Fake::new(2).file("/etc/cgpu/instances.toml", &text);
    done(&restored, "inst restore");
    restored.with(|s| {
        let gpu = s.gpu_compute[&1];
        let settings = (
            gpu.policy,
            gpu.period,
            gpu.max_instances,
            gpu.priority_percent,
            gpu.burst_ms,
        );
        assert_eq!(settings, (4, 1, 8, 60, 400));
        let own = |c: &&cgpu_uapi::InstanceCompute| c.burst_ms == 30;
        assert_eq!(s.compute.values().filter(own).count(), 1);
        assert_eq!(s.gpu_compute[&0].policy, 2);
        let high = |c: &&cgpu_uapi::InstanceCompute| c.state & cgpu_uapi::state::HIGH_PRIORITY != 0;
        let keys: Vec<_> = s.compute.values().filter(high).map(|c| c.key).collect();
        assert_eq!(keys.len(), 1);
        assert_eq!(
            (keys[0].name.as_str(), keys[0].gpu_minor),
            (Some("train"), 1)
        );
        // A boot resumes an instance that was suspended by hand.
        let suspended = |c: &cgpu_uapi::InstanceCompute| c.state & cgpu_uapi::state::SUSPENDED != 0;
        assert!(!s.compute.values().any(suspended));
    });
    // A file of an earlier release.
    let old = "[[gpu]]\ngpu = \"0\"\npolicy = \"4\"\nmax_inst = 3\nprio_ratio = 7\n";
    let host = Fake::new(1).file("/etc/a.toml", old);
    done(&host, "inst restore /etc/a.toml");
    let gpu = host.with(|s| s.gpu_compute[&0]);
    assert_eq!((gpu.max_instances, gpu.priority_percent), (3, 7));
    for (bad, said) in [
        ("policy = \"quick\"", "take fixed-equal"),
        ("policy = \"fair\"\nperiod = \"long\"", "period"),
    ] {
        let host = Fake::new(1).file("/etc/a.toml", &format!("[[gpu]]\ngpu = \"0\"\n{bad}\n"));
        let sentence = fails(&host, "inst restore /etc/a.toml", Exit::Failed);
        assert!(sentence.contains("the policy of GPU 0"), "{sentence}");
        assert!(sentence.contains(said), "{sentence}");
    }
}

#[test]
fn an_instance_of_a_container_is_not_saved() {
    let entry = r#"{"container": "c", "instance": "infer", "gpus": [0], "pid": 1, "began": 1}"#;
    let host = busy_host().file("/run/cgpu/hook/c.json", entry);
    let said = done(&host, "inst save");
    assert!(said.ends_with("2 instances\n"), "{said}");
}

#[test]
fn policies_are_saved_without_own_instances() {
    for (line, wanted) in [
        ("gpu set-policy 1 fixed", true),
        ("gpu set-policy 1 native --period throughput", true),
        ("gpu set-policy 1 native --burst 30", true),
        ("gpu set-policy 1 native", false),
    ] {
        let host = Fake::new(2);
        done(&host, "gpu set-policy 0 native");
        assert_eq!(run(&host, line).exit, Exit::Done, "{line}");
        let said = done(&host, "inst save");
        assert!(said.ends_with("0 instances\n"), "{said}");
        let file = host.path_of("/etc/cgpu/instances.toml");
        let text = std::fs::read_to_string(file).expect("saved");
        assert_eq!(text.contains("0000:2a:00.0"), wanted, "{line}: {text}");
        assert!(!text.contains("0000:29:00.0"), "{line}: {text}");
    }
}

#[test]
fn an_instance_of_a_pod_is_not_saved() {
    let uid = "7b2ea4b2-0000-4000-8000-00000000000f";
    let host = busy_host().file(&format!("/run/cgpu/dra/claims/{uid}.json"), "{}");
    done(
        &host,
        &format!("inst create claim-{uid} --gpu 1 --mem 1GiB"),
    );
    let said = done(&host, "inst save");
    assert!(said.ends_with("3 instances\n"), "{said}");
    let text = std::fs::read_to_string(host.path_of("/etc/cgpu/instances.toml")).expect("saved");
    assert!(!text.contains("claim-"), "{text}");
    let shown = done(&host, "apply -f /etc/cgpu/instances.toml --prune --dry-run");
    assert_eq!(shown, "Nothing to change.\n");
}

#[test]
fn nothing_is_saved_while_owners_are_unreadable() {
    let tidy = "apply -f /etc/cgpu/empty.toml --prune";
    for folder in ["/run/cgpu/hook", "/run/cgpu/dra/claims", "/run/cdi"] {
        let host = busy_host()
            .file("/etc/cgpu/empty.toml", "")
            .file(folder, "no folder");
        for line in ["inst save", tidy] {
            let sentence = fails(&host, line, Exit::Failed);
            assert!(sentence.contains(folder), "{sentence}");
            assert!(sentence.contains("ENOTDIR"), "{sentence}");
        }
        assert_eq!(host.with(|s| s.instances.len()), 3);
        std::fs::remove_file(host.path_of(folder)).expect("removed");
        let said = done(&host, "inst save");
        assert!(said.ends_with("3 instances\n"), "{said}");
        let shown = done(&host, &format!("{tidy} --dry-run"));
        assert!(shown.contains("train"), "{shown}");
    }
}

#[test]
fn a_slot_for_pods_is_not_saved() {
    let host = busy_host();
    done(&host, "inst create slot-8g-0 --gpu 1 --mem 1GiB");
    let said = done(&host, "inst save /etc/cgpu/with.toml");
    assert!(said.ends_with("4 instances\n"), "{said}");
    let host = host.file("/run/cdi/cgpu.io-slot.json", "{}");
    let said = done(&host, "inst save");
    assert!(said.ends_with("3 instances\n"), "{said}");
    let shown = done(&host, "apply -f /etc/cgpu/instances.toml --prune --dry-run");
    assert_eq!(shown, "Nothing to change.\n");
}

#[test]
fn the_container_commands_tell_what_is_missing() {
    for line in ["info", "list", "cdi generate", "cdi list"] {
        let host = Fake::new(1).fail(Op::Open, 0, Errno::ENOENT);
        fails(&host, line, Exit::NotLoaded);
        let host = busy_host().fail(Op::Gpus, 0, errno(Cause::DriverMissing));
        fails(&host, line, Exit::Driver);
    }
    // No GPU is looked for without an instance: that has the control device open for long.
    let host = Fake::new(1).fail(Op::Gpus, 0, errno(Cause::DriverMissing));
    fails(&host, "cdi generate", Exit::NotFound);
}
