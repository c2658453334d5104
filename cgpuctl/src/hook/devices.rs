// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The device cgroup of a container that exists already: lets it open a few more numbers.
//!
//! With cgroup v1 that is a line in `devices.allow`. With v2 the runtime has attached a program
//! that decides, and all programs of a group must allow; so its program is replaced by the same one
//! with our numbers asked for first. A systemd that has made the group is told, too.

use super::systemd;
use crate::{
    bpf::{
        self,
        program::{
            self, Question, AND, CHARACTER, EXIT, JUMP_IF_NOT, JUMP_IF_SET, LOAD_WORD, MKNOD, MOVE,
            READ, SHIFT_RIGHT, WRITE,
        },
    },
    client::errno,
    container::HostNode,
    doctor::scene::{uvm_major, NVIDIA_MAJOR},
    host::{Look, PathError},
};
use cgpu_uapi::Gpu;
use nix::errno::Errno;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

/// The mount point of control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// The folder of cgroup v1's device controller there.
const V1: &str = "devices";

/// The driver's major and control node (`NV_MAJOR_DEVICE_NUMBER` and
/// `NV_MINOR_DEVICE_NUMBER_CONTROL_DEVICE`, nv-chardev-numbers.h).
const CONTROL_NODE: (u64, u64) = (NVIDIA_MAJOR, 255);

/// The numbers of the real nodes: of each GPU, of the control device, and of UVM where it is known.
pub(crate) fn real_nodes(files: &dyn Look, gpus: &[Gpu]) -> Vec<(u64, u64)> {
    let of_gpus = gpus.iter().map(|gpu| (NVIDIA_MAJOR, u64::from(gpu.minor)));
    let uvm = uvm_major(files).map(|major| (major, 0));
    of_gpus.chain([CONTROL_NODE]).chain(uvm).collect()
}

/// Why the control groups of a process do not keep it from the real nodes. The runtime has set them
/// up by now, and NVIDIA's own hook may have opened them.
pub(super) fn loose_group(files: &dyn Look, pid: i32, gpus: &[Gpu]) -> Option<String> {
    let groups = files.read(Path::new(&format!("/proc/{pid}/cgroup"))).ok()?;
    let open = real_nodes(files, gpus)
        .into_iter()
        .find(|&(major, minor)| matches!(may_open(files, &groups, major, minor), Ok(Some(true))));
    open.map(|(major, minor)| {
        format!(
            "its device cgroup lets it open the real node {major}:{minor}; start it without --privileged, \
             without NVIDIA's runtime or hook, and with a cgroup of its own"
        )
    })
}

/// Whether the control groups that a process is in let it read or write a character device, by the
/// text of its `/proc/PID/cgroup`; `None`: they decide in a way that is not understood.
pub(crate) fn may_open(
    files: &dyn Look,
    groups: &str,
    major: u64,
    minor: u64,
) -> Result<Option<bool>, Errno> {
    let group = match group_of(groups).ok_or(Errno::ENOENT)? {
        Group::V1(group) => {
            let list = files.read(&Path::new(ROOT).join(group).join("devices.list"))?;
            return Ok(Some(is_listed(&list, major, minor)));
        }
        Group::V2(group) => group,
    };
    // Either is enough to open the driver's nodes.
    let mut understood = true;
    for access in [READ, WRITE] {
        let asked = Question {
            kind: CHARACTER.unsigned_abs().into(),
            access,
            major,
            minor,
        };
        match is_allowed(files, &group, asked)? {
            Some(true) => return Ok(Some(true)),
            Some(false) => {}
            None => understood = false,
        }
    }
    Ok(understood.then_some(false))
}

/// Whether all programs, of this group and of those above it, allow something.
fn is_allowed(files: &dyn Look, group: &Path, asked: Question) -> Result<Option<bool>, Errno> {
    let mut understood = true;
    for level in group.ancestors() {
        for code in files.device_programs(&Path::new(ROOT).join(level))? {
            match program::answer(&code, asked) {
                Some(0) => return Ok(Some(false)),
                Some(_) => {}
                None => understood = false,
            }
        }
    }
    Ok(understood.then_some(true))
}

/// The same by the lines of `devices.list`.
fn is_listed(list: &str, major: u64, minor: u64) -> bool {
    let is = |word: &str, number: u64| word == "*" || word == number.to_string();
    list.lines().any(|line| {
        let mut words = line.split_whitespace();
        let (kind, numbers, access) = (words.next(), words.next(), words.next());
        let (a, b) = numbers.and_then(|n| n.split_once(':')).unwrap_or_default();
        matches!(kind, Some("a" | "c"))
            && is(a, major)
            && is(b, minor)
            && access.is_some_and(|access| access.contains('r') || access.contains('w'))
    })
}

/// The control group of a process, by the text of its `/proc/PID/cgroup` (cgroups(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Group {
    V1(PathBuf),
    V2(PathBuf),
}

fn group_of(text: &str) -> Option<Group> {
    let fields = |line: &str| {
        let mut fields = line.splitn(3, ':');
        Some((
            fields.next()?.to_owned(),
            fields.next()?.to_owned(),
            fields.next()?.to_owned(),
        ))
    };
    let lines: Vec<_> = text.lines().filter_map(fields).collect();
    let below = |folder: &str, path: &str| Path::new(folder).join(path.trim_start_matches('/'));
    let v1 = lines
        .iter()
        .find(|(_, controllers, _)| controllers.split(',').any(|c| c == V1));
    if let Some((_, _, path)) = v1 {
        return Some(Group::V1(below(V1, path)));
    }
    let v2 = lines.iter().find(|(number, _, _)| number == "0");
    v2.map(|(_, _, path)| Group::V2(below("", path)))
}

/// Lets the control group of a process open these devices. Tells why that does not last, if so.
pub(super) fn allow(pid: i32, devices: &[HostNode]) -> Result<Option<String>, PathError> {
    let place = PathBuf::from(format!("/proc/{pid}/cgroup"));
    let text = fs::read_to_string(&place).map_err(PathError::on("reading", &place))?;
    // The group first: systemd puts another program in the place of its own a moment later.
    let kept = match group_of(&text) {
        Some(Group::V1(group)) => {
            let file = Path::new(ROOT).join(&group).join("devices.allow");
            for device in devices {
                let rule = format!("c {}:{} rw", device.major, device.minor);
                fs::write(&file, rule).map_err(PathError::on("writing", &file))?;
            }
            systemd::allow(group.strip_prefix(V1).unwrap_or(&group), devices)
        }
        Some(Group::V2(group)) => {
            allow_v2(&group, devices).map_err(|(path, errno)| {
                PathError::on("changing the device program of", &path)(errno)
            })?;
            systemd::allow(&group, devices)
        }
        None => {
            let finding = PathError::on("finding a control group in", &place);
            return Err(finding(Errno::ENOENT));
        }
    };
    Ok(kept.err())
}

/// Changes the programs of the process's group or, if it has none, of the nearest group above it
/// that has: the runtime's may sit above the group that the process is in.
fn allow_v2(group: &Path, devices: &[HostNode]) -> Result<(), (PathBuf, Errno)> {
    for level in group.ancestors() {
        let path = Path::new(ROOT).join(level);
        let failed = |errno| (path.clone(), errno);
        let folder = File::open(&path).map_err(|e| failed(errno(&e)))?;
        let (programs, flags) = bpf::device_programs(&folder).map_err(failed)?;
        for program in &programs {
            let old = bpf::instructions(program).map_err(failed)?;
            let code = extend(devices, &old).ok_or(failed(Errno::E2BIG))?;
            bpf::replace(&folder, program, flags, &code).map_err(failed)?;
        }
        if !programs.is_empty() {
            return Ok(());
        }
    }
    // Nothing decides about devices here: every number is allowed.
    Ok(())
}

/// An instruction of BPF. `registers`: the source's number, then the destination's, a half byte
/// each.
fn instruction(code: u8, registers: u8, offset: i16, value: i32) -> u64 {
    let [o0, o1] = offset.to_le_bytes();
    let [v0, v1, v2, v3] = value.to_le_bytes();
    u64::from_le_bytes([code, registers, o0, o1, v0, v1, v2, v3])
}

/// The program `old` with these devices allowed first, to be read and written. Register 1 stays
/// what it is at the start: the question.
fn extend(devices: &[HostNode], old: &[u64]) -> Option<Vec<u64>> {
    let number = |n: u32| i32::try_from(n).ok();
    let rules = devices.iter().map(|device| {
        Some([
            instruction(JUMP_IF_NOT, 0x04, 3, number(device.major)?),
            instruction(JUMP_IF_NOT, 0x05, 2, number(device.minor)?),
            instruction(MOVE, 0x00, 0, 1),
            instruction(EXIT, 0, 0, 0),
        ])
    });
    let rules = rules.collect::<Option<Vec<_>>>()?.concat();
    let over = i16::try_from(rules.len()).ok()?;
    let mut code = vec![
        instruction(LOAD_WORD, 0x12, 0, 0),
        instruction(LOAD_WORD, 0x13, 0, 0),
        instruction(LOAD_WORD, 0x14, 4, 0),
        instruction(LOAD_WORD, 0x15, 8, 0),
        instruction(AND, 0x02, 0, 0xffff),
        instruction(SHIFT_RIGHT, 0x03, 0, 16),
        instruction(JUMP_IF_NOT, 0x02, over.checked_add(1)?, CHARACTER),
        instruction(JUMP_IF_SET, 0x03, over, MKNOD),
    ];
    code.extend(rules);
    code.extend(old);
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_is_found_in_both_versions() {
        let v2 = "0::/machine.slice/libpod-1.scope/container\n";
        let wanted = "machine.slice/libpod-1.scope/container";
        assert_eq!(group_of(v2), Some(Group::V2(wanted.into())));
        assert_eq!(group_of("0::/\n"), Some(Group::V2("".into())));
        let v1 = "12:cpu,cpuacct:/a\n5:devices:/docker/b:c\n1:name=systemd:/a\n0::/a\n";
        assert_eq!(group_of(v1), Some(Group::V1("devices/docker/b:c".into())));
        assert_eq!(group_of(""), None);
    }

    fn answer(code: &[u64], kind: u64, access: u64, major: u64, minor: u64) -> Option<u64> {
        let question = Question {
            kind,
            access,
            major,
            minor,
        };
        program::answer(code, question)
    }

    #[test]
    fn lists_of_the_first_version_are_read() {
        let list = "c 1:3 rwm\nc 511:* rw\nb *:* m\nc *:* m\n";
        for (major, minor, wanted) in [(1, 3, true), (1, 5, false), (511, 9, true), (195, 0, false)]
        {
            assert_eq!(is_listed(list, major, minor), wanted, "{major}:{minor}");
        }
        assert!(is_listed("a *:* rwm\n", 195, 0));
    }

    #[test]
    fn own_device_numbers_are_allowed_first() {
        let device = |minor| HostNode {
            path: String::new(),
            major: 511,
            minor,
        };
        // The old program: character devices with the major number 1, nothing else.
        let old = [
            instruction(LOAD_WORD, 0x14, 4, 0),
            instruction(MOVE, 0x00, 0, 0),
            instruction(JUMP_IF_NOT, 0x04, 1, 1),
            instruction(MOVE, 0x00, 0, 1),
            instruction(EXIT, 0, 0, 0),
        ];
        let code = extend(&[device(3), device(200), device(201)], &old).expect("short");
        let (block, character) = (1, 2);
        let (mknod, read, write) = (1, 2, 4);
        for (kind, access, major, minor, wanted) in [
            (character, read, 511, 3, 1),
            (character, read | write, 511, 200, 1),
            (character, write, 511, 201, 1),
            (character, read, 511, 4, 0),
            (character, read, 195, 3, 0),
            (character, mknod, 511, 3, 0),
            (character, mknod | read, 511, 3, 0),
            (block, read, 511, 3, 0),
            (character, read, 1, 3, 1),
        ] {
            let said = answer(&code, kind, access, major, minor);
            assert_eq!(said, Some(wanted), "{kind} {access} {major}:{minor}");
        }
        // Twice is once.
        let twice = extend(&[device(3)], &code).expect("short");
        assert_eq!(answer(&twice, character, read, 511, 200), Some(1));
        let many: Vec<_> = (0..9000).map(device).collect();
        assert_eq!(extend(&many, &old), None);
    }
}
