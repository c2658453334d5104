// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `ps`: who holds memory of which instance. `run`: a program with an instance of its own.

use super::{
    busy_host, done, fails,
    fake::{errno, Fake, Op},
    golden, run,
};
use cgpu_uapi::Cause;
use cgpuctl::{cli::Cli, exit::Exit};
use clap::Parser;
use nix::errno::Errno;
use std::io::Write;

/// Two processes on GPU 0, one of them in a container, one on GPU 1 that has ended since.
fn host() -> Fake {
    let id = "5e1f".repeat(16);
    let fake = busy_host();
    fake.with(|s| {
        let mut put = |path: &str, text: &str| s.texts.insert(path.into(), text.to_owned());
        let free = "Free: 1024\n";
        let two = format!("{free}PID: 4711 Mem: 2147483648\nPID: 4712 Mem: 8589934592\n");
        put("/proc/cgpu_km/0/train/meminfo", &two);
        put(
            "/proc/cgpu_km/1/train/meminfo",
            &format!("{free}PID: 99 Mem: 4096\n"),
        );
        put("/proc/cgpu_km/0/infer/meminfo", free);
        put("/proc/4711/comm", "python3\n");
        put("/proc/4711/cmdline", "python3\0train.py\0--lr\0\x1b[2J\0");
        put(
            "/proc/4711/cgroup",
            &format!("0::/machine.slice/libpod-{id}.scope\n"),
        );
        put("/proc/4712/comm", "nccl-tests\n");
        put("/proc/4712/cmdline", "./nccl-tests\0");
        put("/proc/4712/cgroup", "0::/user.slice\n");
    });
    fake
}

#[test]
fn processes_are_told_with_their_container() {
    golden("ps", host, "ps");
    golden("ps_wide", host, "ps train --wide");
    golden("ps_none", host, "ps infer");
}

#[test]
fn ps_is_a_list_like_others() {
    let host = host();
    assert_eq!(done(&host, "ps -q"), "99\n4711\n4712\n");
    for (one, other) in [
        ("ps -q", "ps train -o name"),
        ("ps -o json", "ps --json"),
        ("ps train --wide", "ps train -o wide"),
        ("ps -w", "ps -o wide"),
    ] {
        assert_eq!(done(&host, one), done(&host, other), "{one}");
    }
    assert_eq!(done(&host, "ps infer -q"), "");
}

#[test]
fn ps_of_nobody_is_an_error() {
    fails(&host(), "ps nobody", Exit::NotFound);
    // An instance that is destroyed between two calls has no processes.
    assert_eq!(done(&busy_host(), "ps"), "No process holds memory.\n");
}

/// Names of the files of the journal.
fn journal(fake: &Fake) -> usize {
    let folder = std::fs::read_dir(fake.path_of("/run/cgpu/hook"));
    folder.map_or(0, Iterator::count)
}

#[test]
fn a_program_has_its_instance_while_it_runs() {
    let fake = Fake::new(1);
    let ran = run(&fake, "run --mem 600MiB -- python3 -c print --json");
    assert_eq!(ran.exit, Exit::Program(7));
    assert_eq!(ran.exit.code(), 7);
    assert_eq!(ran.out, "");
    assert!(
        ran.err.contains("warning: a limit of 600 MiB"),
        "{}",
        ran.err
    );
    let name = format!("run-{}", std::process::id());
    fake.with(|s| {
        let ran = &s.ran[0];
        assert_eq!(ran.program, ["python3", "-c", "print", "--json"]);
        assert_eq!(ran.names, [(name.clone(), 0)]);
        let places: Vec<_> = ran.mounts.iter().map(|m| &*m.destination).collect();
        assert_eq!(
            places,
            ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]
        );
        assert_eq!(
            ran.mounts[0].source,
            format!("/run/cgpu/dev/{name}/nvidia0")
        );
    });
    assert_eq!(fake.names(), []);
    assert_eq!(journal(&fake), 0);
}

/// Notes how many programs had run when something was said.
struct Listener(Fake, Vec<usize>);

impl Write for Listener {
    fn write(&mut self, said: &[u8]) -> std::io::Result<usize> {
        self.1.push(self.0.with(|s| s.ran.len()));
        Ok(said.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn warnings_come_before_the_program_runs() {
    let fake = Fake::new(1);
    let line = ["cgpuctl", "run", "--mem", "600MiB", "--", "sh"];
    let cli = Cli::try_parse_from(line).expect("a command line");
    let mut err = Listener(fake.clone(), vec![]);
    let exit = cgpuctl::run(&cli, &fake, &mut std::io::sink(), &mut err);
    assert_eq!(exit, Exit::Program(7));
    assert!(!err.1.is_empty() && err.1.iter().all(|ran| *ran == 0));
}

#[test]
fn a_failure_before_the_program_leaves_nothing() {
    for (op, after) in [(Op::Compute, 0), (Op::Instances, 1)] {
        let fake = Fake::new(1).fail(op, after, Errno::EIO);
        fails(&fake, "run --mem 2GiB -- sh", Exit::Failed);
        assert_eq!((fake.names(), journal(&fake)), (vec![], 0), "{op:?}");
        assert!(fake.with(|s| s.ran.is_empty()));
    }
}

#[test]
fn a_program_that_does_not_run_leaves_nothing() {
    let fake = Fake::new(2).fail(Op::Program, 0, Errno::ENOENT);
    let sentence = fails(
        &fake,
        "run --gpu 0,1 --mem 8GiB --name try -- nobody",
        Exit::Failed,
    );
    assert!(
        sentence.contains("cannot run nobody: starting"),
        "{sentence}"
    );
    assert_eq!((fake.names(), journal(&fake)), (vec![], 0));
    let sentence = fails(&fake, "run --mem 8GiB -- sh", Exit::Usage);
    assert!(sentence.contains("GPUs 0 and 1"), "{sentence}");
    fails(&fake, "run --gpu 0 --mem 999GiB -- sh", Exit::Refused);
    assert_eq!((fake.names(), journal(&fake)), (vec![], 0));
    // Somebody else's instance is neither used nor removed.
    done(&fake, "inst create mine --gpu 0 --mem 1GiB");
    fails(
        &fake,
        "run --gpu 1 --mem 1GiB --name mine -- sh",
        Exit::Refused,
    );
    assert_eq!(fake.names(), [("mine".to_owned(), 0)]);
    // A child that stays behind keeps the instance; the journal remembers it.
    let kept = Fake::new(1).fail(Op::Destroy, 0, errno(Cause::NotPermitted));
    fails(&kept, "run --mem 1GiB -- sh", Exit::NotPermitted);
    assert_eq!((kept.names().len(), journal(&kept)), (1, 1));
    let entry = format!("/run/cgpu/hook/process-{}.json", std::process::id());
    let entry = std::fs::read_to_string(kept.path_of(&entry)).expect("an entry");
    let id = kept.with(|s| s.instances[0].id);
    assert!(entry.contains(&format!("\"ids\":[{id}]")), "{entry}");
}
