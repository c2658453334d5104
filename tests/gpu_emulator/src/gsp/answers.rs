// SPDX-License-Identifier: GPL-2.0
//! The firmware's knowledge of the GPU: the static information and the controls that are answered
//! with knowledge. The names are those of the driver's headers (ctrl2080*.h, gsp_static_config.h).

use crate::{
    abi::{Abi, Record, TooShort},
    engines::{self, Engine},
    model::GpuModel,
    MIB,
};

/// Video memory at the end that the firmware keeps for itself.
pub const RESERVED: u64 = 64 * MIB;
/// From the end of video memory to the first page tables of BAR1 and of BAR2, inside what is
/// reserved.
const BAR1_ROOT: u64 = 16 * MIB;
const BAR2_ROOT: u64 = 15 * MIB;
/// The firmware's own client on the first GPU, beyond those that the driver makes for itself.
const INTERNAL_CLIENT: u64 = 0xc1e0_f000;
/// Compute capability 9.0, as the driver has it.
const SM_VERSION: u64 = 0x900;
const WARPS: u64 = 64;
const THREADS_OF_A_WARP: u64 = 32;
/// Subcontexts of a channel group.
const SUBCONTEXTS: u64 = 64;
/// Size of a buffer that the driver keeps for each context.
const CONTEXT_BUFFER: u64 = 128 << 10;
/// Capabilities of copy engines (ctrl2080ce.h, `NV2080_CTRL_CE_CAPS_CE_*`): all but graphics, and
/// all. The driver needs a graphics copy engine for its own channels, UVM one that is none, both
/// system memory.
const COPY_CAPS: [u8; 2] = [0xec, 3];
const GRAPHICS_COPY_CAPS: [u8; 2] = [0xef, 3];
/// `NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT`: text is 0, bytes are 2.
const GID_FORMAT: u64 = 3;
/// A GPU for data centers; branch 535 refuses others (g_gpu_nvoc.h, `COMPUTE_BRANDING_TYPE_TESLA`).
const TESLA: u64 = 1;

/// The facts that answers are made of.
#[derive(Debug)]
pub struct Facts {
    /// The release's headers.
    pub abi: Abi,
    /// The GPU.
    pub model: GpuModel,
    /// Its engines.
    pub engines: Vec<Engine>,
}

/// An answer to a control: writes into the parameters, and returns the status.
pub type Answer = fn(&Facts, &mut [u8]) -> Result<u32, TooShort>;

/// The controls that are answered with knowledge.
pub const ANSWERS: &[(&str, Answer)] = &[
    (
        "NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE",
        device_info_table,
    ),
    (
        "NV2080_CTRL_CMD_INTERNAL_GET_DEVICE_INFO_TABLE",
        internal_device_table,
    ),
    (
        "NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE",
        interrupt_table,
    ),
    ("NV2080_CTRL_CMD_INTERNAL_GPU_GET_CHIP_INFO", chip_info),
    ("NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO", windows),
    (
        "NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG",
        memory_system,
    ),
    (
        "NV2080_CTRL_CMD_INTERNAL_GMMU_GET_STATIC_INFO",
        fault_buffers,
    ),
    ("NV2080_CTRL_CMD_INTERNAL_FIFO_GET_NUM_CHANNELS", channels),
    (
        "NV2080_CTRL_CMD_INTERNAL_CONF_COMPUTE_GET_STATIC_INFO",
        trusted_windows,
    ),
    (
        "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_INFO",
        graphics_info,
    ),
    (
        "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FLOORSWEEPING_MASKS",
        clusters,
    ),
    (
        "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_GLOBAL_SM_ORDER",
        multiprocessors,
    ),
    (
        "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO",
        context_buffers,
    ),
    (
        "NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE",
        fault_method_buffer,
    ),
    ("NV2080_CTRL_CMD_CE_GET_PHYSICAL_CAPS", copy_engine_caps),
    (
        "NV2080_CTRL_CMD_CE_GET_ALL_PHYSICAL_CAPS",
        all_copy_engine_caps,
    ),
    ("NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK", physical_copy_engines),
    ("NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE", performance_state),
    ("NV2080_CTRL_CMD_GPU_GET_NAME_STRING", name_string),
    (
        "NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING",
        short_name_string,
    ),
    ("NV2080_CTRL_CMD_GPU_GET_GID_INFO", uuid),
];

impl Facts {
    /// The facts that follow from a release and a GPU.
    pub fn new(abi: Abi, model: GpuModel) -> Self {
        let engines = engines::of(&model);
        Self {
            abi,
            model,
            engines,
        }
    }

    /// The first page table of BAR1, in video memory.
    pub fn bar1_root(&self) -> u64 {
        self.model.memory - BAR1_ROOT
    }

    /// The first page table of BAR2, in video memory.
    pub fn bar2_root(&self) -> u64 {
        self.model.memory - BAR2_ROOT
    }

    fn record<'a>(
        &'a self,
        name: &'static str,
        params: &'a mut [u8],
    ) -> Result<Record<'a, &'a mut [u8]>, TooShort> {
        Record::of(&self.abi, name, params)
    }
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Answers GET_GSP_STATIC_INFO.
pub fn static_info(facts: &Facts, body: &mut [u8]) -> Result<u32, TooShort> {
    let model = &facts.model;
    let size = facts.abi.size("GspStaticConfigInfo");
    body.get_mut(..size).ok_or(TooShort)?.fill(0);
    let mut info = facts.record("GspStaticConfigInfo", body)?;
    info.set("gidInfo.length", 16);
    info.set_bytes("gidInfo.data", &[], &model.uuid);
    info.offer("gpcInfo.gpcMask", &[], (1 << model.gpcs) - 1);
    for gpc in 0..model.gpcs {
        let at = [gpc as usize];
        info.offer("tpcInfo[].gpcId", &at, u64::from(gpc));
        info.offer("tpcInfo[].tpcMask", &at, (1 << model.tpcs_of(gpc)) - 1);
    }
    let usable = model.memory - RESERVED;
    info.set("fbRegionInfoParams.numFBRegions", 2);
    let regions = [(0, usable - 1, 0), (usable, model.memory - 1, RESERVED)];
    for (index, (base, limit, reserved)) in regions.into_iter().enumerate() {
        info.set_at("fbRegionInfoParams.fbRegion[].base", &[index], base);
        info.set_at("fbRegionInfoParams.fbRegion[].limit", &[index], limit);
        info.set_at("fbRegionInfoParams.fbRegion[].reserved", &[index], reserved);
    }
    info.set_at("fbRegionInfoParams.fbRegion[].performance", &[0], 100);
    info.set_at("fbRegionInfoParams.fbRegion[].supportCompressed", &[0], 1);
    info.set_at("fbRegionInfoParams.fbRegion[].supportISO", &[0], 1);
    let abi = &facts.abi;
    let copies = ((1_u64 << model.copy_engines) - 1) << abi.number("NV2080_ENGINE_TYPE_COPY0");
    let engines = 1 << abi.number("NV2080_ENGINE_TYPE_GR0") | copies;
    info.set_at("engineCaps[]", &[0], engines & 0xffff_ffff);
    info.set("fb_length", model.memory);
    // Not all releases ask for these here; some do with a control.
    let ram = abi.number("NV2080_CTRL_FB_INFO_RAM_TYPE_HBM3");
    for (field, value) in [
        ("SM_info.version", SM_VERSION),
        ("SM_info.maxWarpsPerSM", WARPS),
        ("SM_info.maxThreadsPerWarp", THREADS_OF_A_WARP),
        ("fbio_mask", 0x3f),
        ("fb_bus_width", u64::from(model.memory_bus)),
        ("fb_ram_type", ram),
        ("fbp_mask", 0x3f),
        ("l2_cache_size", u64::from(model.l2_cache)),
    ] {
        info.offer(field, &[], value);
    }
    info.set_bytes("gpuNameString", &[], model.name.as_bytes());
    info.set_bytes("gpuShortNameString", &[], model.chip.as_bytes());
    if info.has("gpuNameString_Unicode") {
        info.set_bytes("gpuNameString_Unicode", &[], &utf16(&model.name));
    }
    info.set("bIsTesla", 1);
    info.offer("computeBranding", &[], TESLA);
    info.set("bar1PdeBase", facts.bar1_root());
    info.set("bar2PdeBase", facts.bar2_root());
    info.set("bSplitVasBetweenServerClientRm", 1);
    // The driver finds a GPU by this client and the subdevice: each GPU has a client of its own.
    info.set(
        "hInternalClient",
        INTERNAL_CLIENT + u64::from(model.uuid[15]),
    );
    info.set("hInternalDevice", 0xabcd_0080);
    info.set("hInternalSubdevice", 0xabcd_2080);
    Ok(0)
}

fn device_info_table(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let abi = &facts.abi;
    let mut table = facts.record("NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS", params)?;
    table.set("bMore", 0);
    if table.get("baseIndex") != 0 {
        table.set("numEntries", 0);
        return Ok(0);
    }
    table.set("numEntries", facts.engines.len() as u64 + 1);
    for (index, engine) in facts.engines.iter().enumerate() {
        let data = [
            ("ENGINE_INFO_TYPE_ENG_DESC", engine.descriptor(abi)),
            ("ENGINE_INFO_TYPE_FIFO_TAG", engine.index),
            ("ENGINE_INFO_TYPE_RM_ENGINE_TYPE", engine.rm_type(abi)),
            ("ENGINE_INFO_TYPE_RUNLIST", engine.runlist),
            ("ENGINE_INFO_TYPE_MMU_FAULT_ID", engine.fault_id()),
            ("ENGINE_INFO_TYPE_RC_MASK", engine.index),
            ("ENGINE_INFO_TYPE_RESET", engine.index + 1),
            ("ENGINE_INFO_TYPE_INTR", engine.index),
            ("ENGINE_INFO_TYPE_MC", engine.mc_index(abi)),
            ("ENGINE_INFO_TYPE_DEV_TYPE_ENUM", engine.device_type()),
            ("ENGINE_INFO_TYPE_INSTANCE_ID", engine.instance),
            (
                "ENGINE_INFO_TYPE_RUNLIST_PRI_BASE",
                engine.runlist_registers(),
            ),
            ("ENGINE_INFO_TYPE_IS_HOST_DRIVEN_ENGINE", 1),
            ("ENGINE_INFO_TYPE_RUNLIST_ENGINE_ID", engine.slot),
            (
                "ENGINE_INFO_TYPE_CHRAM_PRI_BASE",
                engine.channel_registers(),
            ),
        ];
        for (field, value) in data {
            let at = [index, abi.number(field) as usize];
            table.set_at("entries[].engineData[]", &at, u64::from(value));
        }
        let runlist = u64::from(engine.runlist);
        table.set_at("entries[].numPbdmas", &[index], 1);
        table.set_at("entries[].pbdmaIds[]", &[index, 0], runlist);
        table.set_at("entries[].pbdmaFaultIds[]", &[index, 0], 64 + runlist);
        table.set_bytes("entries[].engineName", &[index], engine.name().as_bytes());
    }
    // The driver wants an engine for what is done by software.
    let last = facts.engines.len();
    let runlists = facts
        .engines
        .iter()
        .map(|engine| engine.runlist + 1)
        .max()
        .unwrap_or(0);
    let software = [
        ("ENGINE_INFO_TYPE_ENG_DESC", abi.word("ENG_SW")),
        ("ENGINE_INFO_TYPE_FIFO_TAG", last as u32),
        (
            "ENGINE_INFO_TYPE_RM_ENGINE_TYPE",
            abi.word("RM_ENGINE_TYPE_SW"),
        ),
        ("ENGINE_INFO_TYPE_RUNLIST", runlists),
        ("ENGINE_INFO_TYPE_DEV_TYPE_ENUM", u32::MAX),
        ("ENGINE_INFO_TYPE_MMU_FAULT_ID", u32::MAX),
    ];
    for (field, value) in software {
        let at = [last, abi.number(field) as usize];
        table.set_at("entries[].engineData[]", &at, u64::from(value));
    }
    table.set_bytes("entries[].engineName", &[last], b"SW");
    Ok(0)
}

fn internal_device_table(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NV2080_CTRL_INTERNAL_GET_DEVICE_INFO_TABLE_PARAMS";
    let mut table = facts.record(name, params)?;
    table.set("numEntries", facts.engines.len() as u64);
    for (index, engine) in facts.engines.iter().enumerate() {
        let data = [
            ("deviceInfoTable[].faultId", engine.fault_id()),
            ("deviceInfoTable[].instanceId", engine.instance),
            ("deviceInfoTable[].typeEnum", engine.device_type()),
            ("deviceInfoTable[].resetId", engine.index + 1),
            ("deviceInfoTable[].devicePriBase", engine.registers()),
            ("deviceInfoTable[].isEngine", 1),
            ("deviceInfoTable[].rlEngId", engine.slot),
            (
                "deviceInfoTable[].runlistPriBase",
                engine.runlist_registers(),
            ),
        ];
        for (field, value) in data {
            table.set_at(field, &[index], u64::from(value));
        }
    }
    Ok(0)
}

fn interrupt_table(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS";
    let lines = engines::interrupts(&facts.abi, &facts.engines);
    let mut table = facts.record(name, params)?;
    table.set("tableLen", lines.len() as u64);
    for (index, line) in lines.iter().enumerate() {
        table.set_at("table[].engineIdx", &[index], u64::from(line.unit));
        table.set_at("table[].pmcIntrMask", &[index], 0);
        table.set_at("table[].vectorStall", &[index], u64::from(line.stall));
        table.set_at(
            "table[].vectorNonStall",
            &[index],
            u64::from(line.non_stall),
        );
    }
    for (index, [first, last]) in engines::SUBTREES.into_iter().enumerate() {
        table.offer("subtreeMap[].subtreeStart", &[index], u64::from(first));
        table.offer("subtreeMap[].subtreeEnd", &[index], u64::from(last));
        // From 580 on it is a mask.
        let mask = (first..=last).fold(0, |mask, subtree| mask | 1 << subtree);
        table.offer("subtreeMap[].subtreeMask", &[index], mask);
    }
    Ok(0)
}

fn chip_info(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let (abi, model) = (&facts.abi, &facts.model);
    let mut info = facts.record("NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS", params)?;
    let pci = |device: u16, vendor: u16| u64::from(device) << 16 | u64::from(vendor);
    info.set("pciDeviceId", pci(model.device, model.vendor));
    info.set(
        "pciSubDeviceId",
        pci(model.subsystem, model.subsystem_vendor),
    );
    info.set("pciRevisionId", u64::from(model.revision));
    for index in 0..info.count("regBases[]", 0) {
        info.set_at("regBases[]", &[index], u64::from(u32::MAX));
    }
    let bases = [
        ("NV_REG_BASE_GR", 0x40_0000),
        ("NV_REG_BASE_TIMER", 0x9000),
        ("NV_REG_BASE_MASTER", 0),
        ("NV_REG_BASE_USERMODE", crate::registers::USERMODE_ALIAS),
    ];
    for (unit, base) in bases {
        info.set_at("regBases[]", &[abi.number(unit) as usize], base);
    }
    Ok(0)
}

fn windows(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let mut info = facts.record("NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS", params)?;
    info.set("pciBarCount", facts.model.windows.len() as u64);
    for (index, size) in facts.model.windows.into_iter().enumerate() {
        info.set_at("pciBarInfo[].flags", &[index], 0);
        info.set_at("pciBarInfo[].barSize", &[index], size / MIB);
        info.set_at("pciBarInfo[].barSizeBytes", &[index], size);
        info.set_at("pciBarInfo[].barOffset", &[index], 0);
    }
    Ok(0)
}

fn memory_system(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS";
    let hbm3 = facts.abi.number("NV2080_CTRL_FB_INFO_RAM_TYPE_HBM3");
    let mut config = facts.record(name, params)?;
    config.set("bUseRawModeComptaglineAllocation", 1);
    config.set("bDisablePostL2Compression", 1);
    config.set("bEnabledEccFBPA", 1);
    config.set("l2CacheSize", u64::from(facts.model.l2_cache));
    config.set("bFbpaPresent", 1);
    config.set("comprPageSize", 1 << 16);
    config.set("comprPageShift", 16);
    config.set("ramType", hbm3);
    config.set("ltcCount", 12);
    config.set("ltsPerLtcCount", 8);
    Ok(0)
}

fn fault_buffers(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NV2080_CTRL_INTERNAL_GMMU_GET_STATIC_INFO_PARAMS";
    let mut info = facts.record(name, params)?;
    info.set("replayableFaultBufferSize", 512 << 10);
    info.set("replayableShadowFaultBufferMetadataSize", 4 << 10);
    info.set("nonReplayableFaultBufferSize", 64 << 10);
    info.set("nonReplayableShadowFaultBufferMetadataSize", 4 << 10);
    Ok(0)
}

fn channels(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NV2080_CTRL_INTERNAL_FIFO_GET_NUM_CHANNELS_PARAMS";
    facts
        .record(name, params)?
        .set("numChannels", u64::from(facts.model.channels));
    Ok(0)
}

/// No confidential computing: the processor may use BAR1 and PCIe. Branch 535 asks for this also
/// where the mode is off (`kbusStateInitLocked_IMPL()`).
fn trusted_windows(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NV2080_CTRL_INTERNAL_CONF_COMPUTE_GET_STATIC_INFO_PARAMS";
    let mut record = facts.record(name, params)?;
    record.set("bIsBar1Trusted", 1);
    record.set("bIsPcieTrusted", 1);
    Ok(0)
}

fn graphics_info(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let model = &facts.model;
    let known = [
        ("LITTER_NUM_GPCS", u64::from(model.gpcs)),
        ("LITTER_NUM_TPC_PER_GPC", u64::from(model.tpcs_per_gpc)),
        ("LITTER_NUM_SM_PER_TPC", 2),
        ("SM_VERSION", SM_VERSION),
        ("MAX_WARPS_PER_SM", WARPS),
        ("MAX_THREADS_PER_WARP", THREADS_OF_A_WARP),
        ("SHADER_PIPE_COUNT", u64::from(model.gpcs)),
        ("SHADER_PIPE_SUB_COUNT", u64::from(model.tpcs)),
        ("MAX_SUBCONTEXT_COUNT", SUBCONTEXTS),
    ];
    let name = "NV2080_CTRL_INTERNAL_STATIC_GR_GET_INFO_PARAMS";
    let mut info = facts.record(name, params)?;
    let path = "engineInfo[].infoList[].data";
    for engine in 0..info.count(path, 0) {
        for index in 0..info.count(path, 1) {
            info.set_at(
                "engineInfo[].infoList[].index",
                &[engine, index],
                index as u64,
            );
            info.set_at(path, &[engine, index], 0);
        }
        for (field, value) in known {
            let index = facts
                .abi
                .number(&format!("NV2080_CTRL_GR_INFO_INDEX_{field}"));
            info.set_at(path, &[engine, index as usize], value);
        }
    }
    Ok(0)
}

fn clusters(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let model = &facts.model;
    let name = "NV2080_CTRL_INTERNAL_STATIC_GR_GET_FLOORSWEEPING_MASKS_PARAMS";
    let mut masks = facts.record(name, params)?;
    let all = (1 << model.gpcs) - 1;
    masks.set_at("floorsweepingMasks[].gpcMask", &[0], all);
    masks.set_at("floorsweepingMasks[].physGpcMask", &[0], all);
    for gpc in 0..model.gpcs {
        let at = [0, gpc as usize];
        let tpcs = model.tpcs_of(gpc);
        masks.set_at("floorsweepingMasks[].tpcMask[]", &at, (1 << tpcs) - 1);
        masks.set_at("floorsweepingMasks[].tpcCount[]", &at, u64::from(tpcs));
        masks.set_at("floorsweepingMasks[].mmuPerGpc[]", &at, 1);
        masks.set_at("floorsweepingMasks[].numPesPerGpc[]", &at, 3);
    }
    Ok(0)
}

fn multiprocessors(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let model = &facts.model;
    let name = "NV2080_CTRL_INTERNAL_STATIC_GR_GET_GLOBAL_SM_ORDER_PARAMS";
    let mut order = facts.record(name, params)?;
    // Round robin over the clusters, as long as each has one left.
    let rounds = (0..model.tpcs_per_gpc).flat_map(|local| {
        (0..model.gpcs)
            .filter(move |gpc| local < model.tpcs_of(*gpc))
            .map(move |gpc| (gpc, local))
    });
    for (tpc, (gpc, local)) in rounds.enumerate() {
        for sm in 0..2 {
            let at = [0, 2 * tpc + sm];
            let data = [
                ("gpcId", u64::from(gpc)),
                ("virtualGpcId", u64::from(gpc)),
                ("localTpcId", u64::from(local)),
                ("localSmId", sm as u64),
                ("globalTpcId", tpc as u64),
                ("migratableTpcId", tpc as u64),
            ];
            for (field, value) in data {
                order.set_at(&format!("globalSmOrder[].globalSmId[].{field}"), &at, value);
            }
        }
    }
    order.set_at(
        "globalSmOrder[].numSm",
        &[0],
        u64::from(model.multiprocessors()),
    );
    order.set_at("globalSmOrder[].numTpc", &[0], u64::from(model.tpcs));
    Ok(0)
}

fn context_buffers(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS";
    let mut info = facts.record(name, params)?;
    let (size, alignment) = (
        "engineContextBuffersInfo[].engine[].size",
        "engineContextBuffersInfo[].engine[].alignment",
    );
    for engine in 0..info.count(size, 0) {
        for buffer in 0..info.count(size, 1) {
            info.set_at(size, &[engine, buffer], CONTEXT_BUFFER);
            info.set_at(alignment, &[engine, buffer], 4096);
        }
    }
    Ok(0)
}

fn fault_method_buffer(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    facts
        .record("NV2080_CTRL_CE_GET_FAULT_METHOD_BUFFER_SIZE_PARAMS", params)?
        .set("size", 16384);
    Ok(0)
}

fn caps_of(facts: &Facts, copy_engine: u32) -> [u8; 2] {
    if copy_engine < facts.model.copy_engines_of_graphics {
        GRAPHICS_COPY_CAPS
    } else {
        COPY_CAPS
    }
}

fn copy_engine_caps(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let first = facts.abi.word("NV2080_ENGINE_TYPE_COPY0");
    let mut caps = facts.record("NV2080_CTRL_CE_GET_CAPS_V2_PARAMS", params)?;
    let engine = caps.word("ceEngineType").wrapping_sub(first);
    caps.set_bytes("capsTbl", &[], &caps_of(facts, engine));
    Ok(0)
}

fn all_copy_engine_caps(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let mut caps = facts.record("NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS", params)?;
    for engine in 0..facts.model.copy_engines {
        for (byte, value) in caps_of(facts, engine).into_iter().enumerate() {
            caps.set_at("capsTbl[][]", &[engine as usize, byte], u64::from(value));
        }
    }
    caps.set("present", (1 << facts.model.copy_engines) - 1);
    Ok(0)
}

/// Each copy engine of the driver's is one of the GPU's.
fn physical_copy_engines(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let first = facts.abi.word("NV2080_ENGINE_TYPE_COPY0");
    let mut mask = facts.record("NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS", params)?;
    let engine = mask.word("ceEngineType").wrapping_sub(first);
    mask.set("pceMask", u64::from(1_u32.checked_shl(engine).unwrap_or(0)));
    Ok(0)
}

fn performance_state(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let highest = facts.abi.number("NV2080_CTRL_PERF_PSTATES_P0");
    facts
        .record("NV2080_CTRL_PERF_GET_CURRENT_PSTATE_PARAMS", params)?
        .set("currPstate", highest);
    Ok(0)
}

fn name_string(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let (flags, text) = params.split_first_chunk_mut::<4>().ok_or(TooShort)?;
    let name = match u32::from_le_bytes(*flags) {
        0 => facts.model.name.clone().into_bytes(),
        _ => utf16(&facts.model.name),
    };
    text.fill(0);
    text.get_mut(..name.len())
        .ok_or(TooShort)?
        .copy_from_slice(&name);
    Ok(0)
}

fn short_name_string(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = facts.model.chip.as_bytes();
    params.fill(0);
    params
        .get_mut(..name.len())
        .ok_or(TooShort)?
        .copy_from_slice(name);
    Ok(0)
}

/// The UUID, as bytes or as text with a zero at its end (subdevice_ctrl_gpu_kernel.c). Branch 535
/// asks here, and `libcuda` takes a GPU without a UUID for none.
fn uuid(facts: &Facts, params: &mut [u8]) -> Result<u32, TooShort> {
    let uuid = &facts.model.uuid;
    let mut info = facts.record("NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", params)?;
    let said = match info.get("flags") & GID_FORMAT {
        0 => {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let parts: [String; 5] = [0..4, 4..6, 6..8, 8..10, 10..16].map(|at| hex(&uuid[at]));
            format!("GPU-{}\0", parts.join("-")).into_bytes()
        }
        _ => uuid.to_vec(),
    };
    info.set("length", said.len() as u64);
    info.set_bytes("data", &[], &said);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::RELEASES;

    fn facts() -> Facts {
        Facts::new(Abi::of("550").expect("has a table"), GpuModel::h200())
    }

    #[test]
    fn every_answer_knows_its_struct() {
        for (release, _) in RELEASES {
            let facts = Facts::new(Abi::of(release).expect("has a table"), GpuModel::h200());
            let has = |(name, _): &&(&str, Answer)| facts.abi.find(name).is_some();
            for (name, answer) in ANSWERS.iter().filter(has) {
                let mut params = vec![0; 128 << 10];
                assert_eq!(answer(&facts, &mut params), Ok(0), "{release} {name}");
                assert_eq!(answer(&facts, &mut []), Err(TooShort), "{release} {name}");
            }
            let mut body = vec![0; facts.abi.size("GspStaticConfigInfo")];
            assert_eq!(static_info(&facts, &mut body), Ok(0), "{release}");
        }
    }

    #[test]
    fn no_release_lacks_many_answers() {
        for (release, _) in RELEASES {
            let abi = Abi::of(release).expect("has a table");
            let lacking = ANSWERS.iter().filter(|(name, _)| abi.find(name).is_none());
            assert!(lacking.count() <= 1, "{release}");
        }
    }

    #[test]
    fn static_info_has_memory_without_the_reserve() {
        let facts = facts();
        let mut body = vec![0xff; facts.abi.size("GspStaticConfigInfo")];
        static_info(&facts, &mut body).expect("has room");
        let info = Record::of(&facts.abi, "GspStaticConfigInfo", &body).expect("has its size");
        assert_eq!(info.get("fb_length"), facts.model.memory);
        let limit = info.at("fbRegionInfoParams.fbRegion[].limit", &[0]);
        assert_eq!(limit, facts.model.memory - RESERVED - 1);
        assert!(info.get("bar1PdeBase") > limit && info.get("bar2PdeBase") > limit);
    }

    #[test]
    fn uuid_is_bytes_or_text() {
        let facts = facts();
        let name = "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS";
        let said = |flags| {
            let mut params = vec![0xff; facts.abi.size(name)];
            let mut info =
                Record::of(&facts.abi, name, params.as_mut_slice()).expect("has its size");
            info.set("flags", flags);
            uuid(&facts, &mut params).expect("has room");
            let info = Record::of(&facts.abi, name, &params).expect("has its size");
            let (at, length) = (facts.abi.offset(name, "data"), info.get("length") as usize);
            params[at..at + length].to_vec()
        };
        assert_eq!(said(2), facts.model.uuid);
        let text = String::from_utf8(said(0)).expect("is text");
        let bytes: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let hex: String = facts
            .model
            .uuid
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!((text.len(), &text[..4], &text[40..]), (41, "GPU-", "\0"));
        assert_eq!(bytes, hex);
    }

    #[test]
    fn every_multiprocessor_is_in_the_order() {
        let facts = facts();
        let name = "NV2080_CTRL_INTERNAL_STATIC_GR_GET_GLOBAL_SM_ORDER_PARAMS";
        let mut params = vec![0; facts.abi.size(name)];
        multiprocessors(&facts, &mut params).expect("has room");
        let order = Record::of(&facts.abi, name, &params).expect("has its size");
        let at = [0, 131];
        assert_eq!(
            order.at("globalSmOrder[].globalSmId[].globalTpcId", &at),
            65
        );
        assert_eq!(order.at("globalSmOrder[].numSm", &[0]), 132);
    }
}
