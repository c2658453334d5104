// SPDX-License-Identifier: GPL-2.0
//! Descriptors of the driver's files that go through a socket: the sender's call says which file is
//! on its way, the receiver's finds out which of those on their way it has got, by comparing the
//! two descriptors.

use std::{ffi::CString, os::unix::ffi::OsStringExt, sync::atomic::Ordering};

use cgpu_gpu::{
    state::{Place, State},
    sys,
};
use cgpu_km::{policy::GpuId, proxy::Role};
use libc::{c_int, msghdr};

use crate::{
    nodes::{descriptor, gpu_of, known, node, path_of, place, to_c, GPU, USES, UVM},
    setting::setting,
};

/// `KCMP_FILE`: whether two descriptors are of one open file.
const KCMP_FILE: u64 = 0;

/// The descriptors that a message carries.
///
/// # Safety
///
/// `message` is a message of C with its control data.
unsafe fn carried(message: *const msghdr) -> Vec<c_int> {
    let mut found = Vec::new();
    // SAFETY: It is a message of C, as the contract says; the macros stay in its control data.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(header);
                // CAST: the size of a header.
                let empty = libc::CMSG_LEN(0) as usize;
                let bytes = (*header).cmsg_len.saturating_sub(empty);
                for i in 0..bytes / size_of::<c_int>() {
                    found.push(data.cast::<c_int>().add(i).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    found
}

/// Whether a descriptor of another process and one of this are of one open file.
fn same_file(process: i32, other: c_int, own: c_int) -> bool {
    // CAST: registers are 64 bits wide.
    let arguments = [
        sys::process() as u64,
        process as u64,
        KCMP_FILE,
        own as u64,
        other as u64,
        0,
    ];
    // SAFETY: Compares, and writes nothing.
    let answer = unsafe { sys::call(libc::SYS_kcmp, arguments) };
    answer == 0
}

fn role(state: &State, node: u32) -> Option<Role> {
    Some(match node & GPU {
        GPU => Role::Gpu(GpuId(gpu_of(state, node)?.facts.device_instance)),
        UVM => Role::Uvm,
        _ => Role::Control,
    })
}

/// A descriptor came out of a socket.
fn received(fd: c_int) {
    let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else {
        return;
    };
    let path = CString::new(path.into_os_string().into_vec()).unwrap_or_default();
    let (Some(mut value), Some(slot)) = (node(&path), descriptor(fd)) else {
        return;
    };
    let setting = setting();
    if let Some(state) = setting.state {
        let same = |process, other| same_file(process, other, fd);
        let found = role(state, value).and_then(|role| state.receive(role, same));
        let Some(place) = found else {
            eprintln!("cgpu-gpu: a file of the driver came from outside of the instance");
            return;
        };
        USES[place.number()].fetch_add(1, Ordering::Relaxed);
        // CAST: below 2^16.
        value |= place.number() as u32;
    }
    slot.store(value, Ordering::Relaxed);
    if let Some(recorder) = &setting.recorder {
        recorder.passed("receive", fd, &path_of(value));
    }
}

/// `sendmsg(2)`.
///
/// # Safety
///
/// `message` is a message of C.
pub(crate) unsafe fn send(socket: c_int, message: *const msghdr, flags: c_int) -> i64 {
    // SAFETY: `message` is a message of C, as the contract says.
    let descriptors = unsafe { carried(message) };
    let ours: Vec<(c_int, Place)> = descriptors
        .into_iter()
        .filter_map(|fd| Some((fd, place(known(fd)?))))
        .collect();
    let setting = setting();
    for (fd, place) in &ours {
        if let Some(state) = setting.state {
            state.send(*place, *fd);
        }
    }
    // CAST: registers are 64 bits wide.
    let arguments = [socket as u64, message as u64, flags as u64, 0, 0, 0];
    // SAFETY: `message` is a message of C, as the contract says.
    let answer = unsafe { sys::call(libc::SYS_sendmsg, arguments) };
    for (fd, place) in ours {
        match (answer, setting.state) {
            (..0, Some(state)) => state.not_sent(place, fd),
            (..0, None) => {}
            _ => {
                if let (Some(recorder), Some(value)) = (&setting.recorder, known(fd)) {
                    recorder.passed("send", fd, &path_of(value));
                }
            }
        }
    }
    answer
}

/// `recvmsg(2)`.
///
/// # Safety
///
/// `message` is a message of C.
pub(crate) unsafe fn receive(socket: c_int, message: *mut msghdr, flags: c_int) -> i64 {
    // CAST: registers are 64 bits wide.
    let arguments = [socket as u64, message as u64, flags as u64, 0, 0, 0];
    // SAFETY: `message` is a message of C, as the contract says.
    let answer = unsafe { sys::call(libc::SYS_recvmsg, arguments) };
    if answer >= 0 {
        // SAFETY: The kernel has filled it in.
        for fd in unsafe { carried(message) } {
            received(fd);
        }
    }
    answer
}

/// `sendmsg(3)`.
///
/// # Safety
///
/// As the C library's.
#[no_mangle]
pub(crate) unsafe extern "C" fn sendmsg(
    socket: c_int,
    message: *const msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: The C library's function has the same contract. CAST: as wide as a long.
    to_c(unsafe { send(socket, message, flags) }) as isize
}

/// `recvmsg(3)`.
///
/// # Safety
///
/// As the C library's.
#[no_mangle]
pub(crate) unsafe extern "C" fn recvmsg(
    socket: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: The C library's function has the same contract. CAST: as wide as a long.
    to_c(unsafe { receive(socket, message, flags) }) as isize
}
