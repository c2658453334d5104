// SPDX-License-Identifier: GPL-2.0
//! The driver's words about itself and the GPUs, asked as a program asks: the user-space
//! counterpart of `cgpu_km/attach.rs`.

use crate::sys;
use cgpu_km::{
    nvidia::{
        asked,
        escape::Escape,
        fb,
        handle::ControlCmd,
        nvos::{self, card_info, nvos54, nvos64, version, Card},
        params::{self, arch_info, fifo_info, gid_info, id_info, nv0080, perf_boost},
        rmapi,
        tables::Tables,
        version::{Branch, DriverVersion},
    },
    policy::{channel_limit::Engines, BoostCall},
};
use std::{
    fmt,
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

/// The GPUs that the driver can have (`NV_MAX_DEVICES`, nvlimits.h).
const CARDS: usize = 32;
/// [`version::CMD`]: tell the version (`NV_RM_API_VERSION_CMD_QUERY`, nv-ioctl.h).
const VERSION_QUERY: u32 = 0x32;

const NV01_ROOT: u32 = 0x0000;
const NV01_DEVICE_0: u32 = 0x0080;
const NV20_SUBDEVICE_0: u32 = 0x2080;
/// Handles of a probe's objects. Any number but 0 and the client's will do.
const DEVICE: u32 = 0xc690_0080;
const SUBDEVICE: u32 = 0xc690_2080;

/// The driver's facts about a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct GpuFacts {
    /// `N` of `/dev/nvidiaN`.
    pub minor: u32,
    /// RM's name for it.
    pub gpu_id: u32,
    /// The number by which `NV01_DEVICE_0` is allocated.
    pub device_instance: u32,
    /// FB_GET_INFO's `TOTAL_RAM_SIZE`, in bytes.
    pub memory_bytes: u64,
    /// Its UUID, as UVM has it.
    pub uuid: [u8; 16],
    /// Its family, `NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_*`.
    pub architecture: u32,
    /// How its engines share its runlists.
    pub engines: Engines,
    /// Its entry in the answer to `NV_ESC_CARD_INFO`.
    pub card: Card,
}

/// Why the driver could not be asked.
#[derive(Debug)]
pub enum Error {
    /// A node of the driver cannot be opened.
    Open(String, io::Error),
    /// The driver is of a branch without tables.
    UnknownBranch(String),
    /// A call was refused, with this status or errno.
    Refused(&'static str, i64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, e) => write!(f, "{path} cannot be opened: {e}"),
            Self::UnknownBranch(version) => {
                write!(f, "there are no tables for driver {version:?}")
            }
            Self::Refused(what, code) => write!(f, "the driver refused {what}: {code:#x}"),
        }
    }
}

impl std::error::Error for Error {}

/// The running driver and its GPUs.
#[derive(Debug)]
pub struct Found {
    /// Its version, such as 580.159.04.
    pub version: String,
    /// Its branch.
    pub branch: Branch,
    /// The GPUs that answer.
    pub gpus: Vec<GpuFacts>,
}

fn open(path: &str) -> Result<File, Error> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|e| Error::Open(path.to_owned(), e))
}

fn escape(
    file: &File,
    escape: Escape,
    argument: &mut [u8],
    what: &'static str,
) -> Result<(), Error> {
    let code = nvos::request_code(escape.nr(), argument.len()).ok_or(Error::Refused(what, 0))?;
    // SAFETY: The argument is as large as the code says; what it points to is the caller's.
    let answer = unsafe {
        sys::ioctl(
            file.as_raw_fd(),
            u64::from(code),
            argument.as_mut_ptr() as u64,
        )
    };
    match answer {
        0 => Ok(()),
        errno => Err(Error::Refused(what, errno)),
    }
}

/// A control of an object of a client.
fn control_of(
    file: &File,
    (client, object): (u32, u32),
    cmd: u32,
    params: &mut [u8],
) -> Result<(), Error> {
    let mut outer = [0; nvos54::SIZE];
    let size = u32::try_from(params.len()).unwrap_or(u32::MAX);
    nvos54::H_CLIENT.set(&mut outer, client);
    nvos54::H_OBJECT.set(&mut outer, object);
    nvos54::CMD.set(&mut outer, cmd);
    nvos54::PARAMS_SIZE.set(&mut outer, size);
    nvos54::PARAMS.set(&mut outer, params.as_mut_ptr() as u64);
    escape(file, Escape::RmControl, &mut outer, "a control")?;
    match nvos54::STATUS.get(&outer) {
        Some(0) => Ok(()),
        status => Err(Error::Refused("a control", i64::from(status.unwrap_or(1)))),
    }
}

/// Asks the driver.
///
/// # Errors
///
/// There is none, or none that is known, or it does not answer.
pub fn find() -> Result<Found, Error> {
    let control = open("/dev/nvidiactl")?;
    let mut query = [0; version::SIZE];
    version::CMD.set(&mut query, VERSION_QUERY);
    escape(&control, Escape::CheckVersionStr, &mut query, "its version")?;
    let text = query.get(version::VERSION_STRING).unwrap_or_default();
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let version = String::from_utf8_lossy(text).into_owned();
    let branch = DriverVersion::parse(&version).and_then(Branch::of);
    let branch = branch.ok_or_else(|| Error::UnknownBranch(version.clone()))?;
    let tables = Tables::of(branch).ok_or_else(|| Error::UnknownBranch(version.clone()))?;
    let mut cards = vec![0; CARDS * card_info::SIZE];
    escape(
        &control,
        Escape::CardInfo,
        &mut cards,
        "the list of its GPUs",
    )?;
    let rm = Rm::new(&control, tables)?;
    let mut gpus = Vec::new();
    for card in cards.chunks_exact(card_info::SIZE) {
        if let (Some(1), Some(card)) = (card_info::VALID.get(card), card.first_chunk()) {
            gpus.push(rm.examine(card)?);
        }
    }
    Ok(Found {
        version,
        branch,
        gpus,
    })
}

/// Free memory of a GPU in bytes, as FB_GET_INFO tells it.
///
/// # Errors
///
/// The driver does not answer.
pub fn free_bytes(found: &Found, gpu: &GpuFacts) -> Result<u64, Error> {
    let control = open("/dev/nvidiactl")?;
    let tables =
        Tables::of(found.branch).ok_or_else(|| Error::UnknownBranch(found.version.clone()))?;
    let _gpu = open(&format!("/dev/nvidia{}", gpu.minor))?;
    let rm = Rm::new(&control, tables)?;
    rm.device(gpu.device_instance)?;
    rm.memory(fb::index::HEAP_FREE)
}

/// A client of the tool's own, which asks for the highest clock of a GPU: what the module has a
/// client of the kernel's for.
#[derive(Debug)]
pub struct Booster {
    control: File,
    _gpu: File,
    client: u32,
}

impl Booster {
    /// Of this GPU.
    ///
    /// # Errors
    ///
    /// The driver does not answer.
    pub fn new(found: &Found, gpu: &GpuFacts) -> Result<Self, Error> {
        let control = open("/dev/nvidiactl")?;
        let tables =
            Tables::of(found.branch).ok_or_else(|| Error::UnknownBranch(found.version.clone()))?;
        let file = open(&format!("/dev/nvidia{}", gpu.minor))?;
        let rm = Rm::new(&control, tables)?;
        rm.device(gpu.device_instance)?;
        let client = rm.client;
        Ok(Self {
            control,
            _gpu: file,
            client,
        })
    }

    /// Asks; how long that took.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn boost(&self, call: BoostCall) -> Result<Duration, Error> {
        let (command, seconds) = match call {
            BoostCall::Clear => (params::PERF_BOOST_CLEAR, 0),
            BoostCall::Endless => (params::PERF_BOOST_TO_MAX, params::PERF_BOOST_INFINITE),
            BoostCall::For(seconds) => (params::PERF_BOOST_TO_MAX, seconds),
        };
        let mut params = [0; perf_boost::SIZE];
        perf_boost::FLAGS.set(&mut params, command | params::PERF_BOOST_CUDA);
        perf_boost::DURATION.set(&mut params, seconds);
        let began = Instant::now();
        let ControlCmd(cmd) = rmapi::PERF_BOOST;
        control_of(&self.control, (self.client, SUBDEVICE), cmd, &mut params)?;
        Ok(began.elapsed())
    }
}

/// A client of the tool's own with a GPU's device and subdevice. Answers are kept as they are.
#[derive(Debug)]
pub struct Own {
    booster: Booster,
    info_bytes: usize,
}

impl Own {
    /// On this GPU.
    ///
    /// # Errors
    ///
    /// The driver does not answer.
    pub fn new(found: &Found, gpu: &GpuFacts) -> Result<Self, Error> {
        let tables =
            Tables::of(found.branch).ok_or_else(|| Error::UnknownBranch(found.version.clone()))?;
        let bytes = tables
            .control(fb::FB_GET_INFO_V2)
            .map_or(0, |entry| entry.params);
        Ok(Self {
            booster: Booster::new(found, gpu)?,
            info_bytes: usize::try_from(bytes).unwrap_or_default(),
        })
    }

    /// The client's handle.
    #[must_use]
    pub fn client(&self) -> u32 {
        self.booster.client
    }

    /// Makes an object of the device's: the status.
    ///
    /// # Errors
    ///
    /// The call did not reach the driver.
    pub fn make(&self, object: u32, class: u32, params: &mut [u8]) -> Result<u32, Error> {
        let mut outer = [0; nvos64::SIZE];
        nvos64::H_ROOT.set(&mut outer, self.booster.client);
        nvos64::H_OBJECT_PARENT.set(&mut outer, DEVICE);
        nvos64::H_OBJECT_NEW.set(&mut outer, object);
        nvos64::H_CLASS.set(&mut outer, class);
        if !params.is_empty() {
            nvos64::P_ALLOC_PARMS.set(&mut outer, params.as_mut_ptr() as u64);
        }
        escape(
            &self.booster.control,
            Escape::RmAlloc,
            &mut outer,
            "an object",
        )?;
        Ok(nvos64::STATUS.get(&outer).unwrap_or(u32::MAX))
    }

    /// A control of an object: the status.
    ///
    /// # Errors
    ///
    /// The call did not reach the driver.
    pub fn control(&self, object: u32, cmd: u32, params: &mut [u8]) -> Result<u32, Error> {
        let mut outer = [0; nvos54::SIZE];
        let size = u32::try_from(params.len()).unwrap_or(u32::MAX);
        nvos54::H_CLIENT.set(&mut outer, self.booster.client);
        nvos54::H_OBJECT.set(&mut outer, object);
        nvos54::CMD.set(&mut outer, cmd);
        nvos54::PARAMS_SIZE.set(&mut outer, size);
        nvos54::PARAMS.set(&mut outer, params.as_mut_ptr() as u64);
        escape(
            &self.booster.control,
            Escape::RmControl,
            &mut outer,
            "a control",
        )?;
        Ok(nvos54::STATUS.get(&outer).unwrap_or(u32::MAX))
    }

    /// FB_GET_INFO_V2 of one index: the status, and what it says.
    ///
    /// # Errors
    ///
    /// The call did not reach the driver.
    pub fn memory_info(&self, index: u32) -> Result<(u32, u32), Error> {
        let mut params = vec![0; self.info_bytes];
        fb::COUNT_V2.set(&mut params, 1);
        if let Some(pair) = params.get_mut(fb::LIST_V2..) {
            fb::INDEX.set(pair, index);
        }
        let ControlCmd(cmd) = fb::FB_GET_INFO_V2;
        let status = self.control(SUBDEVICE, cmd, &mut params)?;
        let data = params
            .get(fb::LIST_V2..)
            .and_then(|pair| fb::DATA.get(pair));
        Ok((status, data.unwrap_or_default()))
    }
}

/// A client of RM. Closing its file frees it.
struct Rm<'a> {
    control: &'a File,
    tables: &'static Tables,
    client: u32,
}

impl<'a> Rm<'a> {
    fn new(control: &'a File, tables: &'static Tables) -> Result<Self, Error> {
        let mut this = Self {
            control,
            tables,
            client: 0,
        };
        this.client = this.alloc(0, 0, NV01_ROOT, &mut [])?;
        Ok(this)
    }

    fn alloc(&self, parent: u32, object: u32, class: u32, params: &mut [u8]) -> Result<u32, Error> {
        let mut outer = [0; nvos64::SIZE];
        nvos64::H_ROOT.set(&mut outer, self.client);
        nvos64::H_OBJECT_PARENT.set(&mut outer, parent);
        nvos64::H_OBJECT_NEW.set(&mut outer, object);
        nvos64::H_CLASS.set(&mut outer, class);
        if !params.is_empty() {
            nvos64::P_ALLOC_PARMS.set(&mut outer, params.as_mut_ptr() as u64);
        }
        escape(self.control, Escape::RmAlloc, &mut outer, "an object")?;
        match nvos64::STATUS.get(&outer) {
            Some(0) => Ok(nvos64::H_OBJECT_NEW.get(&outer).unwrap_or_default()),
            status => Err(Error::Refused("an object", i64::from(status.unwrap_or(1)))),
        }
    }

    fn control(&self, object: u32, cmd: u32, params: &mut [u8]) -> Result<(), Error> {
        control_of(self.control, (self.client, object), cmd, params)
    }

    /// Makes the device and subdevice of a GPU.
    fn device(&self, instance: u32) -> Result<(), Error> {
        let mut device = [0; nv0080::SIZE];
        nv0080::DEVICE_ID.set(&mut device, instance);
        self.alloc(self.client, DEVICE, NV01_DEVICE_0, &mut device)?;
        let mut subdevice = [0; params::nv2080::SIZE];
        self.alloc(DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, &mut subdevice)?;
        Ok(())
    }

    /// The answer of FB_GET_INFO_V2 for an index that is in KiB, in bytes.
    fn memory(&self, index: u32) -> Result<u64, Error> {
        let entry = self.tables.control(fb::FB_GET_INFO_V2);
        let size = entry.map_or(0, |entry| entry.params);
        let mut memory = vec![0; usize::try_from(size).unwrap_or_default()];
        fb::COUNT_V2.set(&mut memory, 1);
        if let Some(pair) = memory.get_mut(fb::LIST_V2..) {
            fb::INDEX.set(pair, index);
        }
        let ControlCmd(cmd) = fb::FB_GET_INFO_V2;
        self.control(SUBDEVICE, cmd, &mut memory)?;
        let kib = memory
            .get(fb::LIST_V2..)
            .and_then(|pair| fb::DATA.get(pair));
        Ok(u64::from(kib.unwrap_or_default()) << 10)
    }

    fn examine(&self, card: &Card) -> Result<GpuFacts, Error> {
        let minor = card_info::MINOR_NUMBER.get(card).unwrap_or_default();
        let gpu_id = card_info::GPU_ID.get(card).unwrap_or_default();
        // Opening it initializes the GPU.
        let _file = open(&format!("/dev/nvidia{minor}"))?;
        let mut ids = [0; id_info::SIZE];
        id_info::GPU_ID.set(&mut ids, gpu_id);
        self.control(self.client, asked::GPU_GET_ID_INFO.0, &mut ids)?;
        let device_instance = id_info::DEVICE_INSTANCE.get(&ids).unwrap_or_default();
        self.device(device_instance)?;
        let memory_bytes = self.memory(fb::index::TOTAL_RAM_SIZE)?;
        let mut gid = [0; gid_info::SIZE];
        gid_info::FLAGS.set(&mut gid, params::GID_BINARY);
        self.control(SUBDEVICE, asked::GPU_GET_GID_INFO.0, &mut gid)?;
        let uuid = gid.get(gid_info::DATA).and_then(|data| data.first_chunk());
        let mut arch = [0; arch_info::SIZE];
        self.control(SUBDEVICE, asked::MC_GET_ARCH_INFO.0, &mut arch)?;
        let architecture = arch_info::ARCHITECTURE.get(&arch).unwrap_or_default();
        let mut fifo = vec![0; fifo_info::SIZE];
        fifo_info::FIFO_INFO_TBL_SIZE.set(&mut fifo, 1);
        fb::INDEX.set(
            &mut fifo[fifo_info::FIFO_INFO_TBL..],
            asked::INFO_PER_RUNLIST,
        );
        // In an instance the call is refused, and nobody asks what follows from it.
        let asked = self.control(SUBDEVICE, asked::FIFO_GET_INFO.0, &mut fifo);
        let told = fb::DATA.get(&fifo[fifo_info::FIFO_INFO_TBL..]);
        let is_per_runlist = asked.is_ok() && told.is_some_and(|told| told != 0);
        let engines = Engines::of(architecture, is_per_runlist);
        let mut free = [0; nvos::nvos00::SIZE];
        nvos::nvos00::H_ROOT.set(&mut free, self.client);
        nvos::nvos00::H_OBJECT_OLD.set(&mut free, DEVICE);
        escape(self.control, Escape::RmFree, &mut free, "to free a device")?;
        Ok(GpuFacts {
            minor,
            gpu_id,
            device_instance,
            memory_bytes,
            uuid: uuid.copied().unwrap_or_default(),
            architecture,
            engines,
            card: *card,
        })
    }
}
