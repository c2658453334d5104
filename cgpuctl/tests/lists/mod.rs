// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The forms of a list, the names of a GPU, versions.

use super::{
    busy_host, done, fails,
    fake::{errno, Fake, Op},
    run,
};
use cgpu_uapi::Cause;
use cgpuctl::exit::Exit;
use insta::{assert_snapshot, with_settings};
use nix::errno::Errno;

#[test]
fn a_list_can_be_names_or_json() {
    let fake = busy_host();
    let done = |line: &str| done(&fake, line);
    for line in ["inst list -q", "inst ls -o name", "ls -q"] {
        // `train` is on two GPUs.
        assert_eq!(done(line), "infer\ntrain\n", "{line}");
    }
    assert_eq!(done("gpu list --quiet"), "0\n1\n");
    with_settings!({ omit_expression => true, snapshot_path => "../snapshots" }, {
        assert_snapshot!("gpu_list_wide", done("gpu list -o wide"));
        assert_snapshot!("inst_list_wide", done("inst list -o wide"));
    });
    for list in ["inst list", "gpu list", "ls"] {
        assert_eq!(
            done(&format!("{list} -o json")),
            done(&format!("{list} --json"))
        );
    }
    let gone = busy_host().fail(Op::Open, 0, Errno::ENOENT);
    let ran = run(&gone, "gpu list -o json");
    assert!(ran.out.contains("module_not_loaded"), "{}", ran.out);
    assert_eq!(run(&Fake::new(0), "ls -q").out, "");
}

#[test]
fn the_tool_has_a_version_without_the_module() {
    let gone = busy_host().fail(Op::Open, 0, Errno::ENOENT);
    assert!(done(&gone, "version").contains("not loaded"));
    let driverless = Fake::new(0).fail(Op::Gpus, 0, errno(Cause::DriverMissing));
    assert!(done(&driverless, "version").contains("not known"));
    assert!(done(&driverless, "version").contains("module         0.1.0"));
    for cause in [Cause::UnknownDriver, Cause::NoKernelInterface] {
        let host = Fake::new(1).fail(Op::Gpus, 0, errno(cause));
        assert!(done(&host, "version").contains("module         0.1.0"));
    }
}

#[test]
fn a_gpu_is_named_as_nvidia_smi_does() {
    let fake = Fake::new(2);
    // Minors are in the other order.
    fake.with(|s| s.gpus[0].pci[..12].copy_from_slice(b"0000:ff:00.0"));
    done(&fake, "inst create a --gpu index:0 --mem 1GiB");
    assert_eq!(fake.names(), [("a".to_owned(), 1)]);
    done(&fake, "inst create b --gpu all --mem 1GiB");
    done(&fake, "inst set a --gpu all --weight 7");
    done(&fake, "inst set b --gpu all --weight 7");
    assert!(fake.with(|s| s.instances.iter().all(|i| i.weight == 7)));
    done(&fake, "rm a");
    fails(
        &fake,
        "inst create c --gpu index:2 --mem 1GiB",
        Exit::NotFound,
    );
    fails(&fake, "inst create c --gpu all,0 --mem 1GiB", Exit::Usage);
    fails(
        &Fake::new(0),
        "inst create c --gpu all --mem 1GiB",
        Exit::NotFound,
    );
}
