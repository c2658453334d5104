// SPDX-License-Identifier: GPL-2.0 OR MIT
//! systemd's own list of what a container may open.
//!
//! With its cgroup driver a runtime has systemd make the container's group, a scope with a list of
//! devices. Whenever systemd is reloaded it applies that list again, and what others have changed
//! in the group is gone. So the container's devices are added to the list.

use crate::container::HostNode;
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// The folder that is there if systemd runs (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// How many seconds it may take. Other containers wait meanwhile.
const PATIENCE: &str = "5";

/// Adds devices to the list of the scope that a control group is in, if systemd has one. Says why
/// they are not in it.
pub(super) fn allow(group: &Path, devices: &[HostNode]) -> Result<(), String> {
    match scope_of(group) {
        Some(scope) if Path::new(BOOTED).is_dir() => {
            add(&systemctl, scope, devices).map_err(|why| {
                format!(
                    "{why}, so the container loses its GPU at the next `systemctl daemon-reload` \
                     (/usr/share/doc/cgpu/docs/troubleshooting.md)"
                )
            })
        }
        _ => Ok(()),
    }
}

/// The scope of a control group: everything above it is a slice.
fn scope_of(group: &Path) -> Option<&str> {
    let mut parts = group.iter().map_while(|part| part.to_str());
    let scope = parts.find(|part| !part.ends_with(".slice"))?;
    scope.ends_with(".scope").then_some(scope)
}

/// A call of `systemctl` with these arguments: its output, or why it failed.
type Systemctl<'a> = &'a dyn Fn(&[&str]) -> Result<String, String>;

fn add(call: Systemctl<'_>, scope: &str, devices: &[HostNode]) -> Result<(), String> {
    let show = || call(&["show", "--property=DevicePolicy,DeviceAllow", "--", scope]);
    // Without a list everything is allowed, and a list would forbid the rest.
    if !is_limited(&show()?) {
        return Ok(());
    }
    // By number: a path would mean whatever has the name later.
    let rule = |device: &HostNode| format!("/dev/char/{}:{} rw", device.major, device.minor);
    let settings: Vec<_> = devices
        .iter()
        .map(|device| format!("DeviceAllow={}", rule(device)))
        .collect();
    let mut arguments = vec!["set-property", "--runtime", "--", scope];
    arguments.extend(settings.iter().map(String::as_str));
    call(&arguments)?;
    // It answers once it has followed: with cgroup v1 nothing may be opened while it writes.
    let now = show()?;
    let missing = settings.iter().find(|setting| !has(&now, setting));
    missing.map_or(Ok(()), |setting| {
        Err(format!("systemd has not taken {setting} for {scope}"))
    })
}

/// Whether a scope with these properties has a list of devices.
fn is_limited(properties: &str) -> bool {
    let named = |name: &str| properties.lines().find_map(|line| line.strip_prefix(name));
    named("DeviceAllow=").is_some_and(|list| !list.is_empty())
        || named("DevicePolicy=").is_some_and(|policy| policy != "auto")
}

fn has(properties: &str, setting: &str) -> bool {
    properties.lines().any(|line| line == setting)
}

fn systemctl(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("systemctl");
    let command = command.args(arguments).stdin(Stdio::null());
    let ended = command.env("SYSTEMD_BUS_TIMEOUT", PATIENCE).output();
    let ended = ended.map_err(|e| format!("systemctl cannot be started: {e}"))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        let said = said.lines().next().unwrap_or("it says nothing");
        return Err(format!("systemctl failed: {said}"));
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_scope_lies_below_slices_alone() {
        for (group, scope) in [
            ("machine.slice/libpod-1.scope", Some("libpod-1.scope")),
            (
                "machine.slice/libpod-1.scope/container",
                Some("libpod-1.scope"),
            ),
            ("a.slice/a-b.slice/cri-1.scope", Some("cri-1.scope")),
            ("docker/0123", None),
            ("system.slice/docker.service/a.scope", None),
            ("machine.slice", None),
            ("", None),
        ] {
            assert_eq!(scope_of(Path::new(group)), scope, "{group}");
        }
    }

    /// The change asked of a systemd that shows these properties, first and then, and the outcome.
    fn asked(first: &str, then: &str) -> (String, Result<(), String>) {
        let set = RefCell::new(String::new());
        let call = |arguments: &[&str]| {
            let is_set = !set.borrow().is_empty();
            if arguments.first() != Some(&"show") {
                *set.borrow_mut() = arguments.join(" ");
            }
            Ok(if is_set { then } else { first }.to_owned())
        };
        let device = |minor| HostNode {
            path: String::new(),
            major: 511,
            minor,
        };
        let done = add(&call, "a.scope", &[device(3), device(200)]);
        (set.take(), done)
    }

    #[test]
    fn a_list_of_devices_is_added_to() {
        let wanted = "set-property --runtime -- a.scope DeviceAllow=/dev/char/511:3 rw \
                      DeviceAllow=/dev/char/511:200 rw";
        let taken = "DevicePolicy=strict\nDeviceAllow=/dev/char/511:200 rw\n\
                     DeviceAllow=/dev/char/511:3 rw\n";
        for first in [
            "DevicePolicy=strict\n",
            "DevicePolicy=auto\nDeviceAllow=/dev/null rwm\n",
        ] {
            assert_eq!(asked(first, taken), (wanted.to_owned(), Ok(())));
        }
        let (_, done) = asked("DevicePolicy=strict\n", "DevicePolicy=strict\n");
        assert!(done.expect_err("missing").contains("511:3"));
        // One without a list is not given one.
        for none in ["DevicePolicy=auto\n", "DevicePolicy=auto\nDeviceAllow=\n"] {
            assert_eq!(asked(none, ""), (String::new(), Ok(())));
        }
        let absent = add(&|_| Err("absent".to_owned()), "a.scope", &[]);
        assert_eq!(absent, Err("absent".to_owned()));
    }
}
