// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `bug-report`: what is in the file, and what is not.

use super::{busy_host, done, fails, fake::Fake, run};
use cgpuctl::{exit::Exit, host::Host};
use nix::errno::Errno;
use std::{collections::BTreeMap, io::Read, os::unix::fs::PermissionsExt, path::Path};

const SECRET: &str = "hunter2";

/// The kernel's messages that are taken.
const MESSAGES: &str = "\
[1] cgpu_km: train
[2] NVRM: Xid 31
[3] nvidia-uvm: Loaded the UVM driver
[4] nvidia_drm: module license
[5] nvidia 0000:29:00.0: enabling device
[6] cgpu-hook: no memory
";

/// Those that are not, though each has a word of ours.
const OTHER_MESSAGES: &str = "\
[10] Command line: root=/dev/sda1 nvidia.x=1 key=hunter2
[11] Kernel command line: cgpu_km.x=1 key=hunter2
[12] Unknown kernel command line parameters \"nvidia=hunter2\", will be passed to user space.
[13]     nvidia=hunter2
[14] audit: type=1400 comm=\"nvidia-smi\" name=\"hunter2\"
[15] systemd[1]: hunter2: NVRM: cgpu_km: x
";

/// A host with a secret in each place that has some.
fn host() -> Fake {
    let fake = busy_host();
    fake.root();
    fake.with(|s| {
        let mut put = |path: &str, text: &str| s.texts.insert(path.into(), text.to_owned());
        put("/proc/4711/environ", &format!("TOKEN={SECRET}\0"));
        put(
            "/proc/4711/cmdline",
            &format!("python3\0--password\0{SECRET}\0"),
        );
        put("/proc/cmdline", &format!("root=/dev/sda1 key={SECRET}"));
        put("/proc/sys/kernel/hostname", SECRET);
        put("/etc/docker/daemon.json", SECRET);
        put(
            "/proc/cgpu_km/0/train/meminfo",
            "Free: 1\nPID: 4711 Mem: 9\n",
        );
        put("/proc/modules", "cgpu_km 1 0\nsnd 1 0\nnvidia_uvm 1 0\n");
        put("/dev/kmsg", &(MESSAGES.to_owned() + OTHER_MESSAGES));
        put("/sys/module/cgpu_km/parameters/unsafe_assume_branch", "0\n");
        put("/etc/os-release", "ID=debian\n");
    });
    fake
}

/// The files of the archive.
fn contents(path: &Path) -> BTreeMap<String, String> {
    let file = std::fs::File::open(path).expect("written");
    let mut archive = tar::Archive::new(file);
    let read = |entry: std::io::Result<tar::Entry<'_, std::fs::File>>| {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a path").display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (name, text)
    };
    archive.entries().expect("entries").map(read).collect()
}

#[test]
fn bug_report_has_facts_and_no_secret() {
    let fake = host();
    std::fs::create_dir_all(fake.path_of("/tmp")).expect("made");
    let said = done(&fake, "bug-report --to-file /tmp/report.tar");
    assert!(said.starts_with("/tmp/report.tar: 20 files;"), "{said}");
    let path = fake.path(Path::new("/tmp/report.tar"));
    let mode = path.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let files = contents(&path);
    assert_eq!(files.len(), 20);
    let file = |name: &str| files[&format!("cgpu-bug-report/{name}")].as_str();
    let status: serde_json::Value =
        serde_json::from_str(file("cgpuctl/status.json")).expect("JSON");
    assert_eq!(status["instances"].as_array().map(Vec::len), Some(3));
    assert!(file("cgpuctl/doctor.json").contains("findings"));
    assert_eq!(file("kernel-log"), MESSAGES);
    assert_eq!(file("proc/modules"), "cgpu_km 1 0\nnvidia_uvm 1 0\n");
    assert_eq!(file("etc/os-release"), "ID=debian\n");
    assert_eq!(
        file("sys/module/cgpu_km/parameters/unsafe_assume_branch"),
        "0\n"
    );
    assert!(file("proc/version").contains("cannot be read"));
    for (name, text) in &files {
        assert!(!text.contains(SECRET), "{name}: {text}");
    }
}

#[test]
fn bug_report_names_gaps_and_overwrites_nothing() {
    let fake = host();
    fake.with(|s| s.unloaded = true);
    let fake = fake.file("/tmp/there.tar", "mine");
    let sentence = fails(&fake, "bug-report --to-file /tmp/there.tar", Exit::Failed);
    assert!(
        sentence.contains(&format!("{:?}", Errno::EEXIST)),
        "{sentence}"
    );
    let ran = run(&fake, "bug-report --to-file /tmp/new.tar --json");
    let json: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(json["output"], "/tmp/new.tar");
    assert_eq!(json["contents"][0], "cgpu-bug-report/cgpuctl/version.json");
    let files = contents(&fake.path_of("/tmp/new.tar"));
    let status = &files["cgpu-bug-report/cgpuctl/status.json"];
    assert!(
        status.contains("cannot report the status: the module cgpu_km is not loaded"),
        "{status}"
    );
}
