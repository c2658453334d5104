// SPDX-License-Identifier: GPL-2.0
//! The module's own files, and the mechanisms behind its proxies (mechanisms 1 to 4): nodes and
//! proxy nodes, the sealed scratch, the worker's decoy, the inode that is taken over, /proc and the
//! control device.
//!
//! Each says how the attack was refused.

use std::{fs, os::unix::fs::MetadataExt};

use cgpu_uapi as uapi;

use super::{
    attack::Own,
    scene::{GPU, MIB},
};
use crate::{
    bytes::{put_u32, put_u64},
    control::{folder, Control},
    guest::{
        cgroup::Group,
        process::{drop_admin, in_child, unshare},
        rm,
        tools::{control, device_instance, open_node},
        uvm,
    },
    sys,
};

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "mknod: the real GPU's number in a container",
        function: "nv.c:nvidia_open",
        run: mknod,
    },
    Own {
        name: "stale node: its instance is gone",
        function: "-",
        run: stale,
    },
    Own {
        name: "cgpufs: another node made in it",
        function: "-",
        run: new_node,
    },
    Own {
        name: "control device: opened in a user namespace",
        function: "-",
        run: control_device,
    },
    Own {
        name: "control device: used after CAP_SYS_ADMIN was dropped",
        function: "-",
        run: control_dropped,
    },
    Own {
        name: "procfs: a limit written by a container",
        function: "-",
        run: procfs_write,
    },
    Own {
        name: "procfs: a neighbour's state read by a container",
        function: "-",
        run: procfs_read,
    },
    Own {
        name: "scratch: unmapped, made executable, moved, replaced",
        function: "-",
        run: scratch_shape,
    },
    Own {
        name: "scratch: written to between calls",
        function: "-",
        run: scratch_write,
    },
    Own {
        name: "worker: a file left in its descriptor table (pidfd_getfd)",
        function: "nv.c:nv_match_dev_state",
        run: decoy,
    },
    Own {
        name: "inode: a proxied file opened again through /proc/self/fd",
        function: "nv.c:nvidia_open",
        run: reopen,
    },
    Own {
        name: "registers: read and written behind the page tables",
        function: "nv-mmap.c:nvidia_vma_access",
        run: access,
    },
    Own {
        name: "locks: the driver's node locked for others (flock)",
        function: "-",
        run: node_lock,
    },
];

/// An instance of this name; it is removed by whoever runs the attacks.
fn instance(name: &str) -> Result<Control, String> {
    let control = control()?;
    control
        .create(name, GPU, 1 << 30, 1)
        .map_err(|e| format!("create: errno {e}"))?;
    Ok(control)
}

/// A program in an instance.
fn client(name: &str) -> Result<rm::Client, String> {
    let control = control()?;
    let number = device_instance(&control, GPU)?;
    rm::Client::open(&folder(name), GPU, number).map_err(|e| e.to_string())
}

/// Wants an attack to fail with one of these errnos.
fn refused<T>(result: Result<T, i32>, errnos: &[i32]) -> Result<String, String> {
    match result {
        Err(errno) if errnos.contains(&errno) => Ok(format!("errno {errno}")),
        Err(errno) => Err(format!("errno {errno}, not one of {errnos:?}")),
        Ok(_) => Err("it works".to_owned()),
    }
}

fn mknod() -> Result<String, String> {
    let control = instance("mknod")?;
    let seen = control
        .get("mknod", GPU)
        .map_err(|e| format!("get: errno {e}"))?;
    let real = "/tmp/real-gpu";
    let _ = fs::remove_file(real);
    sys::make_character_device(real, 195, GPU).map_err(|e| format!("mknod: errno {e}"))?;
    // Without a device group the real GPU opens: that is what the group is for.
    let open = sys::open(real, libc::O_RDWR).map_err(|e| format!("without a group: errno {e}"))?;
    let _ = sys::close(open);
    let own = [
        (seen.major, seen.node_minor),
        (seen.major, seen.control_node_minor),
        (seen.major, seen.uvm_node_minor),
    ];
    let group = Group::new("cgpu-attack-mknod", &own)?;
    let result = in_child(|| {
        group.enter()?;
        let own = sys::open(&format!("{}/nvidiactl", folder("mknod")), libc::O_RDWR);
        own.map_err(|e| format!("its own proxy node: errno {e}"))?;
        refused(sys::open(real, libc::O_RDWR), &[libc::EPERM]).map(drop)?;
        let another = "/tmp/another-gpu";
        let _ = fs::remove_file(another);
        let made = sys::make_character_device(another, 195, GPU);
        let opened = made.and_then(|()| sys::open(another, libc::O_RDWR));
        refused(opened, &[libc::EPERM]).map(drop)
    });
    let _ = fs::remove_file(real);
    result.map(|()| format!("errno {} at open and mknod, in a device group", libc::EPERM))
}

fn stale() -> Result<String, String> {
    let control = instance("stale")?;
    let path = format!("{}/nvidia{GPU}", folder("stale"));
    let held = sys::open(&path, libc::O_PATH).map_err(|e| format!("{path}: errno {e}"))?;
    control
        .destroy("stale", GPU)
        .map_err(|e| format!("destroy: errno {e}"))?;
    // Another tenant takes the name.
    control
        .create("stale", GPU, 1 << 30, 1)
        .map_err(|e| format!("create: errno {e}"))?;
    refused(
        sys::open(&format!("/proc/self/fd/{held}"), libc::O_RDWR),
        &[libc::ENODEV],
    )
}

fn new_node() -> Result<String, String> {
    instance("newnode")?;
    let path = format!("{}/nvidia9", folder("newnode"));
    let made = refused(
        sys::make_character_device(&path, 195, 1),
        &[libc::EPERM, libc::EACCES],
    )?;
    let meta =
        fs::metadata(format!("{}/nvidia{GPU}", folder("newnode"))).map_err(|e| e.to_string())?;
    // `stat` shows the real number; a device group must see another one.
    if libc::major(meta.rdev()) != 195 {
        return Err("the proxy node does not show the driver's number".to_owned());
    }
    Ok(made)
}

fn control_device() -> Result<String, String> {
    in_child(|| {
        unshare(libc::CLONE_NEWUSER).map_err(|e| format!("unshare: errno {e}"))?;
        let path = uapi::CONTROL_PATH;
        refused(sys::open(path, libc::O_RDWR), &[libc::EPERM, libc::EACCES]).map(drop)
    })?;
    Ok("not opened".to_owned())
}

fn control_dropped() -> Result<String, String> {
    let control = instance("dropped")?;
    in_child(|| {
        drop_admin().map_err(|e| format!("capset: errno {e}"))?;
        refused(control.set_memory("dropped", GPU, 2 << 30), &[libc::EPERM]).map(drop)
    })?;
    Ok(format!("errno {}", libc::EPERM))
}

fn procfs_write() -> Result<String, String> {
    let control = instance("limit")?;
    let path = format!("/proc/cgpu_km/{GPU}/limit/memsize");
    in_child(|| {
        unshare(libc::CLONE_NEWUSER).map_err(|e| format!("unshare: errno {e}"))?;
        refused(
            sys::open(&path, libc::O_WRONLY),
            &[libc::EPERM, libc::EACCES],
        )
        .map(drop)
    })?;
    let seen = control
        .get("limit", GPU)
        .map_err(|e| format!("get: errno {e}"))?;
    match seen.memory_limit_bytes {
        0x4000_0000 => Ok("not opened".to_owned()),
        other => Err(format!("the limit became {other}")),
    }
}

fn procfs_read() -> Result<String, String> {
    instance("neighbour")?;
    let path = format!("/proc/cgpu_km/{GPU}/neighbour/meminfo");
    in_child(|| {
        unshare(libc::CLONE_NEWUSER).map_err(|e| format!("unshare: errno {e}"))?;
        refused(
            sys::open(&path, libc::O_RDONLY),
            &[libc::EPERM, libc::EACCES],
        )
        .map(drop)
    })?;
    Ok("not opened".to_owned())
}

/// The scratch of this process, made by a first call: address and length.
fn scratch(name: &str) -> Result<(rm::Client, u64, u64), String> {
    let client = client(name)?;
    let maps = fs::read_to_string("/proc/self/maps").map_err(|e| e.to_string())?;
    let line = maps
        .lines()
        .find(|line| line.contains("cgpu") || line.contains("anon_inode"));
    let line = line.ok_or_else(|| format!("no scratch among the mappings:\n{maps}"))?;
    let range = line.split(' ').next().unwrap_or("");
    let (from, to) = range.split_once('-').ok_or("a line of maps")?;
    let number = |text: &str| u64::from_str_radix(text, 16).map_err(|e| e.to_string());
    let (from, to) = (number(from)?, number(to)?);
    Ok((client, from, to - from))
}

fn scratch_shape() -> Result<String, String> {
    instance("shape")?;
    let (client, at, length) = scratch("shape")?;
    let size = usize::try_from(length).unwrap_or(0);
    let pointer = at as *mut libc::c_void;
    let fixed = libc::MAP_FIXED | libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
    // SAFETY: nothing of the program lies in the range, and each of these calls is to fail.
    let results = unsafe {
        [
            ("munmap", libc::munmap(pointer, size) == 0),
            (
                "mprotect",
                libc::mprotect(pointer, size, libc::PROT_NONE) == 0,
            ),
            (
                "mprotect",
                libc::mprotect(pointer, size, libc::PROT_READ | libc::PROT_EXEC) == 0,
            ),
            (
                "mremap",
                libc::mremap(pointer, size, 2 * size, libc::MREMAP_MAYMOVE) != libc::MAP_FAILED,
            ),
            (
                "mmap",
                libc::mmap(pointer, size, libc::PROT_WRITE, fixed, -1, 0) != libc::MAP_FAILED,
            ),
            (
                "madvise",
                libc::madvise(pointer, size, libc::MADV_DONTNEED) == 0,
            ),
        ]
    };
    if let Some((call, _)) = results.iter().find(|(_, worked)| *worked) {
        return Err(format!("{call} works"));
    }
    // It still serves.
    client
        .memory(0x5c00_0010, 2 * MIB)
        .map_err(|e| format!("a call afterwards: {e}"))?;
    client.close();
    Ok("munmap, mprotect, mremap, mmap and madvise refused".to_owned())
}

fn scratch_write() -> Result<String, String> {
    instance("write")?;
    let (client, at, _) = scratch("write")?;
    let zero =
        sys::open("/dev/zero", libc::O_RDONLY).map_err(|e| format!("/dev/zero: errno {e}"))?;
    // SAFETY: the kernel is to refuse to write to this address, which holds nothing of the program.
    let read = unsafe { libc::read(zero, at as *mut libc::c_void, 8) };
    if read >= 0 {
        return Err("read(2) into it works".to_owned());
    }
    let mut byte = 1_u8;
    let local = libc::iovec {
        iov_base: std::ptr::from_mut(&mut byte).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: 1,
    };
    // SAFETY: both vectors live over the call; the kernel is to refuse the remote one.
    let wrote = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    if wrote >= 0 {
        return Err("process_vm_writev works".to_owned());
    }
    let memory = fs::OpenOptions::new().write(true).open("/proc/self/mem");
    if let Ok(memory) = memory {
        use std::os::unix::fs::FileExt;
        if memory.write_at(&[1], at).is_ok() {
            return Err("/proc/self/mem works".to_owned());
        }
    }
    client.close();
    Ok("read, process_vm_writev and /proc/self/mem refused".to_owned())
}

/// The kernel threads of the module, by name.
fn workers() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let read = |file: &str| fs::read_to_string(entry.path().join(file)).ok();
            // Programs have a command line, kernel threads have none.
            (read("comm")?.contains("cgpu") && read("cmdline")?.is_empty()).then_some(pid)
        })
        .collect()
}

/// Calls that the worker makes leave nothing in its descriptor table. No container may look there:
/// the kernel refuses. So root of the host looks, who may.
fn decoy() -> Result<String, String> {
    const NUMBERS: i32 = 64;
    instance("decoy")?;
    let client = client("decoy")?;
    let space = uvm::Space::open(&folder("decoy")).map_err(|e| format!("UVM: {e}"))?;
    let registered = space.register_gpu(&uvm::uuid(GPU)?);
    registered.map_err(|e| format!("UVM_REGISTER_GPU, which the worker makes: {e}"))?;
    let workers = workers();
    if workers.is_empty() {
        return Err("the worker is not to be found".to_owned());
    }
    for &worker in &workers {
        // SAFETY: takes no pointer.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, worker, 0) };
        for number in 0..NUMBERS {
            // SAFETY: takes no pointer.
            let copied = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd, number, 0) };
            if copied >= 0 {
                let what = fs::read_link(format!("/proc/self/fd/{copied}"));
                return Err(format!("descriptor {number} of {worker} is {what:?}"));
            }
            if sys::errno() != libc::EBADF {
                let errno = sys::errno();
                return Err(format!("descriptor {number} of {worker}: errno {errno}"));
            }
        }
    }
    space.close();
    client.close();
    Ok(format!(
        "nothing in {NUMBERS} places of each worker's table"
    ))
}

fn reopen() -> Result<String, String> {
    instance("reopen")?;
    let client = client("reopen")?;
    let path = format!("/proc/self/fd/{}", client.ctl);
    let again = sys::open(&path, libc::O_RDWR).map_err(|e| format!("{path}: errno {e}"))?;
    let made = rm::alloc(again, 0, 0, 0, rm::ROOT, &mut []).map_err(|e| format!("client: {e}"))?;
    // On a file of the driver's own this would be read from the settings; see ACCESS_REGISTRY.
    let mut outer = [0; 72];
    put_u32(&mut outer, 0, made);
    put_u32(&mut outer, 4, made);
    put_u32(&mut outer, 8, 1);
    let settings = super::scene::escape(again, 0x4d, &mut outer, 64);
    let Err(refusal) = settings else {
        return Err("the file that was opened again is the driver's own".to_owned());
    };
    client.close();
    Ok(format!("still proxied: {refusal}"))
}

fn access() -> Result<String, String> {
    instance("access")?;
    let client = client("access")?;
    let object = 0x5c00_0010;
    let bell = client.alloc(rm::SUBDEVICE_HANDLE, object, rm::USERMODE, &mut []);
    bell.map_err(|e| format!("doorbell: {e}"))?;
    let path = format!("{}/nvidia{GPU}", folder("access"));
    let fd = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC).map_err(|e| format!("errno {e}"))?;
    let mut map = [0; 56];
    for (at, value) in [
        (0, client.handle),
        (4, rm::SUBDEVICE_HANDLE),
        (8, object),
        (44, 0x8_0002),
    ] {
        put_u32(&mut map, at, value);
    }
    put_u64(&mut map, 24, 0x1_0000);
    put_u32(&mut map, 48, u32::try_from(fd).unwrap_or(0));
    super::scene::escape(client.ctl, 0x4e, &mut map, 40).map_err(|e| format!("map: {e}"))?;
    let address = sys::mmap(
        0,
        0x1_0000,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED,
        fd,
        0,
    )
    .or_else(|_| sys::mmap(0, 0x1_0000, libc::PROT_WRITE, libc::MAP_SHARED, fd, 0))
    .map_err(|e| format!("mmap: errno {e}"))?;
    use std::os::unix::fs::FileExt;
    let memory = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/self/mem");
    let memory = memory.map_err(|e| e.to_string())?;
    let wrote = memory.write_at(&[1, 0, 0, 0], address + rm::BELL);
    let read = memory.read_at(&mut [0; 4], address + rm::BELL);
    client.close();
    match (wrote, read) {
        (Err(e), Err(_)) => Ok(format!("{e}")),
        (wrote, read) => Err(format!("write {wrote:?}, read {read:?}")),
    }
}

/// An attempt to lock a GPU's node, and whether the host's own programs can lock the driver's then.
fn lock_of(folder: &str, host: i32) -> Result<[Result<(), i32>; 2], String> {
    let node = open_node(folder, &format!("nvidia{GPU}"))?;
    let tried = [node, host].map(|fd| sys::flock(fd, libc::LOCK_EX));
    for fd in [node, host] {
        let _ = sys::flock(fd, libc::LOCK_UN);
    }
    let _ = sys::close(node);
    Ok(tried)
}

fn node_lock() -> Result<String, String> {
    instance("locks")?;
    let host = open_node("/dev", &format!("nvidia{GPU}"))?;
    let direct = lock_of("/dev", host)?;
    if direct != [Ok(()), Err(libc::EWOULDBLOCK)] {
        return Err(format!("does not work on the driver: {direct:?}"));
    }
    let [locked, others] = lock_of(&folder("locks"), host)?;
    let how = refused(locked, &[libc::ENOLCK])?;
    others.map_err(|errno| format!("the host's own lock: errno {errno}"))?;
    let _ = sys::close(host);
    Ok(format!("works directly; {how}"))
}
