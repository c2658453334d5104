// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cgpu-runtime`: an OCI runtime that stands in front of runc or crun, for engines that call no
//! hooks of the host's (Docker, containerd).
//!
//! An engine calls it as it would call runc. If the call makes a container whose environment asks
//! for memory of a GPU ([`settings`](crate::hook::settings)), the two hooks of `cgpu-hook` are
//! added to the configuration in the bundle (runtime-spec: `config.md`, POSIX-platform Hooks). In
//! any case the real runtime then takes this program's place, with the arguments as they came.
//!
//! Which runtime that is: the program that `CGPU_OCI_RUNTIME` names, otherwise `runc` or `crun`,
//! whichever `PATH` has first.

use crate::{
    error::Problem,
    files,
    hook::{
        bundle::{config_of, no_config, read_config},
        settings::Environment,
    },
    host::PathError,
};
use serde_json::{json, Value};
use std::{
    ffi::{OsStr, OsString},
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The variable that names the real runtime.
pub const RUNTIME: &str = "CGPU_OCI_RUNTIME";
/// The runtimes that are looked for.
const KNOWN: [&str; 2] = ["runc", "crun"];
/// Options of runc and crun before the command that take a value.
const WITH_VALUE: [&str; 7] = [
    "--log",
    "--log-format",
    "--log-level",
    "--root",
    "--criu",
    "--rootless",
    "--cgroup-manager",
];
/// When the hook is called, by the names that runtimes and `cgpu-hook` have for it. An operator has
/// named this runtime, so its pods of Kubernetes ask as other containers do.
const POINTS: [(&str, &[&str]); 2] = [
    ("createRuntime", &["create-runtime", "--pods"]),
    ("poststop", &["poststop"]),
];

/// Why a container is not made.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// No runtime is there.
    #[error("no {} in PATH; install one, or name it in {RUNTIME}", KNOWN.join(" and no "))]
    NoRuntime,
    /// The container asks for an instance, and there is no hook that could make it.
    #[error("the container's environment asks for memory of a GPU, and {0} is not there; install cgpu again")]
    NoHook(PathBuf),
    /// The configuration cannot be read, or has another form than OCI's.
    #[error("{0}")]
    Configuration(String),
    /// The real runtime could not be started.
    #[error("{runtime} cannot be started: {why}", runtime = .0.display(), why = .1)]
    Start(PathBuf, std::io::Error),
    /// A file could not be written.
    #[error("{}", Problem::Path(.0.clone()))]
    Path(PathError),
}

/// The arguments of a runtime, as far as they matter here.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The bundle of the container that is to be made; `None`: none is.
    pub bundle: Option<PathBuf>,
    /// The file in which the engine looks for errors.
    pub log: Option<PathBuf>,
}

impl Call {
    /// Reads a runtime's arguments, without the program's name.
    #[must_use]
    pub fn read(arguments: &[OsString]) -> Self {
        let mut call = Self::default();
        let mut rest = arguments.iter();
        let command = loop {
            let Some(word) = rest.next() else {
                return call;
            };
            if let Some(file) = value_of("--log", word, &mut rest.clone()) {
                call.log = Some(file.into());
            }
            if WITH_VALUE.iter().any(|option| word == option) {
                rest.next();
            } else if !word.as_encoded_bytes().starts_with(b"-") {
                break word;
            }
        };
        if command != "create" && command != "run" {
            return call;
        }
        let mut bundle = OsString::from(".");
        while let Some(word) = rest.next() {
            let named = ["--bundle", "-bundle", "-b"]
                .iter()
                .find_map(|option| value_of(option, word, &mut rest.clone()));
            bundle = named.unwrap_or(bundle);
        }
        call.bundle = Some(bundle.into());
        call
    }
}

/// The value that `word`, or else the one after it, gives to this option.
fn value_of<'a>(
    option: &str,
    word: &OsStr,
    rest: &mut impl Iterator<Item = &'a OsString>,
) -> Option<OsString> {
    if word == option {
        return rest.next().cloned();
    }
    let value = word.to_str()?.strip_prefix(option)?.strip_prefix('=')?;
    Some(value.into())
}

/// The real runtime: the one that is named, or the first known one in the folders of `path`.
/// `own` is this program, which is never taken.
///
/// # Errors
///
/// There is none.
pub fn find(named: Option<OsString>, path: &OsStr, own: &Path) -> Result<PathBuf, RuntimeError> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    std::env::split_paths(path)
        .flat_map(|folder| KNOWN.map(|name| folder.join(name)))
        .find(|place| is_program(place) && place.canonicalize().is_ok_and(|real| real != own))
        .ok_or(RuntimeError::NoRuntime)
}

fn is_program(place: &Path) -> bool {
    fs::metadata(place).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Adds the calls of the hook to the configuration in a bundle, if the container's environment asks
/// for an instance and they are not there. Returns whether the configuration was changed.
///
/// # Errors
///
/// The hook is not there, or the configuration could not be read or written.
pub fn prepare(bundle: &Path, hook: &Path) -> Result<bool, RuntimeError> {
    let path = config_of(bundle);
    let mut config: Value = read_config(&path).map_err(RuntimeError::Configuration)?;
    if !Environment(&environment(&config)).asks() {
        return Ok(false);
    }
    if !is_program(hook) {
        return Err(RuntimeError::NoHook(hook.to_owned()));
    }
    let mut changed = false;
    for (point, words) in POINTS {
        let added = add(&mut config, point, words, hook);
        changed |= added.map_err(|why| RuntimeError::Configuration(no_config(&path, why)))?;
    }
    if changed {
        let config = config.to_string();
        files::replace_whole(&path, config.as_bytes()).map_err(RuntimeError::Path)?;
    }
    Ok(changed)
}

fn environment(config: &Value) -> Vec<String> {
    let lines = config["process"]["env"].as_array().into_iter().flatten();
    lines.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Adds one call of the hook, unless a hook of that name is called there.
fn add(config: &mut Value, point: &str, words: &[&str], hook: &Path) -> Result<bool, &'static str> {
    let member = |value: &mut Value, name: &str, empty: Value| -> Result<(), &'static str> {
        let object = value.as_object_mut().ok_or("its hooks are no object")?;
        let found = object.entry(name).or_insert(Value::Null);
        if found.is_null() {
            *found = empty;
        }
        Ok(())
    };
    member(config, "hooks", json!({}))?;
    let hooks = &mut config["hooks"];
    member(hooks, point, json!([]))?;
    let calls = hooks[point].as_array_mut().ok_or("its hooks are no list")?;
    let name = hook.file_name();
    let is_ours = |call: &Value| {
        let path = call["path"].as_str().map(Path::new);
        path.is_some_and(|path| path.file_name() == name) && call["args"][1] == words[0]
    };
    if calls.iter().any(is_ours) {
        return Ok(false);
    }
    let args: Vec<_> = ["cgpu-hook"].iter().chain(words).collect();
    calls.push(json!({"path": hook, "args": args}));
    Ok(true)
}

/// Says why the container is not made where engines look for it: in the runtime's log, a line of
/// JSON as runc writes it, and on stderr.
pub fn tell(failure: &RuntimeError, log: Option<&Path>, err: &mut dyn Write) {
    let text = format!("cgpu-runtime: {failure}");
    // Nobody is left to tell it to if stderr is closed.
    let _ = writeln!(err, "{text}");
    if let Some(log) = log {
        let line = json!({"level": "error", "msg": text});
        // The engine still has the exit code.
        let _ = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .and_then(|mut file| writeln!(file, "{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Call {
        let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        Call::read(&words)
    }

    #[test]
    fn bundle_and_log_are_found_in_arguments() {
        let made = |bundle: &str, log: Option<&str>| Call {
            bundle: Some(bundle.into()),
            log: log.map(Into::into),
        };
        let by_shim = "--root /run/runc --log /b/log.json --log-format json --systemd-cgroup \
                       create --bundle /b --pid-file /b/init.pid 0123";
        assert_eq!(call(by_shim), made("/b", Some("/b/log.json")));
        assert_eq!(call("--log=/l run --bundle=/b id"), made("/b", Some("/l")));
        assert_eq!(call("create -b /b id"), made("/b", None));
        assert_eq!(call("create id"), made(".", None));
        for other in [
            "start id",
            "--root create delete id",
            "--version",
            "",
            "kill create",
        ] {
            assert_eq!(call(other).bundle, None, "{other}");
        }
    }

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("cgpu-runtime-{}-{name}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).expect("made");
            Self(folder)
        }

        fn program(&self, name: &str) -> PathBuf {
            let place = self.0.join(name);
            fs::write(&place, "").expect("written");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&place, mode).expect("changed");
            place
        }

        fn configure(&self, config: &Value) {
            fs::write(self.0.join("config.json"), config.to_string()).expect("written");
        }

        fn config(&self) -> Value {
            let bytes = fs::read(self.0.join("config.json")).expect("read");
            serde_json::from_slice(&bytes).expect("JSON")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const ASKS: [&str; 2] = ["PATH=/bin", "CGPU_MEM=1GiB"];

    #[test]
    fn asking_container_gets_both_hooks_once() {
        let folder = Folder::new("asks");
        let hook = folder.program("cgpu-hook");
        let other = json!({"path": "/bin/other", "args": ["other", "create-runtime"]});
        folder.configure(&json!({
            "ociVersion": "1.2.0",
            "process": {"env": ASKS, "oomScoreAdj": -999},
            "hooks": {"createRuntime": [other], "prestart": null},
        }));
        assert!(prepare(&folder.0, &hook).expect("prepared"));
        let config = folder.config();
        assert_eq!(
            config["hooks"]["createRuntime"],
            json!([other, {"path": hook, "args": ["cgpu-hook", "create-runtime", "--pods"]}])
        );
        assert_eq!(
            config["hooks"]["poststop"],
            json!([{"path": hook, "args": ["cgpu-hook", "poststop"]}])
        );
        assert_eq!(config["process"]["oomScoreAdj"], -999);
        // As where the engine's own hooks are configured already.
        assert!(!prepare(&folder.0, &hook).expect("prepared"));
        assert_eq!(folder.config(), config);
    }

    #[test]
    fn other_containers_stay_unchanged_without_the_hook() {
        let folder = Folder::new("alone");
        for environment in [
            json!(null),
            json!(["PATH=/bin"]),
            json!(["CGPU_MEM=1GiB", "CGPU_DISABLE=1"]),
        ] {
            let config = json!({"process": {"env": environment}});
            folder.configure(&config);
            assert!(!prepare(&folder.0, Path::new("/nowhere/cgpu-hook")).expect("prepared"));
            assert_eq!(folder.config(), config);
        }
    }

    #[test]
    fn failures_say_what_to_do_and_change_nothing() {
        let folder = Folder::new("fails");
        let hook = folder.program("cgpu-hook");
        let missing = folder.0.join("nothing");
        let config = json!({"process": {"env": ASKS}, "hooks": []});
        folder.configure(&config);
        for (hook, said) in [
            (&missing, "install cgpu again"),
            (&hook, "hooks are no object"),
        ] {
            let failure = prepare(&folder.0, hook).expect_err("refused");
            assert!(failure.to_string().contains(said), "{failure}");
            assert_eq!(folder.config(), config);
        }
        let failure = prepare(&missing, &hook).expect_err("refused");
        assert!(failure.to_string().contains("config.json"), "{failure}");

        let log = folder.0.join("log.json");
        let mut said = Vec::new();
        tell(&failure, Some(&log), &mut said);
        let line: Value = serde_json::from_slice(&fs::read(&log).expect("read")).expect("JSON");
        assert_eq!(line["level"], "error");
        assert_eq!(
            String::from_utf8(said).expect("UTF-8").trim_end(),
            line["msg"].as_str().expect("text")
        );
    }

    #[test]
    fn the_real_runtime_is_never_this_program() {
        let folder = Folder::new("find");
        let own = folder.program("cgpu-runtime");
        let path = folder.0.as_os_str();
        assert!(matches!(
            find(None, path, &own),
            Err(RuntimeError::NoRuntime)
        ));
        let crun = folder.program("crun");
        assert_eq!(find(None, path, &own).expect("found"), crun);
        std::os::unix::fs::symlink(&own, folder.0.join("runc")).expect("linked");
        assert_eq!(find(None, path, &own).expect("found"), crun);
        let named = Some("/opt/kata".into());
        assert_eq!(
            find(named, path, &own).expect("found"),
            Path::new("/opt/kata")
        );
    }
}
