// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set` and `gpu set`: all that is named is changed, or nothing.

use super::{
    busy_host, done, fails,
    fake::{errno, Fake, Op},
    run,
};
use cgpu_fake::H200;
use cgpu_uapi::{capability, Cause, Instance};
use cgpuctl::exit::Exit;
use nix::errno::Errno;
use zerocopy::IntoBytes;

/// All that can be set of the instances.
fn settings(fake: &Fake) -> Vec<Vec<u8>> {
    fake.with(|s| {
        let instances = s.instances.iter().map(|i| i.as_bytes().to_vec());
        let compute = s.compute.values().map(|c| c.as_bytes().to_vec());
        let limits = s.limits.values().map(|l| l.as_bytes().to_vec());
        instances.chain(compute).chain(limits).collect()
    })
}

#[test]
fn settings_that_are_refused_leave_none_changed() {
    let refused = |line: &str, end: &str| {
        let fake = busy_host();
        let before = settings(&fake);
        let sentence = fails(&fake, line, Exit::Refused);
        assert!(sentence.ends_with(end), "{sentence}");
        assert_eq!(settings(&fake), before, "{line}");
    };
    let back = "; what this command had changed before was changed back\n";
    refused(
        "inst set infer --mem 10GiB --weight 7 --channels 2044",
        back,
    );
    // Nothing was changed before the first.
    refused(
        "inst set infer --mem 117GiB --weight 7",
        "or pass --overcommit\n",
    );
    // The memory taken from GPU 1 is given back, although the GPU's is overcommitted.
    let fake = busy_host();
    done(&fake, "inst create big --gpu 1 --mem 120GiB --overcommit");
    done(&fake, "inst create third --gpu 0 --mem 1GiB");
    let before = settings(&fake);
    let line = "inst set train --gpu 1,0 --mem 20GiB --channels 1800";
    let sentence = fails(&fake, line, Exit::Refused);
    assert!(sentence.contains("on GPU 0:"), "{sentence}");
    assert_eq!(settings(&fake), before);
}

#[test]
fn limit_can_be_a_percentage() {
    let fake = Fake::new(2);
    fake.with(|s| s.gpus[1].memory_bytes = 10 << 30);
    let limits = || {
        fake.with(|s| {
            s.instances
                .iter()
                .map(|i| i.memory_limit_bytes)
                .collect::<Vec<_>>()
        })
    };
    done(&fake, "inst create a --gpu all --mem 50%");
    assert_eq!(limits(), [H200 / 2, 5 << 30]);
    done(&fake, "inst set a --gpu all --mem 100%");
    assert_eq!(limits(), [H200, 10 << 30]);
    done(&fake, "inst set-mem a 10% --gpu 1");
    assert_eq!(limits(), [H200, 1 << 30]);
    fails(&fake, "inst create b --gpu 1 --mem 91%", Exit::Refused);
    let away = fake.fail(Op::Gpus, 0, errno(Cause::DriverMissing));
    fails(&away, "inst set-mem a 20% --gpu 1", Exit::Driver);
}

#[test]
fn capabilities_are_called_caps_too() {
    let fake = busy_host();
    done(&fake, "inst create new --gpu 1 --mem 2GiB --caps video");
    done(&fake, "inst set train --gpu 0 --caps video");
    let is_video = |i: &&Instance| i.capabilities == capability::VIDEO;
    let changed = fake.with(|s| s.instances.iter().filter(is_video).count());
    assert_eq!(changed, 2);
}

#[test]
fn each_setting_is_changed_back_by_itself() {
    let all = "--mem 9GiB --weight 40 --priority high --caps video --managed deny --channels 200 \
               --clients 99 --objects 20000 --events 100 --bar1 64MiB --host-mem 8GiB \
               --files 5000 --mappings 64 --exports 2000";
    // Of `train` the limit of objects was set before; here its managed memory and burst were too.
    let host = || {
        let fake = busy_host();
        done(&fake, "inst set train --gpu 0 --managed charge --burst 50");
        fake
    };
    // The priority is set first, the burst is refused.
    let fake = host().fail(Op::SetCompute, 1, Errno::EIO);
    let before = settings(&fake);
    let line = format!("inst set train --gpu 0 {all} --burst 500");
    fails(&fake, &line, Exit::Failed);
    assert_eq!(settings(&fake), before);
    run(&fake, &line);
    assert_ne!(settings(&fake), before);
}

#[test]
fn a_setting_that_stays_changed_is_named() {
    let fake =
        busy_host()
            .fail(Op::SetMemory, 1, Errno::EIO)
            .fail(Op::SetCapabilities, 0, Errno::EIO);
    let line = "inst set infer --mem 10GiB --weight 7 --caps video";
    let sentence = fails(&fake, line, Exit::Failed);
    let end =
        "; this command had changed the memory limit on GPU 0 before, and could not change it \
               back\n";
    assert!(sentence.ends_with(end), "{sentence}");
    let infer = fake.with(|s| s.instances[2]);
    assert_eq!((infer.memory_limit_bytes, infer.weight), (10 << 30, 1));
}

/// The policy, period and burst of each GPU.
fn rules(fake: &Fake) -> Vec<(u32, u32, u32)> {
    let of = |gpu: &cgpu_uapi::GpuCompute| (gpu.policy, gpu.period, gpu.burst_ms);
    fake.with(|s| s.gpu_compute.values().map(of).collect())
}

#[test]
fn rules_of_all_gpus_change_or_none() {
    let fake = Fake::new(2);
    done(&fake, "gpu set 1 --burst 50");
    done(&fake, "gpu set all --period interactive");
    assert_eq!(rules(&fake), [(2, 2, 200), (2, 2, 50)]);
    done(&fake, "gpu set-policy all equal");
    assert_eq!(rules(&fake), [(1, 2, 200), (1, 2, 50)]);
    // The third is refused: of two GPUs two were set before.
    let refused = |fake: Fake, kept: &str| {
        let sentence = fails(&fake, "gpu set 1,0 --policy weight --burst 9", Exit::Failed);
        assert!(
            sentence.contains("cannot change the rules of GPU 0"),
            "{sentence}"
        );
        assert!(sentence.trim_end().ends_with(kept), "{sentence}");
        rules(&fake)
    };
    let fake = fake.fail(Op::SetCompute, 1, Errno::EIO);
    let back = "; what this command had changed before was changed back";
    assert_eq!(refused(fake.clone(), back), [(1, 2, 200), (1, 2, 50)]);
    let fake = Fake::new(2)
        .fail(Op::SetCompute, 1, Errno::EIO)
        .fail(Op::SetCompute, 2, Errno::EIO);
    let kept = "; this command had changed GPU 1 before, and could not change it back";
    assert_eq!(refused(fake, kept)[1].2, 9);
    fails(&Fake::new(2), "gpu set 0,0 --policy weight", Exit::Usage);
}
