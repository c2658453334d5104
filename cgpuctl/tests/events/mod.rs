// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `events`: each thing that becomes of an instance is one line.

use super::{busy_host, done, fails, fake::Fake, run};
use cgpuctl::{command::events::follow, exit::Exit};
use std::time::Duration;

/// A host on which something changes in each pause.
fn eventful_host() -> Fake {
    let fake = busy_host();
    fake.with(|s| {
        s.changes = vec![
            |_| {},
            |fake| drop(done(fake, "inst create new --gpu 1 --mem 4GiB")),
            |fake| {
                drop(run(
                    fake,
                    "inst set new --mem 5GiB --weight 7 --priority high --burst 9",
                ))
            },
            |fake| {
                fake.with(|s| {
                    s.instances[0].memory_refused += 2;
                    s.instances[0].calls_refused += 1;
                });
            },
            |fake| {
                let rules = "--period interactive --max-instances 4 --priority-percent 9 --burst 7";
                drop(run(fake, &format!("gpu set-policy 0 fair {rules}")));
            },
            |fake| {
                done(fake, "inst set infer --clients 50 --bar1 64MiB");
                // The defaults follow the memory limit, and nobody set them.
                fake.with(|s| {
                    let id = s.instances[2].id;
                    let limits = s.limits.get_mut(&id).expect("beside the instance");
                    limits[1].limit += 1;
                    limits[4].refused += 3;
                });
            },
            |fake| drop(done(fake, "inst set infer --clients default")),
            |fake| drop(done(fake, "inst suspend infer")),
            // One of the same name in one pause is another one.
            |fake| {
                done(fake, "inst destroy new");
                done(fake, "inst create new --gpu 1 --mem 4GiB");
            },
        ];
    });
    fake
}

/// The lines of so many events, without their time.
fn lines(count: usize, json: bool) -> Vec<String> {
    let mut out = Vec::new();
    let fake = eventful_host();
    follow(&fake, Duration::from_secs(1), Some(count), json, &mut out).expect("followed");
    let text = String::from_utf8(out).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn each_change_of_an_instance_is_a_line() {
    let said: Vec<_> = lines(19, false)
        .iter()
        .map(|line| line.split_once("Z  ").expect("a time").1.to_owned())
        .collect();
    assert_eq!(
        said,
        [
            "created    new on GPU 1  memory limit 4 GiB, weight 1",
            "changed    new on GPU 1  memory limit 5 GiB, was 4 GiB",
            "changed    new on GPU 1  weight 7, was 1",
            "changed    new on GPU 1  priority high, was normal",
            "changed    new on GPU 1  burst 9 ms, was that of the GPU",
            "refused    train on GPU 0  2 allocations, for want of memory",
            "refused    train on GPU 0  1 calls; `cgpuctl inst show NAME --refused` has them",
            "changed    GPU 0  policy fixed-equal, was weight",
            "changed    GPU 0  period interactive, was latency",
            "changed    GPU 0  max_instances 4, was 16",
            "changed    GPU 0  priority_percent 9, was 80",
            "changed    GPU 0  burst 7 ms, was 200 ms",
            "changed    infer on GPU 0  limit of clients 50, was default",
            "changed    infer on GPU 0  limit of bar1 64 MiB, was default",
            "refused    infer on GPU 0  3 at the limit of host_mem",
            "changed    infer on GPU 0  limit of clients default, was 50",
            "changed    infer on GPU 0  suspended yes, was no",
            "destroyed  new on GPU 1",
            "created    new on GPU 1  memory limit 4 GiB, weight 1",
        ]
    );
}

#[test]
fn each_line_is_an_object_for_programs() {
    let read = |line: &String| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let said: Vec<_> = lines(8, true).iter().map(read).collect();
    assert_eq!(said[0]["schema"], 1);
    assert_eq!(said[0]["event"], "created");
    assert_eq!(
        (&said[0]["name"], &said[0]["gpu_minor"]),
        (&"new".into(), &1.into())
    );
    assert!(said[0]["time_s"].as_u64().expect("a time") > 1_700_000_000);
    assert_eq!(said[0]["detail"], "memory limit 4 GiB, weight 1");
    assert_eq!(said[7]["name"], serde_json::Value::Null);
}

#[test]
fn events_fail_when_the_module_goes() {
    let fake = Fake::new(1);
    fake.with(|s| s.unloaded = true);
    fails(&fake, "events", Exit::NotLoaded);
}
