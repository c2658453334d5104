// SPDX-License-Identifier: GPL-2.0
//! Which GPUs there are: asked of the driver, as a program would ask.
//!
//! The module finds the GPUs through the driver's device files, in the task of the host's root that
//! uses the control device:
//!
//! 1. `NV_ESC_CHECK_VERSION_STR` tells the driver's version, and that the tables to use; with a
//!    driver whose branch is unknown nothing else is asked (`osapi.c`, `rm_perform_version_check`).
//! 2. `NV_ESC_CARD_INFO` lists the GPUs with their minors, RM's names for them and PCI addresses.
//! 3. Opening a GPU's device initializes it. A client, a device and a subdevice object then give
//!    its device instance, memory, UUID and name.
//!
//! A GPU that is opened for its first instance is asked once more: its record in the list is kept
//! for the programs that ask for it, and its page of shared data is mapped, so that it is known by
//! its place.
//!
//! All that is made on the way is freed again. A GPU that does not answer is left out.

mod rm;

use crate::{
    failure::Failure,
    nvidia::{
        asked,
        class,
        escape::Escape,
        fb,
        handle::ClientHandle,
        nvos::{
            card_info,
            version,
            Card, //
        },
        params::{
            self,
            arch_info,
            fifo_info,
            gid_info,
            gpu_info,
            gpu_name,
            id_info,
            nv2080, //
        },
        rusd,
        status::NvStatus,
        tables::Tables,
        version::{
            Branch,
            DriverVersion, //
        },
        wire::Field, //
    },
    os_interface::{
        host_memory,
        log::pr_warn,
        rmapi::{
            KernelClient,
            Missing, //
        },
        shared_page::DriverPage,
        BackingFile,
        DeviceNumber,
        Frame, //
    },
    policy::{
        channel_limit::Engines,
        EXPORT_HANDLES, //
    },
    uapi::{
        self,
        put_text,
        Cause, //
    }, //
};
use core::fmt;
use kernel::{
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use rm::{
    answer,
    check,
    escape,
    Rm,
    DEVICE, //
};

/// Major number of the control and GPU devices (`NV_MAJOR_DEVICE_NUMBER`, nv-chardev-numbers.h).
const NVIDIA_MAJOR: u32 = 195;
/// Minor number of the control device (`NV_CONTROL_DEVICE_MINOR`, nv-chardev-numbers.h).
const CONTROL_MINOR: u32 = 255;
/// The GPUs that the driver can have (`NV_MAX_DEVICES`, nvlimits.h): records of CARD_INFO.
const CARDS: usize = 32;
/// Of the host's memory, so many-th is divided among the instances of all GPUs.
const HOSTS_PART: u64 = 2;
/// [`version::CMD`]: tell the version (`NV_RM_API_VERSION_CMD_QUERY`, nv-ioctl.h).
const VERSION_QUERY: u32 = 0x32;

/// The number of the next handle of a client of the module's own.
static NEXT_OWN: Atomic<u32> = Atomic::new(0);

/// Handles of the objects of a probe. Any number but 0 and the client's will do.
const SUBDEVICE: u32 = 0xc690_2080;
const SHARED_DATA: u32 = 0xc690_00de;

/// The running driver.
#[derive(Clone, Copy)]
pub struct Driver {
    /// Its version, text.
    pub version: [u8; 64],
    /// Its branch.
    pub branch: Branch,
    /// The branch's tables.
    pub tables: &'static Tables,
    /// The driver is of another branch, and the operator has said to take it for this one.
    pub is_assumed: bool,
}

/// The driver's facts about a GPU.
#[derive(Clone, PartialEq, Eq)]
pub struct GpuFacts {
    /// `N` of `/dev/nvidiaN`.
    pub minor: u32,
    /// RM's name for it.
    pub gpu_id: u32,
    /// The number by which `NV01_DEVICE_0` is allocated.
    pub device_instance: u32,
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// Its BAR1 as RM uses it, bytes; 0 where the driver does not tell.
    pub bar1_bytes: u64,
    /// Host memory that is divided among its instances, bytes.
    pub host_bytes: u64,
    /// Handles for exports that are divided among its instances.
    pub export_handles: u64,
    /// Its UUID, as UVM has it.
    pub uuid: [u8; 16],
    /// `dddd:bb:dd.f`, text.
    pub pci: [u8; 16],
    /// Product name, text; empty where the driver tells none.
    pub name: [u8; 64],
    /// As [`uapi::Gpu::architecture`].
    pub architecture: u32,
    /// As [`uapi::Gpu::implementation`].
    pub implementation: u32,
    /// How its engines share its runlists.
    pub engines: Engines,
    /// As [`uapi::Gpu::mig_mode`].
    pub mig_mode: u32,
    /// Its registers: physical address and length in bytes (BAR0).
    pub registers: (u64, u64),
    /// Its BAR1, through which its memory is reached, in the same way.
    pub bar1: (u64, u64),
}

/// The result of a probe.
pub struct Found {
    /// The driver.
    pub driver: Driver,
    /// Its GPUs, at most [`uapi::MAX_GPUS`].
    pub gpus: KVec<GpuFacts>,
}

impl GpuFacts {
    /// Whether a page that the driver maps through the GPU's device is one of registers: in its
    /// registers' place, or in none that is known for memory.
    pub fn is_register(&self, frame: Frame) -> bool {
        let within = |(start, length): (u64, u64)| frame.is_within(start, length);
        within(self.registers) || !(within(self.bar1) || frame.is_memory())
    }

    /// The UUID as text: `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    pub fn uuid_text(&self) -> UuidText<'_> {
        UuidText(&self.uuid)
    }
}

/// A UUID, to be printed as NVIDIA prints it.
pub struct UuidText<'a>(&'a [u8; 16]);

impl fmt::Display for UuidText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Opens the control device.
pub fn open_control() -> Result<Arc<BackingFile>, Failure> {
    let number = DeviceNumber {
        major: NVIDIA_MAJOR,
        minor: CONTROL_MINOR,
    };
    open(c"/dev/nvidiactl", |n| n == number)
}

/// Opens a GPU's device, which initializes the GPU if nobody else has it open.
pub fn open_gpu(minor: u32) -> Result<Arc<BackingFile>, Failure> {
    let number = DeviceNumber {
        major: NVIDIA_MAJOR,
        minor,
    };
    let path = CString::try_from_fmt(format_args!("/dev/nvidia{minor}"))?;
    open(&path, |n| n == number)
}

/// Opens the UVM device, whose major number the kernel chose.
pub fn open_uvm() -> Result<Arc<BackingFile>, Failure> {
    open(c"/dev/nvidia-uvm", |n| {
        n.major != NVIDIA_MAJOR && n.minor == 0
    })
}

/// Opens a device, if it has the number that it must have.
fn open(
    path: &CStr,
    is_it: impl FnOnce(DeviceNumber) -> bool,
) -> Result<Arc<BackingFile>, Failure> {
    match BackingFile::open(path) {
        Ok(file) if is_it(file.number()) => Ok(file),
        Ok(_) => Err(Cause::DriverMissing.into()),
        Err(e) => Err(answer(e)),
    }
}

/// Finds the driver and its GPUs. A driver of an unknown branch is taken for one of
/// `assumed_branch`, unless that is 0.
#[inline(never)] // Its records would stand in the frame of `Registry::attach`.
pub fn probe(assumed_branch: u32) -> Result<Found, Failure> {
    let control = open_control()?;
    let driver = find_driver(&control, assumed_branch)?;
    let rm = Rm::new(&control, driver.tables, own_clients())?;
    let mut gpus = KVec::new();
    for card in &cards(&control)? {
        if gpus.len() == uapi::MAX_GPUS {
            break;
        }
        match rm.examine(card) {
            Ok(facts) => gpus.push(facts, GFP_KERNEL)?,
            Err(e) => {
                let minor = card_info::MINOR_NUMBER.get(card).unwrap_or_default();
                pr_warn!("/dev/nvidia{minor} does not answer: {:?}\n", Error::from(e));
            }
        }
    }
    let parts = u64::try_from(gpus.len().max(1)).unwrap_or(1);
    for facts in &mut gpus {
        facts.host_bytes = host_memory() / HOSTS_PART / parts;
        facts.export_handles = EXPORT_HANDLES / parts;
    }
    Ok(Found { driver, gpus })
}

/// The driver's records of all GPUs.
fn cards(control: &BackingFile) -> Result<KVec<Card>, Failure> {
    let mut bytes = KVec::from_elem(0, CARDS * card_info::SIZE, GFP_KERNEL)?;
    escape(control, Escape::CardInfo, &mut bytes)?;
    let mut cards = KVec::with_capacity(CARDS, GFP_KERNEL)?;
    for record in bytes.chunks_exact(card_info::SIZE) {
        if let (Some(1), Some(card)) = (card_info::VALID.get(record), record.first_chunk()) {
            cards.push(*card, GFP_KERNEL)?;
        }
    }
    Ok(cards)
}

/// The driver's record of a GPU that is open.
pub fn card(facts: &GpuFacts) -> Result<Card, Failure> {
    let control = open_control()?;
    let cards = cards(&control)?;
    let is_it = |card: &&Card| card_info::GPU_ID.get(&card[..]) == Some(facts.gpu_id);
    Ok(*cards.iter().find(is_it).ok_or(Cause::NoSuchGpu)?)
}

/// The page of `RM_USER_SHARED_DATA` of a GPU that stays open while the page is used. It is mapped
/// once, as a program maps it, to learn where it is. `None` if the driver has none for this GPU.
pub fn shared_data(
    driver: &Driver,
    facts: &GpuFacts,
    gpu: &BackingFile,
) -> Result<Option<DriverPage>, Failure> {
    let control = open_control()?;
    let rm = Rm::new(&control, driver.tables, own_clients())?;
    rm.device(gpu, facts.device_instance)?;
    let mut subdevice = [0; nv2080::SIZE];
    rm.alloc(DEVICE, SUBDEVICE, class::NV20_SUBDEVICE_0.0, &mut subdevice)?;
    let entry = driver.tables.class(class::RM_USER_SHARED_DATA);
    let size = entry.ok_or(Cause::UnknownDriver)?.params;
    let size = usize::try_from(size).map_err(|_| EINVAL)?;
    let mut params = KVec::from_elem(0, size, GFP_KERNEL)?;
    let class = class::RM_USER_SHARED_DATA.0;
    let (status, _) = rm.try_alloc(SUBDEVICE, SHARED_DATA, class, &mut params)?;
    if status == Some(NvStatus::NV_ERR_NOT_SUPPORTED.0) {
        return Ok(None);
    }
    check(status)?;
    // A file of its own: the driver gives each file one mapping.
    let mapped = open_control()?;
    let length = rusd::length(driver.tables.shared_data);
    rm.prepare_map(SUBDEVICE, SHARED_DATA, length, &mapped)?;
    Ok(Some(DriverPage::of_mapping(&mapped)?))
}

/// Handles for a client of the module's own: the next ones, until one is free.
fn own_clients() -> impl Iterator<Item = ClientHandle> {
    (0..ClientHandle::COUNT).map(|_| ClientHandle::own(NEXT_OWN.fetch_add(1, Relaxed)))
}

/// A client of the kernel's own for a GPU that is open, and stays so while there is the client.
#[inline(never)] // The client would stand in the frame of `Registry::make` until it has its place.
pub fn kernel_client(
    driver: &Driver,
    facts: &GpuFacts,
    gpu: Arc<BackingFile>,
) -> Result<Arc<KernelClient>, Missing> {
    let version = CStr::from_bytes_until_nul(&driver.version).map_err(|_| Missing::Version)?;
    let within = |(start, length): (u64, u64)| move |frame: Frame| frame.is_within(start, length);
    let (branch, instance) = (driver.branch, facts.device_instance);
    let (registers, bar1) = (within(facts.registers), within(facts.bar1));
    let own = &mut own_clients();
    let client = KernelClient::new(gpu, version, branch, instance, registers, bar1, own)?;
    Arc::new(client, GFP_KERNEL).map_err(|_| Missing::Memory)
}

/// Asks for the driver's version, and finds the tables for it.
#[inline(never)] // Its text would stand in the frame of the whole probe.
fn find_driver(control: &BackingFile, assumed_branch: u32) -> Result<Driver, Failure> {
    let mut query = [0; version::SIZE];
    version::CMD.set(&mut query, VERSION_QUERY);
    escape(control, Escape::CheckVersionStr, &mut query)?;
    let mut field = [0; 64];
    let text = uapi::text(query.get(version::VERSION_STRING).unwrap_or_default());
    put_text(&mut field, text);
    let of = |branch: Branch, is_assumed| {
        Some(Driver {
            version: field,
            branch,
            tables: Tables::of(branch)?,
            is_assumed,
        })
    };
    let parsed = DriverVersion::parse(text);
    if let Some(driver) = parsed
        .and_then(Branch::of)
        .and_then(|known| of(known, false))
    {
        return Ok(driver);
    }
    if let Some(driver) = Branch::named(assumed_branch).and_then(|named| of(named, true)) {
        pr_warn!(
            "NVIDIA driver {text:?} is of an unknown branch and is treated as {assumed_branch} \
             (unsafe_assume_branch): memory limits and the isolation of tenants may not hold\n"
        );
        return Ok(driver);
    }
    pr_warn!("NVIDIA driver {text:?} is of an unknown branch: no instance can be made\n");
    Err(Cause::UnknownDriver.into())
}

impl Rm<'_> {
    /// Asks a GPU for what we want to know of it.
    #[inline(never)] // As `find_driver`.
    fn examine(&self, card: &Card) -> Result<GpuFacts, Failure> {
        let missing = Cause::DriverMissing;
        let minor = card_info::MINOR_NUMBER.get(card).ok_or(missing)?;
        let gpu_id = card_info::GPU_ID.get(card).ok_or(missing)?;
        let file = open_gpu(minor)?;

        let mut ids = [0; id_info::SIZE];
        id_info::GPU_ID.set(&mut ids, gpu_id);
        self.control(self.client, asked::GPU_GET_ID_INFO.0, &mut ids)?;
        let device_instance = id_info::DEVICE_INSTANCE.get(&ids).ok_or(missing)?;

        let mut facts = GpuFacts {
            minor,
            gpu_id,
            device_instance,
            memory_bytes: 0,
            bar1_bytes: 0,
            host_bytes: 0,
            export_handles: 0,
            uuid: [0; 16],
            pci: pci_text(card)?,
            name: [0; 64],
            architecture: 0,
            implementation: 0,
            engines: Engines::of(0, false),
            mig_mode: uapi::mig::UNKNOWN,
            registers: (
                card_info::REG_ADDRESS.get(card).ok_or(missing)?,
                card_info::REG_SIZE.get(card).ok_or(missing)?,
            ),
            bar1: (
                card_info::FB_ADDRESS.get(card).ok_or(missing)?,
                card_info::FB_SIZE.get(card).ok_or(missing)?,
            ),
        };
        self.device(&file, device_instance)?;
        let asked = self.examine_device(&mut facts);
        let freed = self.free(DEVICE);
        asked.and(freed)?;
        Ok(facts)
    }

    /// Fills in what the GPU of which there is a device object tells through a subdevice.
    #[inline(never)] // As `find_driver`.
    fn examine_device(&self, facts: &mut GpuFacts) -> Result<(), Failure> {
        let missing = Cause::DriverMissing;
        let mut subdevice = [0; nv2080::SIZE];
        self.alloc(DEVICE, SUBDEVICE, class::NV20_SUBDEVICE_0.0, &mut subdevice)?;

        let mut memory = self.params(fb::FB_GET_INFO_V2.0)?;
        let list = (fb::COUNT_V2, fb::LIST_V2);
        let size = fb::index::TOTAL_RAM_SIZE;
        let kib = self.number(fb::FB_GET_INFO_V2.0, &mut memory, list, size)?;
        if kib == 0 {
            return Err(missing.into());
        }
        facts.memory_bytes = u64::from(kib) << 10;
        // Without it, BAR1 is not divided.
        let mut memory = self.params(fb::FB_GET_INFO_V2.0)?;
        let size = fb::index::BAR1_SIZE;
        let told = self.number(fb::FB_GET_INFO_V2.0, &mut memory, list, size);
        facts.bar1_bytes = told.map_or(0, |kib| u64::from(kib) << 10);

        let mut gid = [0; gid_info::SIZE];
        gid_info::FLAGS.set(&mut gid, params::GID_BINARY);
        self.control(SUBDEVICE, asked::GPU_GET_GID_INFO.0, &mut gid)?;
        let uuid = gid.get(gid_info::DATA).and_then(|data| data.first_chunk());
        facts.uuid = *uuid.ok_or(missing)?;

        let mut told = self.params(asked::GPU_GET_NAME_STRING.0)?;
        let named = self.control(SUBDEVICE, asked::GPU_GET_NAME_STRING.0, &mut told);
        if named.is_ok() {
            let name = told.get(gpu_name::ASCII).unwrap_or_default();
            put_text(&mut facts.name, uapi::text(name));
        }
        let mut arch = [0; arch_info::SIZE];
        let told = self.control(SUBDEVICE, asked::MC_GET_ARCH_INFO.0, &mut arch);
        if told.is_ok() {
            facts.architecture = arch_info::ARCHITECTURE.get(&arch).unwrap_or_default();
            facts.implementation = arch_info::IMPLEMENTATION.get(&arch).unwrap_or_default();
        } else {
            let minor = facts.minor;
            pr_warn!("GPU {minor} tells no architecture: channels for copies count as contexts\n");
        }
        let mut info = KVec::from_elem(0, fifo_info::SIZE, GFP_KERNEL)?;
        let list = (fifo_info::FIFO_INFO_TBL_SIZE, fifo_info::FIFO_INFO_TBL);
        let told = self.number(
            asked::FIFO_GET_INFO.0,
            &mut info,
            list,
            asked::INFO_PER_RUNLIST,
        );
        // A driver that does not say so has one row of ids for all runlists.
        let is_per_runlist = told.is_ok_and(|told| told != 0);
        facts.engines = Engines::of(facts.architecture, is_per_runlist);
        let mut info = self.params(asked::GPU_GET_INFO_V2.0)?;
        let list = (gpu_info::GPU_INFO_LIST_SIZE, gpu_info::GPU_INFO_LIST);
        let told = self.number(
            asked::GPU_GET_INFO_V2.0,
            &mut info,
            list,
            asked::INFO_MIG_MODE,
        );
        facts.mig_mode = told.map_or(uapi::mig::UNKNOWN, |mode| mode.saturating_add(1));
        Ok(())
    }

    /// The number that a control of the subdevice tells under an index. Its parameters are `info`,
    /// with the count and the list of pairs at these places.
    fn number(
        &self,
        cmd: u32,
        info: &mut [u8],
        (count, list): (Field<u32>, usize),
        index: u32,
    ) -> Result<u32, Failure> {
        let missing = Cause::DriverMissing;
        count.set(info, 1);
        fb::INDEX.set(info.get_mut(list..).ok_or(missing)?, index);
        self.control(SUBDEVICE, cmd, info)?;
        let pair = info.get(list..).ok_or(missing)?;
        Ok(fb::DATA.get(pair).ok_or(missing)?)
    }
}

fn pci_text(card: &Card) -> Result<[u8; 16], Failure> {
    let domain = card_info::DOMAIN.get(card).unwrap_or_default();
    let bus = card_info::BUS.get(card).unwrap_or_default();
    let slot = card_info::SLOT.get(card).unwrap_or_default();
    // A GPU is always the first function of its device.
    let text = CString::try_from_fmt(format_args!("{domain:04x}:{bus:02x}:{slot:02x}.0"))?;
    let mut field = [0; 16];
    put_text(&mut field, uapi::text(text.to_bytes()));
    Ok(field)
}
