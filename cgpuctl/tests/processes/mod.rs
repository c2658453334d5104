// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `ps`: who holds memory of which instance.

use super::{busy_host, done, fails, fake::Fake, golden};
use cgpuctl::exit::Exit;

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
fn ps_of_nobody_is_an_error() {
    fails(&host(), "ps nobody", Exit::NotFound);
    // An instance that is destroyed between two calls has no processes.
    assert_eq!(done(&busy_host(), "ps"), "No process holds memory.\n");
}
