// SPDX-License-Identifier: GPL-2.0
//! A process of the storm: what it has, and its steps.

use std::{
    os::{fd::IntoRawFd, unix::net::UnixDatagram},
    rc::Rc,
};

use super::{
    board::{count, PagesBoard, KINDS},
    view::{PageView, Scratch, ViewState, PAGE},
};
use crate::{
    bytes::put_u32,
    guest::{
        process::{receive_with_fd, send_with_fd, spawn},
        rm::{self, DEVICE_HANDLE},
        tools::{GPU, MIB},
        uvm::{space_params, Space, VA_SPACE},
    },
    random::Random,
    sys,
};

const SPACE_HANDLE: u32 = 0x5C00_0004;
const FIRST: u32 = 0x5C00_0100;
/// Bytes of an object. Of each its first page is mapped.
const PIECE: u64 = 2 * MIB;
/// Objects, files with mappings and ranges that a process has at a time.
const MOST_OBJECTS: usize = 8;
const MOST_VIEWS: usize = 32;
const MOST_RANGES: u64 = 6;
/// Channels that UVM keeps for it, and children.
const MOST_CHANNELS: u32 = 2;
const MOST_CHILDREN: usize = 2;
const STEPS_OF_CHILD: u32 = 24;
/// The address of the first range.
const BASE: u64 = 0x20_0000_0000;
/// UVM_REGISTER_CHANNEL.
const REGISTER_CHANNEL: u32 = 27;

/// The name of a step.
pub(super) const CHANNEL_STEP: &str = "register a channel";

/// A kind of step: a name, how often it is tried, and what a process does, if it can.
type PageStep = (&'static str, u64, fn(&mut PageProgram) -> Option<()>);

/// All kinds.
pub(super) const STEPS: [PageStep; KINDS] = [
    ("allocate", 14, PageProgram::allocate),
    ("duplicate", 4, PageProgram::duplicate),
    ("map", 8, PageProgram::map),
    ("map late", 8, PageProgram::map_late),
    ("read", 40, PageProgram::read),
    ("write", 6, PageProgram::write),
    ("move", 3, PageProgram::relocate),
    ("unmap a page", 3, PageProgram::unmap_page),
    ("close a file", 3, PageProgram::close_file),
    ("unmap an object", 2, PageProgram::unmap_object),
    ("fork", 2, PageProgram::fork),
    ("pass", 5, PageProgram::pass),
    ("receive", 6, PageProgram::receive),
    ("register memory", 3, PageProgram::register),
    ("unregister memory", 2, PageProgram::unregister),
    (CHANNEL_STEP, 1, PageProgram::register_channel),
    ("free memory", 8, PageProgram::free_memory),
    ("free the device", 1, PageProgram::free_device),
    ("free the client", 1, PageProgram::free_client),
    ("close the client", 1, PageProgram::close_client),
];

/// The sockets by which each process gets files: where it reads, and where others write.
pub(super) type Inboxes = Rc<Vec<(UnixDatagram, UnixDatagram)>>;

/// The GPU that all use.
#[derive(Clone, Copy)]
pub(super) struct PagesGpu {
    pub(super) device_instance: u32,
    pub(super) uuid: [u8; 16],
}

/// An object of memory, and its tag. Duplicates have the same one.
#[derive(Clone, Copy)]
struct PageObject {
    handle: u32,
    tag: u64,
}

pub(super) struct PageProgram {
    board: &'static PagesBoard,
    seat: usize,
    folder: String,
    inboxes: Inboxes,
    gpu: PagesGpu,
    random: Random,
    scratch: Scratch,
    /// It has no client of its own, and makes none.
    is_child: bool,
    client: Option<rm::Client>,
    space: Option<Space>,
    objects: Vec<PageObject>,
    views: Vec<PageView>,
    ranges: Vec<u64>,
    channels: u32,
    children: Vec<i32>,
    next: u32,
}

/// Runs until it is killed.
pub(super) fn run(
    board: &'static PagesBoard,
    seat: usize,
    folder: &str,
    inboxes: &Inboxes,
    gpu: PagesGpu,
    seed: u64,
) -> i32 {
    let Some(scratch) = Scratch::new() else {
        return 1;
    };
    let mut program = PageProgram {
        board,
        seat,
        folder: folder.to_owned(),
        inboxes: Inboxes::clone(inboxes),
        gpu,
        random: Random(seed),
        scratch,
        is_child: false,
        client: None,
        space: None,
        objects: Vec::new(),
        views: Vec::new(),
        ranges: Vec::new(),
        channels: 0,
        children: Vec::new(),
        next: FIRST,
    };
    loop {
        program.step();
    }
}

impl PageProgram {
    fn step(&mut self) {
        if self.client.is_none() && !self.is_child {
            self.open();
        }
        let mut dice = self.random.below(STEPS.iter().map(|step| step.1).sum());
        for ((_, weight, run), made) in STEPS.iter().zip(&self.board.steps) {
            if dice < *weight {
                if run(self).is_some() {
                    count(made);
                }
                return;
            }
            dice -= weight;
        }
    }

    /// A client with an address space that UVM knows, if it can be had.
    fn open(&mut self) {
        let instance = self.gpu.device_instance;
        let Ok(client) = rm::Client::open(&self.folder, GPU, instance) else {
            return;
        };
        let made = client.alloc(DEVICE_HANDLE, SPACE_HANDLE, VA_SPACE, &mut space_params());
        self.space = Space::open(&self.folder).ok();
        if let (Ok(_), Some(space)) = (made, self.space) {
            let _ = space.register(&self.gpu.uuid, client.handle, SPACE_HANDLE);
        }
        self.client = Some(client);
    }

    fn handle(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn object(&mut self) -> Option<PageObject> {
        let all = self.objects.len();
        (all > 0).then(|| self.objects[self.random.index(all)])
    }

    /// The number of a view that is fit.
    fn view(&mut self, fit: impl Fn(&PageView) -> bool) -> Option<usize> {
        let fit: Vec<usize> = (0..self.views.len())
            .filter(|&at| fit(&self.views[at]))
            .collect();
        (!fit.is_empty()).then(|| fit[self.random.index(fit.len())])
    }

    /// Changes what is known of the mappings of an object, or of all objects.
    fn set(&mut self, object: Option<u32>, state: ViewState) {
        for view in &mut self.views {
            match view.state {
                ViewState::Whole(of) if object.is_none_or(|object| object == of) => {
                    view.state = state;
                }
                _ => {}
            }
        }
    }

    /// A file that shows an object.
    fn prepare(&self, object: PageObject) -> Option<PageView> {
        let client = self.client.as_ref()?;
        let path = format!("{}/nvidia{GPU}", self.folder);
        let fd = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC).ok()?;
        let names = (client.handle, DEVICE_HANDLE, object.handle);
        let Ok(told) = rm::map(client.ctl, names, PAGE, rm::MAP_OF_MEMORY, fd) else {
            let _ = sys::close(fd);
            return None;
        };
        Some(PageView {
            fd: Some(fd),
            address: None,
            tag: object.tag,
            told,
            state: ViewState::Whole(object.handle),
        })
    }

    pub(super) fn allocate(&mut self) -> Option<()> {
        if self.objects.len() >= MOST_OBJECTS || self.views.len() >= MOST_VIEWS {
            return None;
        }
        let (handle, tag) = (self.handle(), self.board.tag());
        let client = self.client.as_ref()?;
        client.memory(handle, PIECE).ok()?;
        let object = PageObject { handle, tag };
        let view = self.prepare(object);
        let view = view.filter(|view| {
            let mut view = *view;
            view.map() && view.write(&self.scratch, self.board).is_some()
        });
        let Some(view) = view else {
            let _ = self.client.as_ref()?.free(handle);
            return None;
        };
        self.objects.push(object);
        self.views.push(view);
        Some(())
    }

    pub(super) fn duplicate(&mut self) -> Option<()> {
        let (object, handle) = (self.object()?, self.handle());
        let client = self.client.as_ref()?;
        if self.objects.len() >= MOST_OBJECTS {
            return None;
        }
        let source = (client.handle, object.handle);
        rm::dup(client.ctl, client.handle, DEVICE_HANDLE, handle, source).ok()?;
        self.objects.push(PageObject { handle, ..object });
        Some(())
    }

    pub(super) fn map(&mut self) -> Option<()> {
        let object = self.object()?;
        if self.views.len() >= MOST_VIEWS {
            return None;
        }
        let mut view = self.prepare(object)?;
        // Some are mapped later, when the object is gone or is not.
        if self.random.below(2) == 0 && !view.map() {
            view.faulted(self.board);
        }
        self.views.push(view);
        Some(())
    }

    pub(super) fn map_late(&mut self) -> Option<()> {
        let at = self.view(|view| view.fd.is_some() && view.address.is_none())?;
        if self.views[at].map() {
            self.look(at);
        } else {
            self.views[at].faulted(self.board);
            self.drop_half(at);
        }
        Some(())
    }

    pub(super) fn read(&mut self) -> Option<()> {
        let at = self.view(|view| view.address.is_some())?;
        self.look(at);
        Some(())
    }

    fn look(&mut self, at: usize) {
        if !self.views[at].read(&self.scratch, self.board) {
            self.drop_half(at);
        }
    }

    /// A view that shows nothing any more makes room, or is tried again.
    fn drop_half(&mut self, at: usize) {
        if self.random.below(2) == 0 {
            let mut view = self.views.swap_remove(at);
            view.unmap();
            view.close();
        }
    }

    pub(super) fn write(&mut self) -> Option<()> {
        let at = self.view(|view| view.address.is_some())?;
        self.views[at].write(&self.scratch, self.board)
    }

    /// Moves a page to another address.
    pub(super) fn relocate(&mut self) -> Option<()> {
        let at = self.view(|view| view.address.is_some())?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let to = sys::mmap(0, PAGE, libc::PROT_NONE, flags, -1, 0).ok()?;
        // SAFETY: At the one there is this view's page, at the other what was just mapped.
        unsafe { sys::move_mapping(self.views[at].address?, to, PAGE) }.ok()?;
        self.views[at].address = Some(to);
        Some(())
    }

    /// Leaves a page; the file can map it again.
    pub(super) fn unmap_page(&mut self) -> Option<()> {
        let at = self.view(|view| view.address.is_some())?;
        self.views[at].unmap();
        if self.views[at].fd.is_none() {
            self.views.swap_remove(at);
        }
        Some(())
    }

    /// Closes a file; its page stays mapped.
    pub(super) fn close_file(&mut self) -> Option<()> {
        let at = self.view(|view| view.fd.is_some())?;
        self.views[at].close();
        if self.views[at].address.is_none() {
            self.views.swap_remove(at);
        }
        Some(())
    }

    /// RM_UNMAP_MEMORY: through an instance it ends all mappings of the object.
    pub(super) fn unmap_object(&mut self) -> Option<()> {
        let at = self.view(|view| matches!(view.state, ViewState::Whole(_)))?;
        let (client, told) = (self.client.as_ref()?, self.views[at].told);
        let ViewState::Whole(handle) = self.views[at].state else {
            return None;
        };
        let unmapped = rm::unmap(client.ctl, (client.handle, DEVICE_HANDLE, handle), told);
        self.end(Some(handle), unmapped)
    }

    /// A call that ends mappings has been answered.
    fn end(&mut self, object: Option<u32>, answer: Result<(), rm::Failure>) -> Option<()> {
        let state = match answer {
            Ok(()) => ViewState::Ended,
            Err(_) => ViewState::Theirs,
        };
        self.set(object, state);
        answer.ok()
    }

    pub(super) fn free_memory(&mut self) -> Option<()> {
        let object = self.object()?;
        let freed = self.client.as_ref()?.free(object.handle);
        self.objects.retain(|other| other.handle != object.handle);
        self.end(Some(object.handle), freed)
    }

    pub(super) fn free_device(&mut self) -> Option<()> {
        let freed = self.client.as_ref()?.free(DEVICE_HANDLE);
        let made = self.end(None, freed);
        self.forget();
        made
    }

    pub(super) fn free_client(&mut self) -> Option<()> {
        let client = self.client.as_ref()?;
        let freed = client.free(client.handle);
        let made = self.end(None, freed);
        self.forget();
        made
    }

    /// Its files are closed. A child may have them open still.
    pub(super) fn close_client(&mut self) -> Option<()> {
        self.client.as_ref()?;
        self.set(None, ViewState::Theirs);
        self.forget();
        Some(())
    }

    fn forget(&mut self) {
        if let Some(client) = self.client.take() {
            client.close();
        }
        let _ = self.space.take().map(Space::close);
        self.objects.clear();
        self.ranges.clear();
        self.channels = 0;
    }

    /// A child has the mappings and the files, and works with them while its parent frees.
    pub(super) fn fork(&mut self) -> Option<()> {
        if self.is_child {
            return None;
        }
        if self.children.len() >= MOST_CHILDREN {
            let child = self.children.remove(0);
            if sys::wait(child) != Ok(0) {
                eprintln!("storm: a child has not ended by itself");
                sys::exit_now(1);
            }
        }
        let child = spawn(|| self.be_child()).ok()?;
        self.children.push(child);
        Some(())
    }

    fn be_child(&mut self) -> i32 {
        let Some(scratch) = Scratch::new() else {
            return 1;
        };
        self.scratch = scratch;
        self.is_child = true;
        self.client = None;
        self.space = None;
        self.objects.clear();
        self.set(None, ViewState::Theirs);
        for _ in 0..STEPS_OF_CHILD {
            self.step();
            sys::sleep_ms(self.random.below(3));
        }
        0
    }

    /// Sends a file to a process of either tenant.
    pub(super) fn pass(&mut self) -> Option<()> {
        let at = self.view(|view| view.fd.is_some())?;
        let (fd, tag) = (self.views[at].fd?, self.views[at].tag);
        let to = self.random.index(self.inboxes.len());
        // It may be full.
        send_with_fd(&self.inboxes[to].1, &tag.to_le_bytes(), fd).ok()
    }

    pub(super) fn receive(&mut self) -> Option<()> {
        if self.views.len() >= MOST_VIEWS {
            return None;
        }
        let mut tag = [0; 8];
        let fd = receive_with_fd(&self.inboxes[self.seat].0, &mut tag).ok()?;
        let mut view = PageView {
            fd: Some(fd.into_raw_fd()),
            address: None,
            tag: u64::from_le_bytes(tag),
            told: 0,
            state: ViewState::Theirs,
        };
        if self.random.below(2) == 0 && !view.map() {
            view.faulted(self.board);
        }
        self.views.push(view);
        Some(())
    }

    /// Maps an object for the GPU: its memory stays when it is freed, and no mapping does.
    pub(super) fn register(&mut self) -> Option<()> {
        let (object, client) = (self.object()?, self.client.as_ref()?.handle);
        let space = self.space?;
        let places = (0..MOST_RANGES).map(|number| BASE + number * PIECE);
        let base = places.clone().find(|place| !self.ranges.contains(place))?;
        space.create_range(base, PIECE).ok()?;
        let mapped = space.map((base, PIECE), &self.gpu.uuid, (client, object.handle));
        if mapped.is_err() {
            let _ = space.free_range(base, PIECE);
            return None;
        }
        self.ranges.push(base);
        Some(())
    }

    pub(super) fn unregister(&mut self) -> Option<()> {
        let (space, base) = (self.space?, self.ranges.pop()?);
        space.free_range(base, PIECE).ok()
    }

    /// Has UVM keep a channel, and frees it.
    pub(super) fn register_channel(&mut self) -> Option<()> {
        if self.channels >= MOST_CHANNELS {
            return None;
        }
        let (group, channel) = (self.handle(), self.handle());
        let (client, space) = (self.client.as_ref()?, self.space?);
        client.channel_group(group, rm::COMPUTE).ok()?;
        let mut params = [0; 56];
        params[..16].copy_from_slice(&self.gpu.uuid);
        put_u32(&mut params, 20, client.handle);
        put_u32(&mut params, 24, channel);
        let kept = client.channel(group, channel);
        let kept = kept.and_then(|()| space.call(REGISTER_CHANNEL, &mut params, 48));
        let _ = client.free(group);
        self.channels += 1;
        kept.ok()
    }
}
