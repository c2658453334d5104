// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cgpu-hook` on a host in memory, as far as no container is needed: whom it lets alone, what it
//! refuses and with which words, and that nothing is left of what it refused. Containers are in the
//! test machine.

use super::{
    busy_host, done,
    fake::{errno, Fake, Op},
};
use cgpu_uapi::Cause;
use cgpuctl::{
    exit::Exit,
    hook::{run, Arguments},
};
use clap::Parser;
use nix::errno::Errno;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Calls the hook for a container with this environment and these members of `linux`.
fn call(host: &Fake, point: &str, environment: &[&str], linux: &str) -> (Exit, String) {
    let environment = serde_json::to_string(environment).expect("JSON");
    let config = format!(
        r#"{{"process": {{"env": {environment}}}, "root": {{"path": "/nowhere"}}, "linux": {linux}}}"#
    );
    let bundle = host.path_of("/bundle");
    std::fs::create_dir_all(&bundle).expect("made");
    std::fs::write(bundle.join("config.json"), config).expect("written");
    let pid = std::process::id();
    let state = format!(
        r#"{{"id": "{ID}", "pid": {pid}, "bundle": "{}"}}"#,
        bundle.display()
    );
    given(host, point, &state)
}

fn given(host: &Fake, point: &str, state: &str) -> (Exit, String) {
    let words = ["cgpu-hook"].into_iter().chain(point.split(' '));
    let arguments = Arguments::try_parse_from(words).expect("a point");
    let mut said = Vec::new();
    let exit = run(&arguments, host, &mut state.as_bytes(), &mut said);
    (exit, String::from_utf8(said).expect("UTF-8"))
}

const ASKS: [&str; 2] = ["CGPU_MEM=1GiB", "NVIDIA_VISIBLE_DEVICES=0"];

#[test]
fn container_without_settings_stays_unchanged() {
    let host = Fake::new(1).fail(Op::Open, 0, Errno::ENOENT);
    for environment in [&["PATH=/bin"][..], &["CGPU_DISABLE=1", "CGPU_MEM=1GiB"]] {
        let (exit, said) = call(&host, "create-runtime", environment, "{}");
        assert_eq!((exit, said.as_str()), (Exit::Done, ""));
    }
    let (exit, said) = call(&host, "poststop", &[], "{}");
    assert_eq!((exit, said.as_str()), (Exit::Done, ""));
}

#[test]
fn a_refused_container_is_told_and_leaves_nothing() {
    let privileged = r#"{"resources": {"devices": [{"allow": true, "access": "rwm"}]}}"#;
    let bad = [ASKS[0], "NVIDIA_VISIBLE_DEVICES=7"];
    let much = ["CGPU_MEM=999GiB", ASKS[1]];
    for (host, environment, linux, wanted, said) in [
        (Fake::new(1), bad, "{}", Exit::Usage, "names GPU 7"),
        (
            Fake::new(1),
            ASKS,
            privileged,
            Exit::Refused,
            "without --privileged",
        ),
        (Fake::new(1), much, "{}", Exit::Refused, "take at most"),
        (
            Fake::new(1).fail(Op::Open, 0, Errno::EACCES),
            ASKS,
            "{}",
            Exit::NotPermitted,
            "its engine runs without the host's root",
        ),
        (
            Fake::new(1).fail(Op::Open, 0, Errno::ENOENT),
            ASKS,
            "{}",
            Exit::NotLoaded,
            "modprobe",
        ),
        (
            Fake::new(1).fail(Op::Gpus, 0, errno(Cause::DriverMissing)),
            ASKS,
            "{}",
            Exit::Driver,
            "NVIDIA driver",
        ),
        // The instance is made, and goes again: there are no proxy nodes on this host.
        (
            Fake::new(1),
            ASKS,
            "{}",
            Exit::Failed,
            "taking /run/cgpu/dev/0123456789ab/nvidia0",
        ),
    ] {
        let (exit, sentence) = call(&host, "create-runtime", &environment, linux);
        assert_eq!(exit, wanted, "{sentence}");
        assert!(sentence.contains(said), "{sentence}");
        assert!(
            sentence.starts_with("cgpu-hook: container 0123456789ab: "),
            "{sentence}"
        );
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        assert_eq!(host.names(), []);
        assert!(!host.path_of("/run/cgpu/hook").exists());
    }
}

#[test]
fn settings_without_effect_draw_warnings() {
    for (setting, policy, wanted) in [
        (
            "CGPU_WEIGHT=30",
            "native",
            Some("warning: a weight has no effect on GPU 0, which has the policy native"),
        ),
        ("CGPU_WEIGHT=30", "weight", None),
        ("CGPU_WEIGHT=1", "native", None),
        ("CGPU_WEIGHT=1", "fixed", Some("CGPU_WEIGHT changes that")),
        (
            "CGPU_MEM=100MiB",
            "native",
            Some("warning: a limit of 100 MiB is under 1 GiB"),
        ),
    ] {
        let host = Fake::new(1);
        done(&host, &format!("gpu set 0 --policy {policy}"));
        let (_, said) = call(&host, "create-runtime", &[ASKS[0], ASKS[1], setting], "{}");
        let mut lines: Vec<_> = said.lines().collect();
        // There are no proxy nodes on this host.
        let last = lines.pop().expect("a failure");
        assert!(last.contains("taking /run/cgpu/dev"), "{last}");
        assert_eq!(lines.len(), usize::from(wanted.is_some()), "{said}");
        for (line, wanted) in lines.iter().zip(wanted) {
            assert!(
                line.starts_with("cgpu-hook: container 0123456789ab: "),
                "{line}"
            );
            assert!(line.contains(wanted), "{line}");
        }
    }
}

#[test]
fn image_settings_add_nothing_to_an_operators_instance() {
    let image = ["CGPU_MEM=1GiB", "ALIYUN_COM_GPU_VISIBLE_DEVICES=0"];
    let cdi = [image[0], image[1], "NVIDIA_VISIBLE_DEVICES=void"];
    let node = r#"{"devices": [{"path": "/dev/cgpu3", "major": 511, "minor": 3}]}"#;
    let mount = r#"{}, "mounts": [{"source": "/run/cgpu/dev/web/nvidia0"}]"#;
    for (environment, linux) in [(&image[..], node), (&image, mount), (&cdi, "{}")] {
        let host = Fake::new(1);
        let (exit, said) = call(&host, "create-runtime", environment, linux);
        assert_eq!((exit, said.as_str()), (Exit::Done, ""), "{linux}");
        assert_eq!(host.names(), [], "{linux}");
    }
}

#[test]
fn pods_get_nothing_by_their_environment() {
    for (annotation, is_of_pod) in [
        ("io.kubernetes.cri-o.SandboxName", true),
        ("io.kubernetes.cri.sandbox-id", true),
        // podman sets it in pods of its own.
        ("io.kubernetes.cri-o.SandboxID", false),
    ] {
        // The module is asked only where an instance is to be made.
        let made = |point: &str| {
            let host = Fake::new(1).fail(Op::Open, 0, Errno::ENOENT);
            let linux = format!(r#"{{}}, "annotations": {{"{annotation}": "a"}}"#);
            call(&host, point, &ASKS, &linux).0 != Exit::Done
        };
        assert_eq!(made("create-runtime"), !is_of_pod, "{annotation}");
        assert!(made("create-runtime --pods"), "{annotation}");
    }
}

#[test]
fn real_gpu_is_refused_without_a_named_one() {
    let void = [ASKS[0], "NVIDIA_VISIBLE_DEVICES=void"];
    let node = r#"{"devices": [{"path": "/dev/nvidia0", "major": 195, "minor": 0}]}"#;
    let hook = r#"{}, "hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}"#;
    for (environment, linux, wanted, words) in [
        (&void, node, Exit::Refused, "the real /dev/nvidia0"),
        (&ASKS, hook, Exit::Refused, "nvidia-container-runtime-hook"),
        (&void, hook, Exit::Done, ""),
    ] {
        let host = Fake::new(1);
        let (exit, said) = call(&host, "create-runtime", environment, linux);
        assert_eq!(exit, wanted, "{said}");
        assert!(said.contains(words), "{said}");
        assert_eq!(host.names(), []);
    }
}

#[test]
fn an_open_device_group_is_refused() {
    let with_list = |list: &str| {
        let host = Fake::new(1);
        host.with(|s| {
            let groups = format!("/proc/{}/cgroup", std::process::id());
            s.texts.insert(groups.into(), "5:devices:/a\n".to_owned());
            let file = "/sys/fs/cgroup/devices/a/devices.list";
            s.texts.insert(file.into(), list.to_owned());
        });
        call(&host, "create-runtime", &ASKS, "{}")
    };
    for (list, words) in [
        ("c 195:255 rw\n", "the real node 195:255"),
        ("c 195:* rw\n", "the real node 195:0"),
        // It goes on, and there are no proxy nodes on this host.
        ("c 1:3 rwm\n", "taking /run/cgpu/dev"),
    ] {
        let (_, said) = with_list(list);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn an_instance_of_somebody_else_is_not_taken() {
    let host = Fake::new(1);
    done(&host, "inst create 0123456789ab --gpu 0 --mem 1GiB");
    let (exit, sentence) = call(&host, "create-runtime", &ASKS, "{}");
    assert_eq!(exit, Exit::Refused);
    assert!(sentence.contains("the name is taken"), "{sentence}");
    assert_eq!(host.names().len(), 1);
}

/// A journal with a container that is gone, whose instance is called `infer`.
fn with_gone(host: Fake) -> Fake {
    let entry = format!(
        r#"{{"container": "{ID}", "instance": "infer", "gpus": [0], "pid": 1, "began": 1}}"#
    );
    host.file(&format!("/run/cgpu/hook/{ID}.json"), &entry)
}

#[test]
fn the_next_call_removes_a_containers_remains() {
    for point in ["collect", "poststop", "create-runtime"] {
        let host = with_gone(busy_host());
        let (exit, said) = call(&host, point, &["CGPU_MEM=999GiB", ASKS[1]], "{}");
        assert_eq!(exit == Exit::Done, point != "create-runtime", "{said}");
        assert!(
            !host.names().iter().any(|(name, _)| name == "infer"),
            "{point}"
        );
        assert!(!host.path_of("/run/cgpu/hook").exists(), "{point}");
    }
}

#[test]
fn a_later_instance_of_the_name_stays() {
    let entry = |id: u32| {
        format!(
            r#"{{"container": "{ID}", "instance": "infer", "gpus": [0], "ids": [{id}], "pid": 1, "began": 1}}"#
        )
    };
    for point in ["collect", "poststop"] {
        for (own, id) in [(true, 5), (false, 99)] {
            let host = busy_host().file(&format!("/run/cgpu/hook/{ID}.json"), &entry(id));
            let there = |host: &Fake| host.names().iter().any(|(name, _)| name == "infer");
            let saved = done(&host, "inst save");
            assert_eq!(saved.ends_with("2 instances\n"), own, "{saved}");
            let (exit, said) = call(&host, point, &[], "{}");
            assert_eq!((exit, said.as_str()), (Exit::Done, ""));
            assert_eq!(there(&host), !own, "{point}");
            assert!(!host.path_of("/run/cgpu/hook").exists(), "{point}");
        }
    }
}

#[test]
fn living_container_keeps_its_instance() {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("read");
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    let began = rest.split_whitespace().nth(19).expect("22 fields");
    let pid = std::process::id();
    let entry = format!(
        r#"{{"container": "{ID}", "instance": "infer", "gpus": [0], "pid": {pid}, "began": {began}}}"#
    );
    let host = busy_host().file(&format!("/run/cgpu/hook/{ID}.json"), &entry);
    for point in ["poststop", "collect"] {
        let (exit, said) = call(&host, point, &[], "{}");
        assert_eq!((exit, said.as_str()), (Exit::Done, ""));
        assert_eq!(host.names().len(), 3, "{point}");
    }
    assert!(host.path_of(&format!("/run/cgpu/hook/{ID}.json")).exists());
}

#[test]
fn instance_in_use_stays_for_next_time() {
    let host = with_gone(busy_host());
    host.with(|s| s.instances.iter_mut().for_each(|i| i.open_files = 1));
    let (exit, said) = call(&host, "collect", &[], "{}");
    assert_eq!(exit, Exit::Done);
    assert!(said.contains("it is gone, but it is in use"), "{said}");
    assert!(host.path_of(&format!("/run/cgpu/hook/{ID}.json")).exists());
}

#[test]
fn other_containers_do_not_wait_for_one() {
    // The first try fails, a second one would not.
    let host = || with_gone(busy_host()).fail(Op::Destroy, 0, errno(Cause::Busy));
    let left = |host: &Fake| host.names().iter().any(|(name, _)| name == "infer");
    let another = host();
    let (_, said) = call(
        &another,
        "create-runtime",
        &["CGPU_MEM=999GiB", ASKS[1]],
        "{}",
    );
    assert!(left(&another), "tried once");
    assert!(!said.contains("it is gone"), "{said}");

    let own = host();
    let (exit, said) = call(&own, "poststop", &[], "{}");
    assert_eq!((exit, said.as_str()), (Exit::Done, ""));
    assert!(!left(&own), "the container's own end waits");
}

#[test]
fn a_module_that_went_took_the_instance_along() {
    let host = with_gone(busy_host()).fail(Op::Open, 0, Errno::ENOENT);
    let (exit, said) = call(&host, "poststop", &[], "{}");
    assert_eq!((exit, said.as_str()), (Exit::Done, ""));
    assert!(!host.path_of("/run/cgpu/hook").exists());
}

#[test]
fn stdin_must_be_a_containers_state() {
    for point in ["create-runtime", "poststop", "mask-proc"] {
        let (exit, said) = given(&Fake::new(1), point, "");
        assert_eq!(exit, Exit::Usage);
        assert!(said.contains("stdin is not the state"), "{said}");
    }
    let (exit, said) = given(
        &Fake::new(1),
        "create-runtime",
        r#"{"id": "a", "bundle": "/none"}"#,
    );
    assert_eq!(exit, Exit::Failed);
    assert!(said.contains("/none/config.json"), "{said}");
}
