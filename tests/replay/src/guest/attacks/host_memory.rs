// SPDX-License-Identifier: GPL-2.0
//! Memory of the host that the driver takes for a program, and charges to nobody.

use super::{
    attack::Own,
    rest::alone,
    scene::{clean_up, escape, Place, GPU, LIMIT, MIB, OWN},
    stale::client_on,
};
use crate::{
    bytes::{put_u32, put_u64},
    guest::{rm, tools::control, uvm},
    layout, standin, sys,
};
use cgpu_uapi::{capability, Limited};

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "host memory without end (NV01_MEMORY_SYSTEM)",
        function: "system_mem.c:sysmemConstruct_IMPL",
        run: objects,
    },
    Own {
        name: "host memory kept by mappings of freed objects",
        function: "nv-mmap.c:nvidia_vma_open",
        run: mappings,
    },
    Own {
        name: "host memory kept by pins of freed objects",
        function: "os-mlock.c:os_lock_user_pages",
        run: pins,
    },
    Own {
        name: "host memory by lists of registered pages",
        function: "nv.c:nv_register_user_pages",
        run: || take_pieces(LIMIT, ALLOWED, mirrors, lists),
    },
    Own {
        name: "host memory in pools of semaphores",
        function: "uvm_va_range.c:uvm_api_alloc_semaphore_pool",
        run: pools,
    },
    Own {
        name: "managed memory that fills the host",
        function: "uvm.c:uvm_mmap",
        run: managed,
    },
    Own {
        name: "managed memory of no GPU",
        function: "uvm.c:uvm_mmap",
        run: || take_pieces(LIMIT, ALLOWED, nothing, range),
    },
    Own {
        name: "host memory in ranges of UVM",
        function: "uvm_map_external.c:uvm_api_create_external_range",
        run: || take_pieces(LIMIT, ALLOWED, nothing, ranges),
    },
    Own {
        name: "host memory kept by mappings that were cut",
        function: "uvm_map_external.c:uvm_ext_gpu_map_split",
        // The range takes the room of the last one.
        run: || take_pieces(LIMIT, ALLOWED - 1, whole, cuts),
    },
    Own {
        name: "host memory kept by control pages of channels",
        function: "kernel_channel_gv100.c:kchannelCreateUserdMemDesc_GV100",
        // None at all: the free of the first is refused.
        run: || take_pieces(LIMIT, 0, group, control_page),
    },
    Own {
        name: "host memory kept by surfaces of semaphores",
        function: "sem_surf.c:semsurfConstruct_IMPL",
        run: surfaces,
    },
    Own {
        name: "host memory kept by queues of operations",
        function: "mem_mapper.c:memmapperConstruct_IMPL",
        run: queues,
    },
];

/// Bytes of each piece, how many pieces a program asks for, and how many an instance may have.
const PIECE: u64 = 8 * MIB;
const PIECES: u64 = 24;
const ALLOWED: u64 = 4;
/// Bytes with which the address space of the program's UVM file counts.
const SPACE: u64 = 384 << 10;
/// Bytes of a page, and what a registered page's handle is further on than its object's.
const PAGE: u64 = 4096;
const PINS: u32 = 0x1000;
/// Memory for the notes of queues.
const NOTES: u32 = OWN + 0x2000;
/// Bytes of the memory of a surface of semaphores.
const SURFACE: u64 = 2 * MIB;
/// Address of pools and managed memory.
const BASE: u64 = 0x7d00_0000_0000;

/// A program: its files, and how UVM names its GPU.
struct Taker {
    folder: String,
    client: rm::Client,
    space: uvm::Space,
}

impl Taker {
    fn new(place: Place) -> Result<Self, String> {
        let folder = place.folder("attacker");
        let client = client_on(&folder, GPU)?;
        let space = uvm::Space::open(&folder).map_err(|e| format!("UVM: {e}"))?;
        Ok(Self {
            folder,
            client,
            space,
        })
    }

    /// How many pieces it gets, and why no more.
    fn take(&self, piece: impl Fn(&Self, u64) -> Result<(), String>) -> (u64, String) {
        for number in 0..PIECES {
            if let Err(end) = piece(self, number) {
                return (number, end);
            }
        }
        (PIECES, "there is no end".to_owned())
    }

    fn close(self) {
        self.space.close();
        self.client.close();
    }
}

fn object(program: &Taker, number: u64) -> Result<(), String> {
    let handle = OWN + u32::try_from(number).map_err(|e| e.to_string())?;
    let made = program.client.system_memory(handle, PIECE);
    made.map(drop).map_err(|e| e.to_string())
}

/// Makes an object and maps a page of it: its handle, and the file that shows it.
fn show(program: &Taker, number: u64) -> Result<(u32, i32), String> {
    object(program, number)?;
    let handle = OWN + u32::try_from(number).map_err(|e| e.to_string())?;
    let path = format!("{}/nvidiactl", program.folder);
    let errno = |errno| format!("{path}: errno {errno}");
    let fd = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC).map_err(errno)?;
    let names = (program.client.handle, rm::DEVICE_HANDLE, handle);
    let told = rm::map(program.client.ctl, names, PIECE, rm::MAP_OF_MEMORY, fd);
    told.map_err(|e| format!("RM_MAP_MEMORY: {e}"))?;
    let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let at = BASE + number * PIECE;
    sys::mmap(at, PAGE, prot, shared | libc::MAP_FIXED, fd, 0).map_err(errno)?;
    Ok((handle, fd))
}

/// Frees an object, and closes the file that shows it.
fn free_shown(program: &Taker, (handle, fd): (u32, i32)) -> Result<(), String> {
    sys::close(fd).map_err(|errno| format!("close: errno {errno}"))?;
    let freed = program.client.free(handle);
    freed.map_err(|e| format!("RM_FREE: {e}"))
}

/// Makes an object, maps a page of it, and frees it. The mapping stays.
fn mapping(program: &Taker, number: u64) -> Result<(), String> {
    let shown = show(program, number)?;
    free_shown(program, shown)
}

/// Registers memory of the program's own: from an address on, so many bytes.
fn register(program: &Taker, handle: u32, (at, bytes): (u64, u64)) -> Result<(), rm::Failure> {
    let mut outer = [0; 56];
    put_u32(&mut outer, 0, program.client.handle);
    put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
    put_u32(&mut outer, 8, handle);
    put_u32(&mut outer, 12, 0x71);
    // Cached, not contiguous, and not to be mapped.
    put_u32(&mut outer, 16, 0x4000_1010);
    put_u64(&mut outer, 24, at);
    put_u64(&mut outer, 32, bytes - 1);
    escape(program.client.gpu, 0x27, &mut outer, 40)
}

/// Makes an object, maps a page of it, and registers that as memory of the program's own. Then it
/// unmaps the page and frees the object. The page stays.
fn pin(program: &Taker, number: u64) -> Result<(), String> {
    let shown = show(program, number)?;
    let at = BASE + number * PIECE;
    let pinned = register(program, shown.0 + PINS, (at, PAGE));
    // SAFETY: `show` has mapped it for this.
    let gone = unsafe { sys::munmap(at, PAGE) };
    gone.map_err(|errno| format!("munmap: errno {errno}"))?;
    free_shown(program, shown)?;
    pinned.map_err(|e| format!("RM_ALLOC_MEMORY: {e}"))
}

/// Bytes of addresses at which a program has the same 2 MiB again and again.
const MIRRORED: u64 = 32 * MIB;

fn mirrors(_: &Taker, _: u64) -> Result<(), String> {
    const PAGES: u64 = 2 * MIB;
    let errno = |errno| format!("memory: errno {errno}");
    let file = sys::memory_file(c"mirrored").map_err(errno)?;
    sys::set_len(file, PAGES).map_err(errno)?;
    let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    for number in 0..MIRRORED / PAGES {
        let at = BASE + number * PAGES;
        let mapped = sys::mmap(at, PAGES, prot, shared | libc::MAP_FIXED, file, 0);
        mapped.map_err(errno)?;
    }
    sys::close(file).map_err(errno)
}

/// Registers those addresses ten times. The driver's lists of them are nearly a piece: 96 bytes for
/// each page.
fn lists(program: &Taker, number: u64) -> Result<(), String> {
    const TIMES: u64 = 10;
    for handle in number * TIMES..(number + 1) * TIMES {
        let handle = OWN + u32::try_from(handle).map_err(|e| e.to_string())?;
        let registered = register(program, handle, (BASE, MIRRORED));
        registered.map_err(|e| format!("RM_ALLOC_MEMORY: {e}"))?;
    }
    Ok(())
}

fn pool(program: &Taker, number: u64) -> Result<(), String> {
    let mut params = vec![0; 9248];
    put_u64(&mut params, 0, BASE + number * PIECE);
    put_u64(&mut params, 8, PIECE);
    let made = program
        .space
        .call(layout::UVM_ALLOC_SEMAPHORE_POOL, &mut params, 9240);
    made.map_err(|e| e.to_string())
}

fn range(program: &Taker, number: u64) -> Result<(), String> {
    let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let at = BASE + number * PIECE;
    let fixed = shared | libc::MAP_FIXED;
    let mapped = sys::mmap(at, PIECE, prot, fixed, program.space.fd, at);
    mapped
        .map(drop)
        .map_err(|errno| format!("mmap: errno {errno}"))
}

/// Ranges of a page. The driver takes 16 KiB for each (`gpu_ranges`, uvm_va_range.h), so those of a
/// piece take as much as a piece.
fn ranges(program: &Taker, number: u64) -> Result<(), String> {
    const EACH: u64 = 16 << 10;
    for page in 0..PIECE / EACH {
        let at = BASE + number * PIECE + page * PAGE;
        let made = program.space.create_range(at, PAGE);
        made.map_err(|e| format!("UVM_CREATE_EXTERNAL_RANGE: {e}"))?;
    }
    Ok(())
}

/// Cuts of a piece, and the first one's address. The driver keeps up to 16 KiB for each
/// (`uvm_page_table_range_vec_split_upper()`, uvm_mmu.c).
const CUTS: u64 = PIECE / (16 << 10);
const CUT: u64 = BASE + PAGE;

/// A mapping in pages of 4 KiB, to be cut on both sides of every second page.
fn whole(program: &Taker, _: u64) -> Result<(), String> {
    const MAPPED: u64 = CUTS * PIECES * PAGE + PAGE;
    const MEMORY: u32 = OWN + 1;
    enter(program)?;
    let (client, space) = (&program.client, &program.space);
    let made = client.memory(MEMORY, 64 * MIB);
    made.map_err(|e| format!("memory: {e}"))?;
    let made = space.create_range(CUT, MAPPED);
    made.map_err(|e| format!("UVM_CREATE_EXTERNAL_RANGE: {e}"))?;
    let mapped = space.map((CUT, MAPPED), &uvm::uuid(GPU)?, (client.handle, MEMORY));
    mapped.map_err(|e| format!("UVM_MAP_EXTERNAL_ALLOCATION: {e}"))
}

/// Unmaps every second page of a part of that.
fn cuts(program: &Taker, number: u64) -> Result<(), String> {
    let gpu = uvm::uuid(GPU)?;
    let pages = number * CUTS..(number + 1) * CUTS;
    for page in pages.filter(|page| page % 2 == 1) {
        let gone = program.space.unmap((CUT + page * PAGE, PAGE), &gpu);
        gone.map_err(|e| format!("UVM_UNMAP_EXTERNAL: {e}"))?;
    }
    Ok(())
}

/// The group of the channels of [`control_page`].
const GROUP: u32 = OWN + 0x3000;

fn group(program: &Taker, _: u64) -> Result<(), String> {
    let made = program.client.channel_group(GROUP, rm::COMPUTE);
    made.map_err(|e| format!("group: {e}"))
}

/// Makes memory, a channel with its control page in it, and frees the memory. The driver keeps it.
fn control_page(program: &Taker, number: u64) -> Result<(), String> {
    object(program, number)?;
    let memory = OWN + u32::try_from(number).map_err(|e| e.to_string())?;
    let mut params = [0; 368];
    put_u32(&mut params, 32, memory);
    let channel = GROUP + 1 + (memory - OWN);
    let made = program
        .client
        .alloc(GROUP, channel, rm::CHANNEL, &mut params);
    made.map_err(|e| format!("channel: {e}"))?;
    let freed = program.client.free(memory);
    freed.map_err(|e| format!("RM_FREE: {e}"))
}

/// Makes memory, a surface of semaphores of it, and frees the memory. The surface keeps it.
fn surface(program: &Taker, number: u64) -> Result<(), String> {
    let number = u32::try_from(number).map_err(|e| e.to_string())?;
    let (memory, surface) = (OWN + 2 * number, OWN + 2 * number + 1);
    let made = program.client.system_memory(memory, SURFACE);
    made.map_err(|e| format!("memory: {e}"))?;
    let mut params = [0; 16];
    put_u32(&mut params, 0, memory);
    let made = program
        .client
        .alloc(rm::SUBDEVICE_HANDLE, surface, 0xda, &mut params);
    made.map_err(|e| format!("surface: {e}"))?;
    let freed = program.client.free(memory);
    freed.map_err(|e| format!("RM_FREE: {e}"))
}

/// The same with a queue of the surface's, which keeps it when it is freed.
fn queue(program: &Taker, number: u64) -> Result<(), String> {
    const QUEUES: u32 = OWN + 0x1000;
    surface(program, number)?;
    let number = u32::try_from(number).map_err(|e| e.to_string())?;
    let surface = OWN + 2 * number + 1;
    let mut params = [0; 24];
    put_u32(&mut params, 0, surface);
    put_u32(&mut params, 4, 1);
    put_u32(&mut params, 8, NOTES);
    let queue = QUEUES + number;
    let made = program
        .client
        .alloc(rm::SUBDEVICE_HANDLE, queue, 0xfe, &mut params);
    made.map_err(|e| format!("queue: {e}"))?;
    let freed = program.client.free(surface);
    freed.map_err(|e| format!("RM_FREE: {e}"))
}

/// A page for the notes of queues.
fn notes(program: &Taker, _: u64) -> Result<(), String> {
    let made = program.client.system_page(NOTES);
    made.map(drop).map_err(|e| format!("notes: {e}"))
}

/// Takes the addresses of [`BASE`] away again.
fn unmap() -> Result<(), String> {
    // SAFETY: The attacks of this file alone map something there.
    let gone = unsafe { sys::munmap(BASE, PIECES * PIECE) };
    gone.map_err(|errno| format!("munmap: errno {errno}"))
}

/// Gives an address space of the program's GPU to UVM, so that the GPU can hold managed memory.
fn enter(program: &Taker) -> Result<(), String> {
    let mut params = uvm::space_params();
    let class = uvm::VA_SPACE;
    let client = &program.client;
    let made = client.alloc(rm::DEVICE_HANDLE, OWN, class, &mut params);
    made.map_err(|e| format!("address space: {e}"))?;
    let named = program.space.register(&uvm::uuid(GPU)?, client.handle, OWN);
    named.map_err(|e| format!("UVM_REGISTER_GPU_VASPACE: {e}"))
}

type TakePiece = fn(&Taker, u64) -> Result<(), String>;

/// How many pieces a program gets in a place, and why no more.
fn taken(place: Place, begin: TakePiece, piece: TakePiece) -> Result<(u64, String), String> {
    let program = Taker::new(place)?;
    begin(&program, 0)?;
    let taken = program.take(piece);
    unmap()?;
    program.close();
    Ok(taken)
}

/// In an instance of that memory limit, with `ALLOWED` pieces of host memory beside its UVM file.
fn in_instance(limit: u64, begin: TakePiece, piece: TakePiece) -> Result<(u64, String), String> {
    let control = control()?;
    clean_up(&control);
    let errno = |errno| format!("instance: errno {errno}");
    control.create("attacker", GPU, limit, 1).map_err(errno)?;
    let what = Limited::HostMemory.number();
    let host = SPACE + ALLOWED * PIECE;
    control
        .set_limit("attacker", GPU, what, host)
        .and_then(|()| control.set_capabilities("attacker", GPU, capability::ALL))
        .map_err(errno)?;
    let taken = taken(Place::Instance, begin, piece);
    let limits = control.limits("attacker", GPU).map_err(errno)?;
    let left = limits.iter().find(|one| one.what == what);
    let left = left.map_or(0, |left| left.used);
    clean_up(&control);
    match left {
        0 => taken,
        left => Err(format!("{left} bytes are still charged")),
    }
}

fn take_pieces(
    limit: u64,
    most: u64,
    begin: TakePiece,
    piece: TakePiece,
) -> Result<String, String> {
    let (direct, end) = alone(|| taken(Place::Driver, begin, piece))?;
    if direct != PIECES {
        return Err(format!("{direct} pieces of the driver: {end}"));
    }
    match in_instance(limit, begin, piece)? {
        (count, how) if count == most => Ok(format!("{how} after {count} of {PIECES}")),
        (count, how) => Err(format!("{how} after {count}, not {most}")),
    }
}

fn nothing(_: &Taker, _: u64) -> Result<(), String> {
    Ok(())
}

fn objects() -> Result<String, String> {
    take_pieces(LIMIT, ALLOWED, nothing, object)
}

fn mappings() -> Result<String, String> {
    standin::needed("branch 550 refuses the mapping itself (EAGAIN)")?;
    take_pieces(LIMIT, ALLOWED, nothing, mapping)
}

/// None at all: an object that can be pinned would stay charged to nobody.
fn pins() -> Result<String, String> {
    standin::needed("branch 550 refuses the mapping itself (EAGAIN)")?;
    take_pieces(LIMIT, 0, nothing, pin)
}

fn pools() -> Result<String, String> {
    take_pieces(LIMIT, ALLOWED, nothing, pool)
}

/// The last one's memory has no room beside its surface.
fn surfaces() -> Result<String, String> {
    const MOST: u64 = ALLOWED * PIECE / SURFACE - 1;
    take_pieces(LIMIT, MOST, nothing, surface)
}

/// There is no room for one more beside the page for notes.
fn queues() -> Result<String, String> {
    const MOST: u64 = ALLOWED * PIECE / SURFACE - 2;
    standin::needed("branch 550 has no queues of operations")?;
    take_pieces(LIMIT, MOST, notes, queue)
}

/// Of which as much as the instance has of the GPU is on the GPU.
fn managed() -> Result<String, String> {
    const ON_GPU: u64 = 3;
    // And page tables.
    let limit = ON_GPU * PIECE + MIB;
    take_pieces(limit, ON_GPU + ALLOWED, |program, _| enter(program), range)
}
