// SPDX-License-Identifier: GPL-2.0
//! The driver's interface for other kernel modules (`nvidia_get_rm_ops`), for the few calls by
//! which a GPU's time is shared. `crate::nvidia::rmapi` says what it looks like.
//!
//! The function is looked for when a GPU is opened, so it does not matter which module was loaded
//! first: among the symbols that modules export to modules of our licence, else by its address,
//! since a proprietary driver exports it to its own parts. It must lie in the module whose file we
//! have open, and that file keeps the module there. It gives its table only to a
//! caller that names the driver's exact version.
//!
//! # Locks
//!
//! Every call takes the driver's own locks and may sleep for as long as the GPU's firmware takes.
//! It is made with no spinlock, no lock that a proxied call takes, and not under `mmap_lock`.

use super::{
    backing_file::BackingFile,
    operations::{
        Aligned,
        MappingSlot,
        RmOperations, //
    }, //
};
use crate::{
    nvidia::{
        class,
        escape::Escape,
        fb,
        handle::{
            ClientHandle,
            ControlCmd,
            ObjectHandle, //
        },
        nvos::{
            self,
            nvos00,
            nvos21,
            nvos33,
            nvos54,
            nvos64, //
        },
        params::{
            self,
            fb_get_info,
            nv0080,
            nv2080,
            perf_boost,
            preempt,
            timeslice,
            usermode, //
        },
        rmapi::{
            self,
            disable_channels,
            UnseenParams, //
        },
        samples::{
            RingSample,
            SampleLayout, //
        },
        status::NvStatus,
        tables::Tables,
        version::Branch,
        wire::Field, //
    },
    os_interface::{
        base::{
            extra,
            frame::Frame,
            log::pr_warn, //
        },
        gate::doorbell::{
            Doorbell,
            PAGES, //
        }, //
    },
    policy::{
        sched::{
            RmName,
            Sample, //
        },
        BoostCall,
        ProcessId, //
    },
    proxy::{
        Part,
        PointerAt, //
    },
    store::List, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    sync::Arc, //
};

/// Why there is no [`KernelClient`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The driver has no such function, or it cannot be found.
    Function,
    /// It is of another version than it said before.
    Version,
    /// It refused to make the client or its objects, with this status.
    Refused(NvStatus),
    /// No memory.
    Memory,
}

/// Handles of our client's objects. Any number but 0 and the client's will do.
const DEVICE: u32 = 0xc690_0080;
const SUBDEVICE: u32 = 0xc690_2080;
/// A doorbell through BAR0, and one through BAR1.
const BAR0_DOORBELL: u32 = 0xc690_c660;
const BAR1_DOORBELL: u32 = 0xc690_c661;
/// Bytes of NVOS46 since 580, the largest struct of the calls about mappings.
const LARGEST_MAPPING: usize = 64;
/// The most that the driver copies of the parameters of a class that is allocated here.
const CLASS_PARAMS: usize = 64;

const _: () = assert!(
    nv0080::SIZE <= CLASS_PARAMS && nv2080::SIZE <= CLASS_PARAMS && usermode::SIZE <= CLASS_PARAMS
);

/// The driver's samples, as they came.
pub struct SampleRing {
    layout: SampleLayout,
    /// Too large for a stack; words, so that it is aligned.
    words: KVVec<u64>,
}

impl SampleRing {
    /// Each sample, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + Clone + '_ {
        let samples = self.layout.samples(self.bytes());
        samples.map(|RingSample { stamp, process }| Sample {
            stamp,
            // The driver has it from a number with a sign.
            process: process.map(|number| ProcessId(i32::from_ne_bytes(number.to_ne_bytes()))),
        })
    }

    fn bytes(&self) -> &[u8] {
        let words: &[u64] = &self.words;
        // SAFETY: The words' own bytes, borrowed as long as they are.
        unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let words: &mut [u64] = &mut self.words;
        let size = size_of_val(words);
        // SAFETY: The words' own bytes, borrowed alone; any bytes make words.
        unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size) }
    }
}

/// A client of the driver that is the kernel's, with a device and a subdevice of one GPU; freed
/// when this is dropped.
///
/// # Invariants
///
/// The functions are those of the module that `_driver` is a file of.
pub struct KernelClient {
    operations: RmOperations,
    branch: Branch,
    has_long_alloc: bool,
    sample_layout: SampleLayout,
    client: u32,
    /// Of the GPU, if there is one through BAR1. What it says is so as long as there is the client.
    doorbell: Option<KBox<Doorbell>>,
    _driver: Arc<BackingFile>,
}

// SAFETY: The pointers are to code and constants of the driver; it takes calls of any task.
unsafe impl Send for KernelClient {}
// SAFETY: Several tasks may make calls at once.
unsafe impl Sync for KernelClient {}

impl KernelClient {
    /// Finds the interface of the driver that `gpu` is a file of, and makes a client for the GPU of
    /// this device instance. `is_register` and `is_bar1` say of a frame whether it lies in the
    /// GPU's BAR0 and in its BAR1. The client gets the first of `handles` that nobody has.
    pub fn new(
        gpu: Arc<BackingFile>,
        version: &CStr,
        branch: Branch,
        device_instance: u32,
        is_register: impl Fn(Frame) -> bool,
        is_bar1: impl Fn(Frame) -> bool,
        handles: &mut impl Iterator<Item = ClientHandle>,
    ) -> core::result::Result<Self, Missing> {
        let owner = gpu.owner();
        let name = c"nvidia_get_rm_ops".as_char_ptr();
        // SAFETY: The open file holds its module; the name is a string.
        let found = unsafe { extra::cgpu_shim_find_function(name, owner) };
        let get = NonNull::new(found).ok_or(Missing::Function)?;
        // SAFETY: The driver has this one function of that name.
        let operations = unsafe { RmOperations::get(get, version) }.ok_or(Missing::Version)?;
        // INVARIANT: The function lies in the module that `gpu` is a file of, and told its own.
        let mut this = Self {
            operations,
            branch,
            has_long_alloc: rmapi::has_long_alloc(branch),
            sample_layout: Tables::of(branch).ok_or(Missing::Version)?.samples,
            client: 0,
            doorbell: None,
            _driver: gpu,
        };
        this.client = this.make_client(handles)?;
        let mut params = Aligned([0; CLASS_PARAMS]);
        nv0080::DEVICE_ID.set(&mut params.0, device_instance);
        this.alloc(
            this.client,
            this.client,
            DEVICE,
            class::NV01_DEVICE_0.0,
            Some(&mut params),
        )?;
        let mut params = Aligned([0; CLASS_PARAMS]);
        this.alloc(
            this.client,
            DEVICE,
            SUBDEVICE,
            class::NV20_SUBDEVICE_0.0,
            Some(&mut params),
        )?;
        this.doorbell = this.find_doorbell(is_register, is_bar1)?;
        Ok(this)
    }

    /// A doorbell of ours, to be shown in the place of programs'. `None`: the GPU has none through
    /// BAR1, as those before Hopper, or the driver does not map it there.
    pub fn doorbell(&self) -> Option<&Doorbell> {
        self.doorbell.as_deref()
    }

    /// A doorbell of ours, if there is one and it lies where it must.
    #[inline(never)] // Its parameters would stand in the frame of `new`.
    fn find_doorbell(
        &self,
        is_register: impl Fn(Frame) -> bool,
        is_bar1: impl Fn(Frame) -> bool,
    ) -> core::result::Result<Option<KBox<Doorbell>>, Missing> {
        let found = self.map_doorbell();
        let Some(doorbell) = found.filter(|found| found.lies_in(is_register, is_bar1)) else {
            return Ok(None);
        };
        let doorbell = KBox::new(doorbell, GFP_KERNEL).map_err(|_| Missing::Memory)?;
        Ok(Some(doorbell))
    }

    /// Makes the doorbell through BAR0 and through BAR1, and asks where they are.
    ///
    /// The driver may put a mapping's pages in several places of BAR1, and tells only of the first.
    /// So each page is mapped for itself; the whole before that, since where all is in one place
    /// already a page is found there (`kbusMapFbAperture_GM107()` in kern_bus_gm107.c), and
    /// programs' mappings are as well.
    fn map_doorbell(&self) -> Option<Doorbell> {
        let made = |object, bar1| {
            let mut params = Aligned([0; CLASS_PARAMS]);
            usermode::B_BAR1_MAPPING.set(&mut params.0, bar1);
            self.alloc(
                self.client,
                SUBDEVICE,
                object,
                class::HOPPER_USERMODE_A.0,
                Some(&mut params),
            )
        };
        made(BAR0_DOORBELL, 0).ok()?;
        made(BAR1_DOORBELL, 1).ok()?;
        // CAST: a page's size, and few of them.
        let (page, pages) = (kernel::page::PAGE_SIZE as u64, PAGES as u64);
        let length = page.saturating_mul(pages);
        let registers = self.map(BAR0_DOORBELL, 0, length)?;
        self.map(BAR1_DOORBELL, 0, length)?;
        let mut bar1 = [0; PAGES];
        for (place, index) in bar1.iter_mut().zip(0..) {
            *place = self.map(BAR1_DOORBELL, page.saturating_mul(index), page)?;
        }
        Doorbell::new(registers, bar1)
    }

    /// Maps bytes of an object of ours for programs; the physical address of the first.
    fn map(&self, object: u32, offset: u64, length: u64) -> Option<u64> {
        let mut argument = Aligned([0; nvos33::SIZE]);
        nvos33::H_CLIENT.set(&mut argument.0, self.client);
        nvos33::H_DEVICE.set(&mut argument.0, SUBDEVICE);
        nvos33::H_MEMORY.set(&mut argument.0, object);
        nvos33::OFFSET.set(&mut argument.0, offset);
        nvos33::LENGTH.set(&mut argument.0, length);
        nvos33::FLAGS.set(&mut argument.0, rmapi::MAP_FOR_PROGRAMS);
        // SAFETY: Its one address is an output.
        unsafe { self.call(rmapi::MAP, &mut argument.0) }.ok()?;
        let is_mapped = nvos33::STATUS.get(&argument.0) == Some(NvStatus::NV_OK.0);
        let address = nvos33::P_LINEAR_ADDRESS.get(&argument.0);
        address.filter(|_| is_mapped)
    }

    /// Switches channels of any clients of this GPU off, which preempts them, or on.
    pub fn switch(&self, channels: &[RmName], disable: bool) -> Result<NvStatus> {
        let mut params = Aligned([0; disable_channels::SIZE]);
        let count = u32::try_from(channels.len()).map_err(|_| EINVAL)?;
        for (i, name) in channels.iter().enumerate() {
            let client = disable_channels::H_CLIENT_LIST.item(i).ok_or(EINVAL)?;
            let channel = disable_channels::H_CHANNEL_LIST.item(i).ok_or(EINVAL)?;
            client.set(&mut params.0, name.client.0);
            channel.set(&mut params.0, name.object.0);
        }
        disable_channels::B_DISABLE.set(&mut params.0, u8::from(disable));
        disable_channels::NUM_CHANNELS.set(&mut params.0, count);
        // SAFETY: Its one address, of an event, is null.
        unsafe { self.control(self.subdevice(), rmapi::DISABLE_CHANNELS, &mut params.0) }
    }

    /// Our own subdevice.
    fn subdevice(&self) -> RmName {
        RmName {
            client: ClientHandle(self.client),
            object: ObjectHandle(SUBDEVICE),
        }
    }

    /// Reads the driver's samples of who was on the engines in the last ten seconds. Processes are
    /// named as the kernel's first namespace names them, since the scheduler's thread asks.
    pub fn samples(&self) -> Result<(NvStatus, SampleRing)> {
        let layout = self.sample_layout;
        let words = layout.ring.div_ceil(size_of::<u64>());
        let mut ring = SampleRing {
            layout,
            words: KVVec::from_elem(0, words, GFP_KERNEL)?,
        };
        let bytes = ring.bytes_mut();
        layout.ask(bytes);
        // SAFETY: The driver writes what addresses are in it, and follows none. Words begin at a
        // multiple of 8.
        let status = unsafe { self.control(self.subdevice(), rmapi::GPUMON_SAMPLES, bytes) }?;
        Ok((status, ring))
    }

    /// Sets the time slice of a channel group, in microseconds.
    pub fn set_timeslice(&self, group: RmName, microseconds: u32) -> Result<NvStatus> {
        let mut params = Aligned([0; timeslice::SIZE]);
        timeslice::TIMESLICE_US.set(&mut params.0, u64::from(microseconds));
        // SAFETY: There is no address in it.
        unsafe { self.control(group, rmapi::SET_TIMESLICE, &mut params.0) }
    }

    /// Takes a channel group off the GPU, in favour of the next.
    pub fn preempt(&self, group: RmName) -> Result<NvStatus> {
        let mut params = Aligned([0; preempt::SIZE]);
        // SAFETY: There is no address in it.
        unsafe { self.control(group, rmapi::PREEMPT, &mut params.0) }
    }

    /// Makes a device for a program, in the program's client: only the kernel needs no file of the
    /// GPU for it. `parts` are those of the program's own call, with no rights asked for.
    ///
    /// `EINVAL` for another class or other parts.
    pub fn device_for(&self, parts: &mut [Part<'_>]) -> Result {
        let (outer, mut given) = match parts {
            [outer] => (outer, None),
            [outer, params] if params.bytes.len() == nv0080::SIZE => (outer, Some(params)),
            _ => return Err(EINVAL),
        };
        let field = |field: Field<u32>| field.get(outer.bytes).ok_or(EINVAL);
        let (client, parent) = (field(nvos64::H_ROOT)?, field(nvos64::H_OBJECT_PARENT)?);
        let (object, class) = (field(nvos64::H_OBJECT_NEW)?, field(nvos64::H_CLASS)?);
        if class != class::NV01_DEVICE_0.0 {
            return Err(EINVAL);
        }
        let mut own = Aligned([0; CLASS_PARAMS]);
        if let (Some(given), Some(own)) = (&given, own.0.get_mut(..nv0080::SIZE)) {
            own.copy_from_slice(given.bytes);
        }
        let params = given.is_some().then_some(&mut own);
        let (made, status) = match self.alloc(client, parent, object, class, params) {
            Ok(made) => (made, NvStatus::NV_OK),
            Err(Missing::Refused(status)) => (object, status),
            Err(_) => return Err(EIO),
        };
        if let (Some(given), Some(own)) = (&mut given, own.0.get(..nv0080::SIZE)) {
            given.bytes.copy_from_slice(own);
        }
        let place = match outer.bytes.len() {
            nvos21::SIZE => nvos21::STATUS,
            _ => nvos64::STATUS,
        };
        place.set(outer.bytes, status.0).ok_or(EINVAL)?;
        nvos64::H_OBJECT_NEW.set(outer.bytes, made).ok_or(EINVAL)
    }

    /// Calls a control of a program's client for it, with parameters that no program sees: for
    /// those that are [unseen](rmapi::unseen). `parts` are the parts of the program's
    /// own call.
    ///
    /// `EINVAL` for another control or other parts, `ENOMEM`.
    pub fn control_for(&self, parts: &mut [Part<'_>]) -> Result {
        let [outer, params, lists @ ..] = parts else {
            return Err(EINVAL);
        };
        let mut argument = Aligned([0; nvos54::SIZE]);
        let whole = outer.bytes.first_chunk::<{ nvos54::SIZE }>();
        argument.0 = *whole.ok_or(EINVAL)?;
        let cmd = ControlCmd(nvos54::CMD.get(&argument.0).ok_or(EINVAL)?);
        let mut list = match (rmapi::unseen(self.branch, cmd), lists) {
            (Some(UnseenParams::Flat), []) => None,
            (Some(UnseenParams::WithPairs), [list]) if is_list_of(params, list) => Some(list),
            _ => return Err(EINVAL),
        };
        match &mut list {
            None if params.bytes.as_ptr().addr() % size_of::<u64>() == 0 => {
                // SAFETY: There is no address in them.
                unsafe { self.told(&mut argument, params.bytes) }?;
            }
            None => {
                let mut whole = copy(params.bytes)?;
                // SAFETY: The copy has no address in it either.
                unsafe { self.told(&mut argument, &mut whole) }?;
                params.bytes.copy_from_slice(&whole);
            }
            Some(list) => {
                let (mut whole, mut pairs) = (copy(params.bytes)?, copy(list.bytes)?);
                let own = LIST.get(&whole).ok_or(EINVAL)?;
                // CAST: an address of the kernel's, of 64 bits.
                LIST.set(&mut whole, pairs.as_mut_ptr() as u64);
                // SAFETY: Their only address is that of as many pairs as they tell.
                unsafe { self.told(&mut argument, &mut whole) }?;
                list.bytes.copy_from_slice(&pairs);
                LIST.set(&mut whole, own);
                params.bytes.copy_from_slice(&whole);
            }
        }
        let status = nvos54::STATUS.get(&argument.0).ok_or(EIO)?;
        nvos54::STATUS.set(outer.bytes, status).ok_or(EINVAL)
    }

    /// Ends a mapping for a program, or makes one for its GPU. The program sees nothing of it.
    /// `parts` is the struct of the program's own, of the size that the driver's branch takes.
    ///
    /// `EINVAL` for another call or other parts.
    pub fn mapping_for(&self, request: u32, parts: &mut [Part<'_>]) -> Result {
        let (nr, size) = nvos::request_parts(request);
        let operation = Escape::from_nr(nr).and_then(rmapi::unseen_operation);
        let operation = operation.ok_or(EINVAL)?;
        let [outer] = parts else {
            return Err(EINVAL);
        };
        let mut argument = Aligned([0; LARGEST_MAPPING]);
        let whole = argument.0.get_mut(..size).ok_or(EINVAL)?;
        if outer.bytes.len() != size {
            return Err(EINVAL);
        }
        whole.copy_from_slice(outer.bytes);
        // SAFETY: The driver compares the addresses in it with its own, and follows none.
        unsafe { self.call(operation, whole) }?;
        outer.bytes.copy_from_slice(whole);
        Ok(())
    }

    /// Calls a control whose struct is `argument`, with parameters that are aligned for 8 bytes.
    ///
    /// # Safety
    ///
    /// As for [`Self::control`].
    unsafe fn told(&self, argument: &mut Aligned<{ nvos54::SIZE }>, params: &mut [u8]) -> Result {
        let size = u32::try_from(params.len()).map_err(|_| EINVAL)?;
        nvos54::PARAMS_SIZE.set(&mut argument.0, size);
        // CAST: an address of the kernel's, of 64 bits.
        nvos54::PARAMS.set(&mut argument.0, params.as_mut_ptr() as u64);
        // SAFETY: The parameters live until the call is over, and the driver refuses a control of
        // another size. Addresses in them are null, or of what the control may read and write.
        unsafe { self.call(rmapi::CONTROL, &mut argument.0) }
    }

    /// Asks for the GPU's highest clock, as CUDA does, or takes that back.
    pub fn boost(&self, call: BoostCall) -> Result<NvStatus> {
        let (command, seconds) = match call {
            BoostCall::Clear => (params::PERF_BOOST_CLEAR, 0),
            BoostCall::Endless => (params::PERF_BOOST_TO_MAX, params::PERF_BOOST_INFINITE),
            BoostCall::For(seconds) => (params::PERF_BOOST_TO_MAX, seconds),
        };
        let mut params = Aligned([0; perf_boost::SIZE]);
        perf_boost::FLAGS.set(&mut params.0, command | params::PERF_BOOST_CUDA);
        perf_boost::DURATION.set(&mut params.0, seconds);
        // SAFETY: There is no address in it.
        unsafe { self.control(self.subdevice(), rmapi::PERF_BOOST, &mut params.0) }
    }

    /// Whether a client has this handle, as the driver tells the kernel. `EIO`: it says neither.
    ///
    /// It is asked for an object below the handle 0, which no object has. It looks for the client
    /// (rs_server.c), then for that parent (`serverAllocResourceUnderLock()`, alloc_free.c). For a
    /// control of no client the driver logs an error (`RmDeprecatedGetControlHandler()`).
    pub fn is_client(&self, client: ClientHandle) -> Result<bool> {
        match self.alloc(client.0, 0, 0, class::NV20_SUBDEVICE_0.0, None) {
            // A client that is being freed refuses everything.
            Err(Missing::Refused(
                NvStatus::NV_ERR_OBJECT_NOT_FOUND | NvStatus::NV_ERR_INVALID_STATE,
            )) => Ok(true),
            Err(Missing::Refused(
                NvStatus::NV_ERR_INVALID_OBJECT_HANDLE | NvStatus::NV_ERR_INVALID_OBJECT,
            )) => Ok(false),
            _ => Err(EIO),
        }
    }

    /// Makes a client with the first of these handles that nobody has.
    fn make_client(
        &self,
        handles: &mut impl Iterator<Item = ClientHandle>,
    ) -> core::result::Result<u32, Missing> {
        let taken = Missing::Refused(NvStatus::NV_ERR_INSERT_DUPLICATE_NAME);
        let made = handles.map(|handle| self.alloc(handle.0, 0, 0, class::NV01_ROOT.0, None));
        let mut made = made.skip_while(|made| *made == Err(taken));
        made.next().unwrap_or(Err(taken))
    }

    /// Makes an object of a client, or with the class of clients another one. A new client has the
    /// handle `client`.
    fn alloc(
        &self,
        client: u32,
        parent: u32,
        object: u32,
        class: u32,
        params: Option<&mut Aligned<CLASS_PARAMS>>,
    ) -> core::result::Result<u32, Missing> {
        let address = params.map_or(null_mut(), |params| params.0.as_mut_ptr());
        let mut argument = Aligned([0; nvos64::SIZE]);
        // Both forms begin alike; they differ in where the status stands.
        nvos64::H_ROOT.set(&mut argument.0, client);
        nvos64::H_OBJECT_PARENT.set(&mut argument.0, parent);
        nvos64::H_OBJECT_NEW.set(&mut argument.0, object);
        nvos64::H_CLASS.set(&mut argument.0, class);
        // CAST: an address of the kernel's, of 64 bits.
        nvos64::P_ALLOC_PARMS.set(&mut argument.0, address as u64);
        let (size, status) = if self.has_long_alloc {
            (nvos64::SIZE, nvos64::STATUS)
        } else {
            (nvos21::SIZE, nvos21::STATUS)
        };
        let bytes = argument.0.get_mut(..size).ok_or(Missing::Memory)?;
        // SAFETY: The parameters are null or larger than those of the classes above, and live until
        // the call is over.
        unsafe { self.call(rmapi::ALLOC, bytes) }.map_err(|_| Missing::Memory)?;
        match status.get(&argument.0).map(NvStatus) {
            Some(NvStatus::NV_OK) => Ok(nvos64::H_OBJECT_NEW.get(&argument.0).unwrap_or(0)),
            refused => Err(Missing::Refused(refused.unwrap_or(NvStatus::NV_OK))),
        }
    }

    /// Calls a control of an object of any client.
    ///
    /// # Safety
    ///
    /// Addresses in the parameters are null, or of what the control may read and write; the
    /// parameters begin at a multiple of 8.
    unsafe fn control(&self, name: RmName, cmd: ControlCmd, params: &mut [u8]) -> Result<NvStatus> {
        let mut argument = Aligned([0; nvos54::SIZE]);
        nvos54::H_CLIENT.set(&mut argument.0, name.client.0);
        nvos54::H_OBJECT.set(&mut argument.0, name.object.0);
        nvos54::CMD.set(&mut argument.0, cmd.0);
        // SAFETY: Addresses in the parameters are null, or of what the control may read and write.
        // They begin at a multiple of 8.
        unsafe { self.told(&mut argument, params) }?;
        nvos54::STATUS.get(&argument.0).map(NvStatus).ok_or(EIO)
    }

    /// Makes a call; its own struct is `argument`, in and out.
    ///
    /// # Safety
    ///
    /// Addresses in it are null, or of what the call may read and write.
    unsafe fn call(&self, operation: u32, argument: &mut [u8]) -> Result {
        // SAFETY: The functions are the driver's, by the invariant, and `_driver` holds it.
        let mut stack = unsafe { self.operations.stack() }?;
        // SAFETY: Addresses in `argument` are null, or of what the call may read and write.
        unsafe { stack.call(operation, argument) }
    }

    /// To be held while the current task makes a `NV_ESC_RM_MAP_MEMORY`. When it is dropped, the
    /// driver has nothing left of that in the thread's [slot](rmapi::has_mapping_slot). `None`: the
    /// branch has no such slot.
    pub fn mapping_slot(&self) -> Result<Option<MappingSlot<'_>>> {
        if !rmapi::has_mapping_slot(self.branch) {
            return Ok(None);
        }
        // SAFETY: The functions are the driver's, by the invariant, and `_driver` holds it.
        let stack = unsafe { self.operations.stack() }?;
        Ok(Some(MappingSlot::new(stack)))
    }

    /// Frees a client of ours.
    fn free(&self, client: u32) {
        let mut argument = Aligned([0; nvos00::SIZE]);
        nvos00::H_ROOT.set(&mut argument.0, client);
        nvos00::H_OBJECT_OLD.set(&mut argument.0, client);
        // SAFETY: There is no address in it.
        let freed = unsafe { self.call(rmapi::FREE, &mut argument.0) };
        if freed.is_err() || nvos00::STATUS.get(&argument.0) != Some(0) {
            pr_warn!("the driver refused to free a client of this module, and keeps it\n");
        }
    }
}

/// The address of the list in parameters [with pairs](UnseenParams::WithPairs).
const LIST: Field<u64> = fb_get_info::FB_INFO_LIST;

/// Whether a part is that list.
fn is_list_of(params: &Part<'_>, list: &Part<'_>) -> bool {
    let place = PointerAt {
        part: 1,
        offset: LIST.offset(),
    };
    let pairs = fb::COUNT.get(params.bytes);
    let size = pairs.and_then(|pairs| usize::try_from(pairs).ok()?.checked_mul(fb::PAIR));
    list.pointer == Some(place) && size == Some(list.bytes.len()) && size != Some(0)
}

/// A copy for the driver to work on. Whatever kmalloc() gives is aligned for 8 bytes
/// (ARCH_KMALLOC_MINALIGN).
fn copy(bytes: &[u8]) -> Result<List<u8>> {
    let mut copy = List::zeros(bytes.len()).map_err(|_| ENOMEM)?;
    copy.copy_from_slice(bytes);
    Ok(copy)
}

impl Drop for KernelClient {
    fn drop(&mut self) {
        if self.client != 0 {
            self.free(self.client);
        }
    }
}
