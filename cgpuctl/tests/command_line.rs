// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The program itself: help, usage errors, completions. And the documentation, held against the
//! code.

use cgpu_uapi::{request, Cause};
use cgpuctl::{cli::Cli, command::man::pages, error::Problem, exit::Exit};
use clap::CommandFactory;
use insta::{assert_snapshot, with_settings};
use nix::errno::Errno;
use std::{
    path::Path,
    process::{Command, Output},
};

fn cgpuctl(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cgpuctl"))
        .args(line.split_whitespace())
        .env("COLUMNS", "100")
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn help_of_every_command() {
    fn all(command: &mut clap::Command, path: &str, text: &mut String) {
        *text += &format!("==== {path} --help\n{}\n", command.render_long_help());
        for sub in command.get_subcommands_mut() {
            if sub.get_name() != "help" {
                let path = format!("{path} {}", sub.get_name());
                all(sub, &path, text);
            }
        }
    }
    let mut command = Cli::command();
    command.build();
    let mut text = String::new();
    all(&mut command, "cgpuctl", &mut text);
    with_settings!({ omit_expression => true }, { assert_snapshot!("help", text) });
}

#[test]
fn usage_errors_exit_2_with_advice() {
    let mut all = String::new();
    for line in [
        "",
        "inst",
        "frobnicate",
        "gpu list --verbose",
        "gpu list -o names",
        "inst list -q -o wide",
        "inst list -q --json",
        "gpu set 0",
        "gpu set --period interactive",
        "gpu set 0 --burst 10001",
        "gpu set 0,nvidia1 --policy fixed",
        "cdi generate -o json",
        "inst create",
        "inst create a --mem 1GiB",
        "inst create a --gpu 0",
        "inst create a --gpu 0 --mem 8",
        "inst create a --gpu 0 --mem 8G",
        "inst create a --gpu 0 --mem 120%",
        "inst create a --gpu 0 --mem 0GiB",
        "inst create a --gpu 0 --mem lots",
        "inst create a --gpu nvidia0 --mem 8GiB",
        "inst create -a --gpu 0 --mem 8GiB",
        "inst create ../a --gpu 0 --mem 8GiB",
        "inst create a --gpu 0 --mem 8GiB --weight 0",
        "inst create a --gpu 0 --mem 8GiB --host-mem 8",
        "inst create a --gpu 0 --mem 8GiB --host-mem 50%",
        "inst create a --gpu 0 --mem 8GiB --weight 101",
        "inst set a",
        "inst set a --overcommit",
        "inst set a --weight 0",
        "inst set a --objects 0",
        "inst set a --clients 64MiB",
        "inst set a --bar1 64",
        "inst set a --bar1 17179869184GiB",
        "inst set-limit a clients 64MiB",
        "inst set-limit a host_mem 8",
        "inst set-limit a gates 8",
        "inst set-weight a 0",
        "inst set-mem a",
        "inst mounts a --format lxc",
        "inst mounts a --format podman --json",
        "completions tcsh",
        "metrics --listen 0.0.0.0:9400",
        "metrics --listen 9400",
        "run --mem 8GiB",
        "run -- sh",
        "run --mem 8GiB --json -- sh",
        "cdi generate --watch",
        "list --capabilities everything",
    ] {
        let output = cgpuctl(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(text(&output.stdout), "", "{line}");
        all += &format!("$ cgpuctl {line}\n{}\n", text(&output.stderr));
    }
    with_settings!({ omit_expression => true }, { assert_snapshot!("usage", all) });
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = cgpuctl(&format!("completions {shell}"));
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(text(&output.stdout).contains("set-weight"), "{shell}");
        let output = cgpuctl(&format!("completions {shell} --json"));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(json["shell"], shell);
        assert!(json["script"]
            .as_str()
            .is_some_and(|s| s.contains("set-weight")));
    }
}

/// Every word of help is in the manual page of its command: both are made from one grammar.
#[test]
fn man_pages_say_what_help_says() {
    // Roff breaks lines, escapes hyphens and dots, and changes fonts.
    let plain = |roff: &str| {
        let mut text = roff.replace("\n.PP\n", "\n");
        for (from, to) in [
            ("\\-", "-"),
            ("\\fB", ""),
            ("\\fI", ""),
            ("\\fR", ""),
            ("\\&", ""),
            ("\\*(Aq", "'"),
        ] {
            text = text.replace(from, to);
        }
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    fn all(command: &clap::Command, check: &mut dyn FnMut(&clap::Command)) {
        check(command);
        for sub in command.get_subcommands().filter(|s| s.get_name() != "help") {
            all(sub, check);
        }
    }
    let pages = pages(Cli::command()).expect("pages");
    let mut command = Cli::command();
    command.build();
    let mut checked = 0;
    all(&command, &mut |command| {
        let name = command.get_display_name().unwrap_or("cgpuctl");
        let file = format!("{name}.8");
        let page = pages.iter().find(|page| page.file == file).expect(&file);
        let text = plain(&page.text);
        let mut says = |words: &str| {
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(&words), "{file} lacks {words:?}:\n{text}");
            checked += 1;
        };
        says(&command.get_about().expect("help").to_string());
        if let Some(long) = command.get_long_about() {
            says(&long.to_string());
        }
        for argument in command.get_arguments().filter(|a| !a.is_hide_set()) {
            let help = argument.get_long_help().or(argument.get_help());
            says(&help.expect("help").to_string());
            if let Some(long) = argument.get_long() {
                says(&format!("--{long}"));
            }
        }
    });
    assert!(checked > 60, "{checked}");
    assert_eq!(pages[0].file, "cgpuctl.8");
}

/// The old names of options stay, and no help shows them.
#[test]
fn old_names_of_options_are_hidden_and_work() {
    let folder = std::env::temp_dir().join(format!("cgpuctl-old-{}", std::process::id()));
    let output = cgpuctl(&format!("man --output {}", folder.display()));
    assert_eq!(output.status.code(), Some(0));
    assert!(folder.join("cgpuctl.8").is_file());
    std::fs::remove_dir_all(folder).expect("removed");
    for line in ["cdi generate", "man", "bug-report", "run"] {
        let help = cgpuctl(&format!("{line} --help"));
        let help = text(&help.stdout);
        assert!(!help.contains("--output"), "{help}");
        assert_eq!(help.contains("--json"), line != "run", "{help}");
    }
}

#[test]
fn man_prints_a_page_or_writes_all() {
    let page = text(&cgpuctl("man").stdout).to_owned();
    assert!(page.contains(".TH cgpuctl 8"), "{page}");
    let folder = std::env::temp_dir().join(format!("cgpuctl-man-{}", std::process::id()));
    let output = cgpuctl(&format!("man --to-folder {}", folder.display()));
    let names: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    assert!(
        names.len() > 15 && names.iter().all(|n| Path::new(n).is_file()),
        "{names:?}"
    );
    std::fs::remove_dir_all(folder).expect("removed");
    let json: serde_json::Value =
        serde_json::from_slice(&cgpuctl("man --json").stdout).expect("JSON");
    assert_eq!(json["pages"][0]["text"], page);
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = cgpuctl("--version");
    let expected = format!("cgpuctl {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&output.stdout), expected);
}

fn documentation(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every key of every golden JSON object is explained, and every explained key exists.
#[test]
fn json_keys_are_documented() {
    fn keys(value: &serde_json::Value, into: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    into.push(key.clone());
                    // Their own specifications say what OCI configurations and CDI files mean.
                    if key != "oci" && key != "spec" {
                        keys(value, into);
                    }
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|v| keys(v, into)),
            _ => {}
        }
    }
    let mut found = [
        "shell", "script", "pages", "file", "event", "time_s", "detail", "contents",
    ]
    .map(str::to_owned)
    .to_vec();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("snapshots") {
        let path = entry.expect("entry").path();
        if path.to_string_lossy().ends_with(".json.snap") {
            let golden = std::fs::read_to_string(&path).expect("golden");
            let body = golden.splitn(3, "---\n").nth(2).expect("a body");
            keys(&serde_json::from_str(body).expect("JSON"), &mut found);
            files += 1;
        }
    }
    assert!(files > 15, "{files} goldens");
    found.sort_unstable();
    found.dedup();
    let documented: Vec<_> = documentation("json.md")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect();
    for key in &found {
        assert!(documented.contains(key), "{key} is not in docs/json.md");
    }
    for key in documented {
        assert!(
            found.contains(&key),
            "docs/json.md explains {key}, which no golden has"
        );
    }
}

/// The cells of each row of a page's tables, without backticks around them.
fn rows(page: &str) -> Vec<Vec<&str>> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|row| {
            row.split(" | ")
                .map(|cell| cell.trim_matches('`'))
                .collect()
        })
        .collect()
}

/// The chapter of a page under this heading, without the next one.
fn chapter<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, from) = page.split_once(&format!("\n{heading}\n")).expect(heading);
    from.split("\n## ").next().expect("a chapter")
}

#[test]
fn the_documented_exit_codes_are_all() {
    let page = documentation("cgpuctl.md");
    let table = rows(chapter(&page, "## Exit codes"));
    let documented: Vec<_> = table.iter().skip(1).map(|row| row[0].to_owned()).collect();
    let known = Exit::ALL.map(|exit| exit.code().to_string());
    assert_eq!(documented, known);
}

/// Each word is followed by its exit code, and there are no others.
#[test]
fn the_documented_error_words_are_all() {
    let page = documentation("json.md");
    let mut documented: Vec<_> = chapter(&page, "## Errors")
        .split_once("Words that `cause` can be")
        .expect("the list")
        .1
        .split(['`', ')'])
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .windows(2)
        .filter_map(|two| Some((two[0].clone(), two[1].strip_prefix(" (")?.parse().ok()?)))
        .collect();
    let mut known = Problem::ENDINGS.map(|(word, exit)| (word.to_owned(), exit.code()));
    documented.sort_unstable();
    known.sort_unstable();
    assert_eq!(documented, known);
}

#[test]
fn the_documented_commands_are_all() {
    let page = documentation("uapi.md");
    let table = rows(chapter(&page, "## Commands"));
    assert_eq!(table[0][0], "command");
    for (row, (name, code, record, bytes)) in table[1..].iter().zip(request::ALL) {
        assert_eq!(row[..2], [name, &format!("{code:#010x}")], "{row:?}");
        // A list is named with its records: "`RecordList` of `Gpu` (216)".
        assert_eq!(row[2].split('`').next(), Some(record), "{row:?}");
        assert_eq!(row[3], bytes.to_string(), "{row:?}");
    }
    assert_eq!(table.len() - 1, request::ALL.len());
}

#[test]
fn the_documented_causes_are_all() {
    let page = documentation("uapi.md");
    let table = rows(chapter(&page, "## Errors"));
    assert_eq!(table[0][..3], ["errno", "number", "cause"]);
    for (row, cause) in table[1..].iter().zip(Cause::ALL) {
        let errno = Errno::from_raw(cause.errno());
        let wanted = [
            format!("{errno:?}"),
            cause.errno().to_string(),
            format!("{cause:?}"),
        ];
        assert_eq!(row[..3], wanted, "{row:?}");
    }
    assert_eq!(table.len() - 1, Cause::ALL.len());
}

/// The page shows the first findings of a golden file, and the count.
#[test]
fn the_documented_doctor_is_what_it_prints() {
    let page = documentation("cgpuctl.md");
    let shown = chapter(&page, "## Doctor")
        .split("```\n")
        .nth(1)
        .expect("a block");
    let (first, count) = shown.split_once("...\n").expect("what is left out");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let golden = folder.join("doctor__doctor.text.snap");
    let golden = std::fs::read_to_string(golden).expect("golden");
    let printed = golden.splitn(3, "---\n").nth(2).expect("a body");
    assert!(
        first.lines().count() > 10 && printed.starts_with(first),
        "{first}"
    );
    assert!(printed.trim_end().ends_with(count.trim()), "{count}");
}
