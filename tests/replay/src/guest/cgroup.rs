// SPDX-License-Identifier: GPL-2.0
//! A control group whose processes may open only certain devices, as container runtimes make them
//! (cgroup v2: a BPF program of type CGROUP_DEVICE).

use std::fs;

use crate::sys::{self, Errno};

/// The mount point of cgroup v2.
pub(super) const ROOT: &str = "/sys/fs/cgroup";

/// A character device's number.
pub type Device = (u32, u32);

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_ATTACH: libc::c_long = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
/// The low half of `bpf_cgroup_dev_ctx.access_type` for a character device.
const CHARACTER_DEVICE: i32 = 2;

/// A BPF instruction.
fn instruction(code: u8, registers: u8, jump: i16, value: i32) -> u64 {
    let mut bytes = [0; 8];
    bytes[0] = code;
    bytes[1] = registers;
    bytes[2..4].copy_from_slice(&jump.to_le_bytes());
    bytes[4..8].copy_from_slice(&value.to_le_bytes());
    u64::from_le_bytes(bytes)
}

/// A program that allows opening the devices and refuses everything else.
fn program(devices: &[Device]) -> Vec<u64> {
    const LOAD: u8 = 0x61;
    const AND: u8 = 0x57;
    const JUMP_NOT_EQUAL: u8 = 0x55;
    const MOVE: u8 = 0xB7;
    const EXIT: u8 = 0x95;
    // r2 = type, r4 = major, r5 = minor; r1 points to the context.
    let mut code = vec![
        instruction(LOAD, 0x12, 0, 0),
        instruction(LOAD, 0x14, 4, 0),
        instruction(LOAD, 0x15, 8, 0),
        instruction(AND, 0x02, 0, 0xFFFF),
    ];
    let allowed = i16::try_from(4 * devices.len()).unwrap_or(i16::MAX);
    code.push(instruction(JUMP_NOT_EQUAL, 0x02, allowed, CHARACTER_DEVICE));
    for (major, minor) in devices {
        let number = |n: &u32| i32::try_from(*n).unwrap_or(-1);
        code.extend([
            instruction(JUMP_NOT_EQUAL, 0x04, 3, number(major)),
            instruction(JUMP_NOT_EQUAL, 0x05, 2, number(minor)),
            instruction(MOVE, 0x00, 0, 1),
            instruction(EXIT, 0, 0, 0),
        ]);
    }
    code.extend([instruction(MOVE, 0x00, 0, 0), instruction(EXIT, 0, 0, 0)]);
    code
}

/// `bpf(2)`.
fn bpf(command: libc::c_long, attributes: &mut [u64; 16]) -> Result<i32, Errno> {
    let size = size_of_val(attributes);
    // SAFETY: the attributes are 128 bytes, unused ones zero; what they point to lives in the
    // caller.
    let ret = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size) };
    if ret < 0 {
        Err(sys::errno())
    } else {
        Ok(i32::try_from(ret).unwrap_or(-1))
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn load(devices: &[Device]) -> Result<i32, Errno> {
    let code = program(devices);
    let mut attributes = [0; 16];
    let count = u32::try_from(code.len()).unwrap_or(0);
    attributes[0] = pair(BPF_PROG_TYPE_CGROUP_DEVICE, count);
    attributes[1] = code.as_ptr() as u64;
    attributes[2] = c"GPL".as_ptr() as u64;
    bpf(BPF_PROG_LOAD, &mut attributes)
}

/// Mounts cgroup v2, if it is not there yet.
pub(super) fn mount_root() -> Result<(), String> {
    if !fs::exists(format!("{ROOT}/cgroup.procs")).unwrap_or(false) {
        let _ = fs::create_dir_all(ROOT);
        sys::mount("cgroup2", ROOT, "cgroup2", 0)
            .map_err(|e| format!("mount {ROOT}: errno {e}"))?;
    }
    Ok(())
}

/// A control group; removed when dropped.
#[derive(Debug)]
pub struct Group {
    path: String,
}

impl Group {
    /// Makes a group whose processes may open these devices only.
    pub fn new(name: &str, devices: &[Device]) -> Result<Self, String> {
        mount_root()?;
        let path = format!("{ROOT}/{name}");
        fs::create_dir(&path).map_err(|e| format!("{path}: {e}"))?;
        let group = Self { path };
        let folder = sys::open(&group.path, libc::O_RDONLY | libc::O_DIRECTORY)
            .map_err(|e| format!("{}: errno {e}", group.path))?;
        let attached = load(devices).and_then(|program| {
            let mut attributes = [0; 16];
            let fd = |fd: i32| u32::try_from(fd).unwrap_or(u32::MAX);
            attributes[0] = pair(fd(folder), fd(program));
            attributes[1] = pair(BPF_CGROUP_DEVICE, 0);
            let attached = bpf(BPF_PROG_ATTACH, &mut attributes);
            // The group holds the program from now on.
            let _ = sys::close(program);
            attached
        });
        let _ = sys::close(folder);
        attached.map_err(|e| format!("device program: errno {e}"))?;
        Ok(group)
    }

    /// Puts the calling process, and what it forks later, into the group.
    pub fn enter(&self) -> Result<(), String> {
        let path = format!("{}/cgroup.procs", self.path);
        fs::write(&path, "0\n").map_err(|e| format!("{path}: {e}"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails while a process is in it, which then shows in the next run.
        let _ = fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_ends_in_a_refusal() {
        let code = program(&[(195, 0), (240, 3)]);
        assert_eq!(code.len(), 5 + 2 * 4 + 2);
        assert_eq!(code[code.len() - 2], instruction(0xB7, 0, 0, 0));
        // The check of the type jumps to that refusal.
        assert_eq!(code[4], instruction(0x55, 2, 8, 2));
    }
}
