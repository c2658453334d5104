// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The program's three roles as the chart starts them: in a place without an apiserver each gets
//! as far as asking for one, or says which argument it lacks.

use cgpu_dra::{names::DRIVER, slots::Profile};
use std::{
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Runs the program with these variables and arguments, and nothing else.
fn run(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cgpu-dra"))
        .env_clear()
        .env("HOME", "/nonexistent")
        .envs(variables.iter().copied())
        .args(arguments)
        .output()
        .expect("run")
}

/// The program's words when it fails.
fn failure(variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let ended = run(variables, arguments);
    assert!(!ended.status.success(), "{ended:?}");
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

const NODE: (&str, &str) = ("NODE_NAME", "node-1");
const NO_CLUSTER: &str = "cannot find the apiserver";

#[test]
fn the_driver_takes_its_node_from_either_place() {
    let folder = std::env::temp_dir().join(format!("cgpu-program-{}", std::process::id()));
    let state = format!("--state={}", folder.display());
    let chart = ["--metrics=127.0.0.1:0", "--metrics-login", &state];
    for said in [
        failure(&[NODE, ("OVERCOMMIT", "100")], &chart),
        failure(&[NODE], &[&state]),
        failure(&[], &["--node=node-1", &state]),
    ] {
        assert!(said.contains(NO_CLUSTER), "{said}");
    }
    let allowed = failure(
        &[NODE],
        &[
            &state,
            "--allow-capabilities=rdma,graphics",
            "--allow-priority=high",
            "--allow-burst=1000",
        ],
    );
    assert!(allowed.contains(NO_CLUSTER), "{allowed}");
    let no_port = failure(&[NODE], &[&state, "--metrics-login"]);
    assert!(no_port.contains("--metrics <ADDRESS:PORT>"), "{no_port}");
    let odd = failure(&[NODE], &[&state, "--allow-priority=higher"]);
    assert!(odd.contains("a priority is normal or high"), "{odd}");
    let long = failure(&[NODE], &[&state, "--allow-burst=10001"]);
    assert!(long.contains("10001 is not in"), "{long}");
    for variables in [&[][..], &[("NODE_NAME", "")]] {
        let said = failure(variables, &chart);
        assert!(said.contains("set --node or NODE_NAME"), "{said}");
    }
}

#[test]
fn the_other_roles_need_no_node() {
    let webhook = ["webhook", "--listen=127.0.0.1:0"];
    let said = failure(&[], &webhook);
    assert!(said.contains("--certificate"), "{said}");
    let files = ["--certificate=/nonexistent", "--key=/nonexistent"];
    let all = [&webhook[..], &files].concat();
    for path in [&[][..], &[("WEBHOOK_PATH", "")]] {
        let said = failure(path, &all);
        assert!(said.contains("--path <PATH>"), "{said}");
    }
    let secret = [NODE, ("WEBHOOK_PATH", "secret")];
    // The limits of what claims may ask for are options of it, as of the driver.
    for (burst, words) in [("1000", NO_CLUSTER), ("10001", "10001 is not in")] {
        let burst = format!("--allow-burst={burst}");
        let said = failure(&secret, &[&all[..], &[&burst]].concat());
        assert!(said.contains(words), "{said}");
    }
    let said = failure(&[], &["device-plugin"]);
    assert!(said.contains("--profile"), "{said}");
    let said = failure(&[], &["device-plugin", "--profile=8g=8Gi:20"]);
    assert!(said.contains("8g=8Gi:20:4"), "{said}");
    let two = ["--profile=8g=8Gi:20:4", "--profile=8g=4Gi:5:1"];
    let said = failure(&[], &[&["device-plugin"], &two[..]].concat());
    assert!(said.contains("the profile 8g is there twice"), "{said}");
    let said = failure(
        &[],
        &[
            "--metrics=127.0.0.1:0",
            "device-plugin",
            "--profile=8g=8Gi:20:4",
        ],
    );
    assert!(said.contains("cannot be used with"), "{said}");
}

/// It may open many files, though 1024 are usual, and nothing stays of a process before it.
#[test]
fn a_start_makes_room() {
    let folder = std::env::temp_dir().join(format!("cgpu-files-{}", std::process::id()));
    let within = |name: &str| format!("--{name}={}", folder.join(name).display());
    // An earlier one was killed in the midst of writing these.
    let litter = [
        "state/last-record.1.new",
        "state/claims/7b2ea4b2-0000-4000-8000-00000000000f.1.new",
        "state/failed/0000:65:00.1.new",
        "cdi/cgpu.io-claim-7b2ea4b2-0000-4000-8000-00000000000f.1.new",
        "cdi/cgpu.io-slot.4711.new",
    ];
    // And others are at work on these.
    let foreign = ["cdi/cgpu.4711.new", "cdi/nvidia.1.new"];
    for name in litter.into_iter().chain(foreign) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, "{").expect("written");
    }
    let mut running = Command::new("sh")
        .args(["-c", "ulimit -Sn 64; ulimit -Hn 500; exec \"$0\" \"$@\""])
        .args([env!("CARGO_BIN_EXE_cgpu-dra"), "device-plugin"])
        .arg("--profile=8g=8Gi:20:4")
        .args(["state", "cdi", "device-plugins"].map(within))
        .stderr(Stdio::null())
        .spawn()
        .expect("run");
    let limits = format!("/proc/{}/limits", running.id());
    let files = || {
        let text = std::fs::read_to_string(&limits).expect("it runs");
        let line = text.lines().find(|line| line.starts_with("Max open files"));
        let line = line.expect("a limit").split_whitespace();
        let numbers: Vec<_> = line.skip(3).take(2).map(str::to_owned).collect();
        numbers
    };
    let began = Instant::now();
    let left = || litter.into_iter().filter(|name| folder.join(name).exists());
    while (files() != ["500", "500"] || left().count() > 0)
        && began.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (raised, left) = (files(), left().collect::<Vec<_>>());
    let kept = foreign.map(|name| folder.join(name).exists());
    running.kill().expect("stopped");
    running.wait().expect("ended");
    let _ = std::fs::remove_dir_all(folder);
    assert_eq!(raised, ["500", "500"]);
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(kept, [true, true]);
}

/// Slices and claims it lists and watches.
#[test]
fn the_driver_gets_nodes_alone() {
    let rules = include_str!("../../dist/helm/cgpu/templates/rbac.yaml");
    let mut resources = "";
    for line in rules.lines().map(str::trim) {
        resources = line.strip_prefix("resources: ").unwrap_or(resources);
        let verbs = line.strip_prefix("verbs: ").unwrap_or_default();
        assert!(
            !verbs.contains("get") || resources == "[nodes]",
            "{resources}"
        );
    }
    assert_eq!(rules.matches("verbs: ").count(), 7);
}

/// Below the kubelet's folder of plugins are the volumes of CSI drivers.
#[test]
fn the_chart_mounts_no_foreign_volumes() {
    let chart = include_str!("../../dist/helm/cgpu/templates/daemonset.yaml");
    let whole = chart.lines().filter(|line| line.ends_with("/plugins"));
    let whole: Vec<_> = whole.map(str::trim).collect();
    assert_eq!(whole, ["- --plugins={{ .Values.kubeletRoot }}/plugins"]);
    let own = format!("/plugins/{DRIVER}\n");
    assert_eq!(chart.matches(&own).count(), 2);
}

/// By the names that the program gives its sockets, and with the options that it has.
#[test]
fn the_chart_probes_each_role() {
    let chart = include_str!("../../dist/helm/cgpu/templates/daemonset.yaml");
    let command: Vec<_> = chart
        .lines()
        .skip_while(|line| !line.contains("command:"))
        .take_while(|line| !line.contains("periodSeconds"))
        .collect();
    let command = command.join("\n");
    let plugin: Profile = "8g=8Gi:20:4".parse().expect("read");
    let name = "{{ splitList \"=\" . | first }}";
    for socket in [
        format!("/plugins/{DRIVER}/dra.sock"),
        format!("/device-plugins/{}", plugin.socket().replace("8g", name)),
    ] {
        assert!(command.contains(&socket), "{socket} is not in {command}");
    }
    assert!(
        command.contains("- /cgpu-dra\n            - probe\n"),
        "{command}"
    );
    let probes = "dict \"livenessProbe\" \"\" \"readinessProbe\" \"--ready\"";
    assert!(chart.contains(probes));
    let said = failure(&[], &["probe", "--ready", "/nonexistent"]);
    assert!(said.contains("cannot connect to /nonexistent"), "{said}");
    assert!(failure(&[], &["probe"]).contains("<SOCKET>"));
}
