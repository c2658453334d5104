// SPDX-License-Identifier: GPL-2.0
//! The GPU as the bus sees it: configuration space and three windows.

use crate::{
    abi::Abi,
    bar::{Window, WindowAccess},
    clock, engines,
    faults::Fault,
    fsp::{Fsp, FspRequest},
    gsp::{answers::Facts, Gsp},
    host::{Host, Wish},
    interrupts::Interrupts,
    log::{worth_a_line, Log},
    memory::Memory,
    model::GpuModel,
    names::ChannelId,
    pci::ConfigSpace,
    place::Place,
    registers::{self, Registers},
    units::Units,
    MIB,
};
use std::{collections::HashMap, time::Duration};

/// How often channels that wait for a semaphore look at it again.
const POLL: Duration = Duration::from_millis(1);
/// FSP has booted (`NV_THERM_I2CS_SCRATCH_FSP_BOOT_COMPLETE_STATUS_SUCCESS`).
const FSP_BOOTED: u32 = 0xff;
/// GSP's processor is a RISC-V core, and it is not locked down (`NV_PFALCON_FALCON_HWCFG2`).
const HWCFG2_RISCV: u32 = 1 << 10;
/// GSP's core runs (`NV_PRISCV_RISCV_CPUCTL_ACTIVE_STAT`).
const CPUCTL_ACTIVE: u32 = 1 << 7;
/// GSP's core is in reset, and the reset is over (`NV_PGSP_FALCON_ENGINE_RESET*`).
const ENGINE_RESET: u32 = 1;
const ENGINE_RESET_DEASSERTED: u32 = 2 << 8;
/// Translations are being forgotten (`NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_TRIGGER`).
const INVALIDATE_TRIGGER: u32 = 1 << 31;
/// Events are in the queue (`NV_PFALCON_FALCON_IRQSTAT_SWGEN0`).
const SWGEN0: u32 = 1 << 6;
/// The error of an address that leads nowhere (nverror.h, `ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT`).
const MMU_FAULT: u32 = 31;
/// Entries of the access counters' buffer.
const ACCESS_COUNTERS: u32 = 4096;

/// A region of the device, by VFIO's number for it (linux/vfio.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The registers.
    Bar0,
    /// The window for programs.
    Bar1,
    /// The window for the driver.
    Bar2,
    /// The configuration space.
    Config,
}

impl Region {
    /// The region with this number. BARs of 64 bits take two numbers each.
    pub fn of(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Bar0),
            2 => Some(Self::Bar1),
            4 => Some(Self::Bar2),
            7 => Some(Self::Config),
            _ => None,
        }
    }
}

/// One GPU.
#[derive(Debug)]
pub struct Gpu {
    /// Units that the firmware shares.
    pub units: Units,
    config: ConfigSpace,
    fsp: Fsp,
    gsp: Gsp,
    bar1: Window,
    bar2: Window,
    /// It has fallen off the bus.
    lost: bool,
    /// Kernels that were launched.
    launches: u64,
    /// The last stores to the doorbell, by BAR0 and by BAR1. Hardware does not tell; tests of what
    /// reaches the GPU want to know.
    rung: [u32; 2],
    /// How often each register was read or written, for the log.
    seen: HashMap<(bool, u64), u64>,
}

impl Gpu {
    /// A GPU after power on.
    pub fn new(abi: Abi, model: GpuModel, log: Log) -> Self {
        let config = ConfigSpace::new(&model);
        let facts = Facts::new(abi, model);
        let gsp = Gsp::new(&facts.abi);
        let bar1 = Window::new("bar1", Place::video(facts.bar1_root()));
        let bar2 = Window::new("bar2", Place::video(facts.bar2_root()));
        let units = Units {
            memory: Memory::new(facts.model.memory),
            facts,
            registers: Registers::default(),
            interrupts: Interrupts::default(),
            host: Host::default(),
            log,
        };
        let mut gpu = Self {
            units,
            config,
            fsp: Fsp::default(),
            gsp,
            bar1,
            bar2,
            lost: false,
            launches: 0,
            rung: [0; 2],
            seen: HashMap::new(),
        };
        gpu.gsp.prepare();
        gpu.power_on();
        gpu
    }

    /// Registers that say something before anyone has written to them.
    fn power_on(&mut self) {
        let model = &self.units.facts.model;
        let values = [
            (registers::NV_PMC_BOOT_0, model.boot_0),
            (registers::NV_PMC_BOOT_42, model.boot_42),
            (
                registers::NV_THERM_I2CS_SCRATCH_FSP_BOOT_COMPLETE,
                FSP_BOOTED,
            ),
            (registers::NV_PGSP_FALCON_ENGINE, ENGINE_RESET_DEASSERTED),
            (registers::NV_PRISCV_RISCV_IRQMASK, SWGEN0),
            (registers::NV_PRISCV_RISCV_IRQDEST, SWGEN0),
            (
                registers::NV_USABLE_FB_SIZE_IN_MB,
                (model.memory / MIB) as u32,
            ),
            (
                registers::NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_SIZE,
                ACCESS_COUNTERS,
            ),
        ];
        for (register, value) in values {
            self.units.registers.set(register, value);
        }
    }

    /// Size of a region in bytes.
    pub fn size(&self, region: Region) -> u64 {
        let windows = self.units.facts.model.windows;
        match region {
            Region::Bar0 => windows[0],
            Region::Bar1 => windows[1],
            Region::Bar2 => windows[2],
            Region::Config => crate::pci::SIZE as u64,
        }
    }

    /// Reads from a region.
    pub fn read(&mut self, region: Region, offset: u64, bytes: &mut [u8]) {
        if self.lost {
            return bytes.fill(0xff);
        }
        match region {
            Region::Config => self.config.read(offset, bytes),
            Region::Bar0 => {
                // Registers have 32 bits; a part of one is read with the whole.
                let mut word = [0; 4];
                for (at, byte) in (offset..).zip(bytes) {
                    if at == offset || at % 4 == 0 {
                        word = self.register_read(at & !3).to_le_bytes();
                    }
                    *byte = word[(at & 3) as usize];
                }
            }
            Region::Bar1 | Region::Bar2 => self.window_read(region, offset, bytes),
        }
    }

    /// Writes to a region.
    pub fn write(&mut self, region: Region, offset: u64, bytes: &[u8]) {
        if self.lost {
            return;
        }
        match region {
            Region::Config => {
                self.config.write(offset, bytes);
                self.units.memory.machine.bus_master = self.config.bus_master();
            }
            Region::Bar0 => {
                for (at, word) in (offset..).step_by(4).zip(bytes.chunks_exact(4)) {
                    let value = u32::from_le_bytes(word.try_into().expect("four bytes"));
                    self.register_write(at, value);
                }
            }
            Region::Bar1 | Region::Bar2 => self.window_write(region, offset, bytes),
        }
    }

    fn parts(&mut self, region: Region, offset: u64, length: usize) -> Vec<(WindowAccess, usize)> {
        let window = if region == Region::Bar1 {
            &mut self.bar1
        } else {
            &mut self.bar2
        };
        window.parts(&self.units.memory, offset, length, &mut self.units.log)
    }

    fn window_read(&mut self, region: Region, offset: u64, bytes: &mut [u8]) {
        let mut rest = bytes;
        for (access, length) in self.parts(region, offset, rest.len()) {
            let (part, after) = rest.split_at_mut(length);
            rest = after;
            let done = match access {
                WindowAccess::Memory(place) => self.units.memory.read(place, part).is_ok(),
                WindowAccess::Usermode(register) => {
                    let value = match register {
                        registers::DOORBELL => self.rung[1],
                        _ => self.register_read(registers::USERMODE + register),
                    };
                    let word = value.to_le_bytes();
                    part.iter_mut()
                        .zip(word)
                        .for_each(|(byte, value)| *byte = value);
                    true
                }
                WindowAccess::Nothing => false,
            };
            if !done {
                part.fill(0xff);
            }
        }
    }

    fn window_write(&mut self, region: Region, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for (access, length) in self.parts(region, offset, rest.len()) {
            let (part, after) = rest.split_at(length);
            rest = after;
            match access {
                WindowAccess::Memory(place) => {
                    if let Err(no) = self.units.memory.write(place, part) {
                        self.units
                            .log
                            .say("bar", format_args!("a write is lost: {no}"));
                    }
                }
                WindowAccess::Usermode(register) => {
                    if let Ok(word) = part.try_into() {
                        let value = u32::from_le_bytes(word);
                        match register {
                            registers::DOORBELL => self.doorbell(1, value),
                            _ => self.register_write(registers::USERMODE + register, value),
                        }
                    }
                }
                WindowAccess::Nothing => {}
            }
        }
    }

    /// Writes a line about a register, if it is not one of many.
    fn note(&mut self, written: bool, register: u64, value: u32) {
        if registers::PRAMIN.contains(&register) || is_frequent(register) {
            return;
        }
        let count = self.seen.entry((written, register)).or_default();
        *count += 1;
        if worth_a_line(*count) {
            let (verb, name) = (if written { "w" } else { "r" }, registers::name(register));
            let words = format_args!("{verb} {register:06x} {value:08x} {name} #{count}");
            self.units.log.say("register", words);
        }
    }

    /// The place in video memory of an address of PRAMIN.
    fn pramin(&self, register: u64) -> Place {
        let window = self.units.registers.get(registers::NV_XAL_EP_BAR0_WINDOW);
        Place::video((u64::from(window) << 16) + register - registers::PRAMIN.start)
    }

    fn register_read(&mut self, register: u64) -> u32 {
        use registers as r;
        let value = match register {
            r::NV_PFSP_EMEMC_0 => self.fsp.control(),
            r::NV_PFSP_EMEMD_0 => self.fsp.read_data(),
            r::NV_PFSP_QUEUE_HEAD_0 => self.fsp.queue()[0],
            r::NV_PFSP_QUEUE_TAIL_0 => self.fsp.queue()[1],
            r::NV_PFSP_MSGQ_HEAD_0 => self.fsp.messages()[0],
            r::NV_PFSP_MSGQ_TAIL_0 => self.fsp.messages()[1],
            r::NV_PTIMER_TIME_0 => clock::now() as u32 & !0x1f,
            r::NV_PTIMER_TIME_1 => (clock::now() >> 32) as u32,
            r::NV_PGSP_MAILBOX_0 | r::NV_PGSP_MAILBOX_1 => (clock::now() / 1_000_000) as u32,
            r::NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE => {
                self.units.registers.get(register) & !INVALIDATE_TRIGGER
            }
            _ if registers::PRAMIN.contains(&register) => self
                .units
                .memory
                .read32(self.pramin(register))
                .unwrap_or(u32::MAX),
            _ => match unit_register(register) {
                UnitRegister::Interrupts(offset) => self.units.interrupts.read(offset),
                UnitRegister::Time(0) => clock::now() as u32 & !0x1f,
                UnitRegister::Time(_) => (clock::now() >> 32) as u32,
                UnitRegister::Doorbell => self.rung[0],
                UnitRegister::Other => self.units.registers.get(register),
            },
        };
        self.note(false, register, value);
        value
    }

    fn register_write(&mut self, register: u64, value: u32) {
        use registers as r;
        self.note(true, register, value);
        match register {
            r::NV_PFSP_EMEMC_0 => self.fsp.set_control(value),
            r::NV_PFSP_EMEMD_0 => self.fsp.write_data(value),
            r::NV_PFSP_QUEUE_HEAD_0 => self.fsp_message(value),
            r::NV_PFSP_QUEUE_TAIL_0 => self.fsp.set_queue_tail(value),
            r::NV_PFSP_MSGQ_HEAD_0 => self.fsp.set_message(0, value),
            r::NV_PFSP_MSGQ_TAIL_0 => self.fsp.set_message(1, value),
            r::NV_PGSP_FALCON_ENGINE => self.gsp_reset(value),
            r::NV_PGSP_FALCON_IRQSCLR => {
                let pending = self.units.registers.get(r::NV_PGSP_FALCON_IRQSTAT);
                self.units
                    .registers
                    .set(r::NV_PGSP_FALCON_IRQSTAT, pending & !value);
            }
            r::NV_PGSP_QUEUE_HEAD_0 => {
                self.units.registers.set(register, value);
                self.gsp.doorbell(&mut self.units);
            }
            _ if registers::PRAMIN.contains(&register) => {
                let place = self.pramin(register);
                if let Err(no) = self.units.memory.write32(place, value) {
                    self.units
                        .log
                        .say("pramin", format_args!("a write is lost: {no}"));
                }
            }
            _ => match unit_register(register) {
                UnitRegister::Interrupts(offset) => self.units.interrupts.write(offset, value),
                UnitRegister::Doorbell => self.doorbell(0, value),
                UnitRegister::Time(_) => {}
                UnitRegister::Other => self.units.registers.set(register, value),
            },
        }
    }

    /// A message to FSP is complete.
    fn fsp_message(&mut self, head: u32) {
        match self.fsp.set_queue_head(head, &self.units.facts.abi) {
            FspRequest::Boot(arguments) => {
                let registers = &mut self.units.registers;
                registers.set(registers::NV_PGSP_FALCON_HWCFG2, HWCFG2_RISCV);
                registers.set(registers::NV_PRISCV_RISCV_CPUCTL, CPUCTL_ACTIVE);
                registers.set(registers::NV_PGSP_FALCON_MAILBOX0, 0);
                registers.set(registers::NV_PGSP_FALCON_MAILBOX1, 0);
                // Page tables of an earlier driver lead to pages that are others' now.
                self.units.memory.video.clear();
                self.gsp.boot(&mut self.units, arguments);
            }
            FspRequest::Other(kind) => {
                self.units
                    .log
                    .say("fsp", format_args!("message of NVDM type {kind:#x}"));
            }
        }
    }

    /// GSP's core goes into reset or comes out of it.
    fn gsp_reset(&mut self, value: u32) {
        let state = if value & ENGINE_RESET != 0 {
            self.gsp.reset(&mut self.units);
            ENGINE_RESET
        } else {
            ENGINE_RESET_DEASSERTED
        };
        self.units
            .registers
            .set(registers::NV_PGSP_FALCON_ENGINE, state);
    }

    /// Somebody rings, by the window with this number.
    fn doorbell(&mut self, window: usize, token: u32) {
        self.rung[window] = token;
        let Units {
            host, memory, log, ..
        } = &mut self.units;
        let wishes = host.ring(token, memory, log);
        self.fulfil(wishes);
    }

    /// Does what channels want after they ran.
    fn fulfil(&mut self, wishes: Vec<Wish>) {
        for wish in wishes {
            for kernel in &wish.launches {
                self.launches += 1;
                if worth_a_line(self.launches) {
                    self.units
                        .log
                        .say("compute", format_args!("{kernel:x?} #{}", self.launches));
                }
            }
            if wish.faulted {
                self.stop_channel(wish.channel, MMU_FAULT);
            }
            if wish.non_stall {
                let runlist = wish.channel.runlist;
                let vectors: Vec<u32> =
                    engines::non_stall_of_runlist(&self.units.facts.engines, runlist).collect();
                for vector in vectors {
                    self.units.interrupts.raise(vector);
                }
            }
        }
    }

    /// Makes a fault happen.
    pub fn inject(&mut self, fault: Fault) {
        self.units.log.say("fault", format_args!("{fault:?}"));
        match fault {
            Fault::Xid(number, text) => {
                self.gsp.error_log(&mut self.units, number, None, &text);
                self.gsp_interrupt();
            }
            Fault::Channel(channel, number) => self.stop_channel(channel, number),
            Fault::LastChannel(number) => match self.units.host.last() {
                Some(channel) => self.stop_channel(channel, number),
                None => self.units.log.say("fault", format_args!("no channel")),
            },
            Fault::Refuse(class, status) => self.gsp.refuse(class, status),
            Fault::Slow(delay) => self.gsp.slow(delay),
            Fault::Mute => self.gsp.mute(),
            Fault::Lost => {
                self.lost = true;
                self.units.memory.machine.bus_master = false;
            }
        }
    }

    /// Stops a channel with an error, and tells the driver.
    fn stop_channel(&mut self, channel: ChannelId, number: u32) {
        let Units { host, memory, .. } = &mut self.units;
        if let Err(no) = host.fail(channel, number, memory) {
            self.units
                .log
                .say("fault", format_args!("no error notifier: {no}"));
        }
        let text = format!("Ch {:08x}", channel.number);
        self.gsp
            .error_log(&mut self.units, number, Some(channel), &text);
        self.gsp.channel_error(&mut self.units, channel, number);
        self.gsp_interrupt();
    }

    /// The firmware tells the driver that events are in the queue.
    fn gsp_interrupt(&mut self) {
        let pending = self.units.registers.get(registers::NV_PGSP_FALCON_IRQSTAT);
        self.units
            .registers
            .set(registers::NV_PGSP_FALCON_IRQSTAT, pending | SWGEN0);
        self.units.interrupts.raise(engines::GSP_VECTOR);
    }

    /// Lets time pass: kernels end, channels look at their semaphores again. Returns when to call
    /// again, if at all.
    pub fn tick(&mut self) -> Option<Duration> {
        if self.lost {
            return None;
        }
        let Units {
            host, memory, log, ..
        } = &mut self.units;
        let mut wishes = host.advance(memory, log);
        wishes.extend(host.poll(memory, log));
        self.fulfil(wishes);
        let host = &self.units.host;
        let poll = host.has_blocked().then_some(POLL);
        let quiet = host.engine.quiet(clock::now());
        poll.into_iter().chain(quiet).min()
    }

    /// The bus resets the device.
    pub fn reset(&mut self) {
        self.gsp.reset(&mut self.units);
        self.config = ConfigSpace::new(&self.units.facts.model);
        self.units.memory.machine.bus_master = self.config.bus_master();
        self.fsp = Fsp::default();
        self.units.registers = Registers::default();
        self.power_on();
    }

    /// Writes what happened in all.
    pub fn summary(&mut self) {
        let (doorbells, methods) = self.units.host.counts();
        let sent = self.units.interrupts.sent;
        let kept = self.units.memory.video.kept() / MIB;
        self.gsp.summary(&mut self.units.log);
        let words = format_args!("{doorbells} doorbells, {methods} methods, {sent} interrupts");
        self.units.log.say("gpu", words);
        self.units.log.say(
            "gpu",
            format_args!("{kept} MiB of video memory were written to"),
        );
    }

    /// The summary's lines, for whoever started the program.
    pub fn counts(&self) -> Vec<String> {
        self.gsp.counts().lines()
    }
}

/// Registers that belong to a unit, in the virtual function's part and in the page for programs.
enum UnitRegister {
    Interrupts(u64),
    Time(usize),
    Doorbell,
    Other,
}

fn unit_register(register: u64) -> UnitRegister {
    let inside = |base: u64| register.checked_sub(base);
    for page in [registers::USERMODE, registers::USERMODE_ALIAS] {
        match inside(page) {
            Some(registers::DOORBELL) => return UnitRegister::Doorbell,
            Some(offset) => {
                let time = registers::USERMODE_TIME
                    .iter()
                    .position(|time| *time == offset);
                if let Some(word) = time {
                    return UnitRegister::Time(word);
                }
            }
            None => {}
        }
    }
    match inside(registers::VIRTUAL_FUNCTION) {
        Some(offset) if Interrupts::has(offset) => UnitRegister::Interrupts(offset),
        _ if register == registers::NV_VIRTUAL_FUNCTION_PRIV_DOORBELL => UnitRegister::Doorbell,
        _ => UnitRegister::Other,
    }
}

/// Registers that the driver reads and writes all the time.
fn is_frequent(register: u64) -> bool {
    matches!(
        unit_register(register),
        UnitRegister::Interrupts(_) | UnitRegister::Time(_)
    ) || register == registers::NV_PMC_BOOT_0
        || register == registers::NV_XAL_EP_BAR0_WINDOW
}

#[cfg(test)]
mod tests;
