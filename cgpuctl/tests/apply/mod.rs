// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `apply`: the host becomes what the file says, and stays so when it is applied again.

use super::{
    busy_host, done, fails,
    fake::{errno, Fake, Op},
    golden, run,
};
use cgpu_uapi::Cause;
use cgpuctl::exit::Exit;

const FILE: &str = r#"
[[gpu]]
gpu = "0"
policy = "fixed"
burst_ms = 100

[[instance]]
name = "train"
gpus = ["0", "1"]
mem = "16GiB"
weight = 40
caps = "compute,video"
priority = "high"
limits = { objects = 20000 }

[[instance]]
name = "new"
gpus = ["1"]
mem = "25%"
channels = 99
"#;

fn with(fake: Fake, file: &str) -> Fake {
    fake.file("/etc/cgpu.toml", file)
}

#[test]
fn what_differs_is_shown_and_changed() {
    golden(
        "apply",
        || with(busy_host(), FILE),
        "apply -f /etc/cgpu.toml",
    );
    let prune = "apply -f /etc/cgpu.toml --prune --dry-run";
    golden("apply_dry_run", || with(busy_host(), FILE), prune);
}

#[test]
fn a_second_time_nothing_changes() {
    let fake = with(busy_host(), FILE);
    let shown = run(&fake, "apply -f /etc/cgpu.toml --dry-run");
    assert_eq!(fake.names().len(), 3);
    let said = run(&fake, "apply -f /etc/cgpu.toml");
    assert_eq!((said.out, said.err), (shown.out, shown.err));
    assert_eq!(
        done(&fake, "apply -f /etc/cgpu.toml"),
        "Nothing to change.\n"
    );
    // `infer` is not in the file.
    assert_eq!(fake.names().len(), 4);
    assert_eq!(
        done(&fake, "apply -f /etc/cgpu.toml --prune"),
        "- infer on GPU 0\n"
    );
    assert_eq!(
        done(&fake, "apply -f /etc/cgpu.toml --prune"),
        "Nothing to change.\n"
    );
    // The saved file says what is there.
    done(
        &fake,
        "inst set new --weight 7 --clients 50 --host-mem 3GiB --burst 3 --channels 100 --managed deny",
    );
    done(&fake, "inst save /etc/saved.toml");
    assert_eq!(
        done(&fake, "apply -f /etc/saved.toml --prune"),
        "Nothing to change.\n"
    );
    assert_ne!(
        done(&fake, "apply -f /etc/cgpu.toml"),
        "Nothing to change.\n"
    );
}

/// The warnings of a command.
fn warned(fake: &Fake, line: &str) -> Vec<String> {
    let ran = run(fake, line);
    assert_eq!(ran.exit, Exit::Done, "{}", ran.err);
    ran.err.lines().map(str::to_owned).collect()
}

#[test]
fn settings_without_effect_draw_warnings() {
    let instance = |name: &str, terms: &str| {
        let head = format!("[[instance]]\nname = \"{name}\"\ngpus = [\"0\"]\n");
        format!("{head}mem = \"8GiB\"\n{terms}\n")
    };
    let native = "[[gpu]]\ngpu = \"0\"\npolicy = \"native\"\nperiod = \"throughput\"\n";
    let file = native.to_owned()
        + &instance("a", "weight = 30\npriority = \"high\"")
        + &instance("b-", "burst_ms = 0")
        + &instance("c", "");
    let wanted = [
        "the period has no effect on GPU 0",
        "a on GPU 0: a weight has no effect on GPU 0",
        "a on GPU 0: a high priority has no effect",
        "b- on GPU 0: a burst has no effect",
        "there is no CDI device for \"b-\"",
    ];
    let check = |warnings: Vec<String>, wanted: &[&str]| {
        assert_eq!(warnings.len(), wanted.len(), "{warnings:#?}");
        for (said, wanted) in warnings.iter().zip(wanted) {
            let wanted = format!("cgpuctl: warning: {wanted}");
            assert!(said.starts_with(&wanted), "{said}");
        }
    };
    let apply = "apply -f /etc/cgpu.toml";
    let fake = with(Fake::new(1), &file);
    check(warned(&fake, &format!("{apply} --dry-run")), &wanted);
    check(warned(&fake, apply), &wanted);
    check(warned(&fake, apply), &[]);
    let fake = with(Fake::new(1), &file);
    check(warned(&fake, "inst restore /etc/cgpu.toml"), &wanted);
    check(warned(&fake, "inst restore /etc/cgpu.toml"), &wanted[..1]);
    // A policy of the same file counts; so do the weights.
    let fake = with(fake, &file.replace("\"native\"", "\"fixed\""));
    let fixed = [
        "the policy fixed takes weights for percent of GPU 0, and the default weight is \
                  1: b- and c has",
    ];
    check(warned(&fake, &format!("{apply} --dry-run")), &fixed);
    check(warned(&fake, apply), &fixed);
    let fake = with(Fake::new(1), &file.replace("\"native\"", "\"fixed\""));
    let new = [
        "b- on GPU 0: GPU 0 has the policy fixed",
        wanted[4],
        "c on GPU 0: GPU 0 has the policy fixed",
    ];
    check(warned(&fake, apply), &new);
    // An instance that is there is changed.
    let small = file
        .replace("8GiB", "300MiB")
        .replace("\"native\"", "\"weight\"");
    let fake = with(fake, &small);
    let small = ["a", "b-", "c"].map(|name| format!("{name} on GPU 0: a limit of 300 MiB"));
    let small: Vec<_> = small.iter().map(String::as_str).collect();
    check(warned(&fake, apply), &small);
}

#[test]
fn a_policy_can_be_that_of_all_gpus() {
    let file = "[[gpu]]\ngpu = \"all\"\npolicy = \"fixed\"\n";
    let fake = with(Fake::new(2), file);
    let shown = done(&fake, "apply -f /etc/cgpu.toml");
    let each: Vec<_> = shown.lines().collect();
    assert_eq!(
        each,
        [0, 1].map(|n| format!("~ GPU {n}: policy fixed, was weight"))
    );
    // At the next boot the GPUs are as they were.
    let fake = with(Fake::new(2), file);
    done(&fake, "inst restore /etc/cgpu.toml");
    assert_eq!(
        done(&fake, "apply -f /etc/cgpu.toml"),
        "Nothing to change.\n"
    );
}

#[test]
fn room_is_made_before_it_is_taken() {
    let fake = Fake::new(1);
    done(&fake, "inst create a --gpu 0 --mem 100GiB");
    done(&fake, "inst create b --gpu 0 --mem 30GiB");
    let instance = |name: &str, mem: &str| {
        format!("[[instance]]\nname = \"{name}\"\ngpus = [\"0\"]\nmem = \"{mem}\"\n")
    };
    let file = instance("c", "10GiB") + &instance("b", "90GiB") + &instance("a", "40GiB");
    let fake = with(fake, &file);
    let shown = done(&fake, "apply -f /etc/cgpu.toml");
    let order: Vec<_> = shown.lines().map(|line| &line[..3]).collect();
    assert_eq!(order, ["~ a", "~ b", "+ c"]);
}

#[test]
fn two_instances_can_change_places() {
    let fake = Fake::new(1);
    let instance = |name: &str, channels: u32| {
        let head = format!("[[instance]]\nname = \"{name}\"\ngpus = [\"0\"]\n");
        head + &format!("mem = \"1GiB\"\nchannels = {channels}\n")
    };
    let file = instance("a", 100) + &instance("b", 1900);
    let fake = with(fake, &file);
    done(&fake, "apply -f /etc/cgpu.toml");
    let file = instance("b", 100) + &instance("a", 1900);
    let fake = with(fake, &file);
    done(&fake, "apply -f /etc/cgpu.toml");
    let channels = fake.with(|s| {
        s.instances
            .iter()
            .map(|i| i.channel_limit)
            .collect::<Vec<_>>()
    });
    assert_eq!(channels, [1900, 100]);
}

#[test]
fn a_bad_file_changes_nothing() {
    for (file, said) in [
        (
            "[[instance]]\nname = \"a\"\n",
            "/etc/cgpu.toml:1: missing field `gpus`",
        ),
        ("\n\n[[instance]\n", "/etc/cgpu.toml:3: "),
        (
            "[[instance]]\nname=\"a\"\ngpus=[\"0\"]\nmem=\"1\"\n",
            "a: a size needs its unit",
        ),
        (
            "[[instance]]\nname=\"a\"\ngpus=[\"0\"]\nmem=\"1GiB\"\nlimits={host_mem=8}\n",
            "a: host_mem: take a size with its unit, like \"8GiB\"",
        ),
        (
            "[[instance]]\nname=\"a\"\ngpus=[\"0\"]\nmem=\"1GiB\"\nlimits={bar1=\"8\"}\n",
            "a: bar1: a size needs its unit",
        ),
        (
            "[[instance]]\nname=\"a\"\ngpus=[\"0\"]\nmem=\"1GiB\"\nlimits={files=\"8MiB\"}\n",
            "a: files: take a whole number",
        ),
        (
            "[[gpu]]\ngpu=\"0\"\npolicy=\"kind\"\n",
            "take fixed-equal, ",
        ),
    ] {
        let fake = with(busy_host(), file);
        let sentence = fails(&fake, "apply -f /etc/cgpu.toml --prune", Exit::Failed);
        assert!(sentence.contains(said), "{sentence}");
        assert_eq!(fake.names().len(), 3);
    }
    fails(&busy_host(), "apply -f /etc/nothing.toml", Exit::Failed);
}

#[test]
fn a_refused_change_keeps_the_others() {
    let denied = errno(Cause::NotPermitted);
    // For `train` on GPU 0, and again after the others; in between it is set on GPU 1.
    let fake = with(busy_host(), FILE).fail(Op::SetCapabilities, 0, denied);
    let fake = fake.fail(Op::SetCapabilities, 2, denied);
    let ran = run(&fake, "apply -f /etc/cgpu.toml");
    assert_eq!(ran.exit, Exit::Failed);
    assert!(
        ran.err
            .contains("capabilities of instance \"train\" on GPU 0"),
        "{}",
        ran.err
    );
    assert!(
        ran.err
            .contains("was changed back; all other changes were made"),
        "{}",
        ran.err
    );
    // The same instance on the other GPU, and the new one.
    let limits = fake.with(|s| {
        s.instances
            .iter()
            .map(|i| i.memory_limit_bytes >> 30)
            .collect::<Vec<_>>()
    });
    assert_eq!(limits, [24, 16, 8, 35]);
    let shown = done(&fake, "apply -f /etc/cgpu.toml");
    assert!(
        shown
            .lines()
            .all(|line| line.starts_with("~ train on GPU 0:")),
        "{shown}"
    );
}

#[test]
fn instances_of_containers_are_not_pruned() {
    let fake = with(busy_host(), "");
    let entry = r#"{"container":"c","instance":"infer","gpus":[0],"pid":1,"began":0}"#;
    let fake = fake.file("/run/cgpu/hook/c.json", entry);
    let shown = done(&fake, "apply -f /etc/cgpu.toml --prune --dry-run");
    assert_eq!(shown, "- train on GPU 0\n- train on GPU 1\n");
}
