// SPDX-License-Identifier: GPL-2.0
//! The compute engine's methods (class cbc0, `NVCBC0_*`), as far as a launch's completion.
//!
//! A kernel itself does not run: there are no multiprocessors, but for [`crate::kernels`]. A launch
//! names a QMD, a block of memory that says what runs ([`crate::qmd`]). A [`Kernel`] ends at once,
//! or after the time that [`crate::engine`] gives it.

use crate::{
    clock,
    host::semaphore::{Deferred, Reduction, Semaphore, SemaphoreAction},
    kernels::{self, Parameters, Work},
    memory::Memory,
    mmu::{AddressSpace, MmuFault},
    qmd::{Qmd, QMD_BYTES},
};

/// Addresses of the methods that are looked at.
mod method {
    pub(super) const REPORT_PAYLOAD_LOWER: u16 = 0x158;
    pub(super) const REPORT_PAYLOAD_UPPER: u16 = 0x15c;
    pub(super) const REPORT_ADDRESS_LOWER: u16 = 0x160;
    pub(super) const REPORT_ADDRESS_UPPER: u16 = 0x164;
    pub(super) const REPORT_SEMAPHORE_EXECUTE: u16 = 0x168;
    pub(super) const LINE_LENGTH_IN: u16 = 0x180;
    pub(super) const LINE_COUNT: u16 = 0x184;
    pub(super) const OFFSET_OUT_UPPER: u16 = 0x188;
    pub(super) const OFFSET_OUT: u16 = 0x18c;
    pub(super) const PITCH_OUT: u16 = 0x190;
    pub(super) const LAUNCH_DMA: u16 = 0x1b0;
    pub(super) const LOAD_INLINE_DATA: u16 = 0x1b4;
    pub(super) const SET_I2M_SEMAPHORE_A: u16 = 0x1dc;
    pub(super) const SET_I2M_SEMAPHORE_B: u16 = 0x1e0;
    pub(super) const SET_I2M_SEMAPHORE_C: u16 = 0x1e4;
    pub(super) const SEND_PCAS_A: u16 = 0x2b4;
    pub(super) const SEND_SIGNALING_PCAS_B: u16 = 0x2bc;
    pub(super) const SEND_SIGNALING_PCAS2_B: u16 = 0x2c0;
    pub(super) const SET_INLINE_QMD_ADDRESS_A: u16 = 0x318;
    pub(super) const SET_INLINE_QMD_ADDRESS_B: u16 = 0x31c;
    pub(super) const LOAD_INLINE_QMD_DATA: u16 = 0x320;
    pub(super) const LOAD_INLINE_QMD_END: u16 = LOAD_INLINE_QMD_DATA + super::QMD_BYTES as u16;
    pub(super) const SET_REPORT_SEMAPHORE_A: u16 = 0x1b00;
    pub(super) const SET_REPORT_SEMAPHORE_D: u16 = 0x1b0c;
}

/// `SEND_SIGNALING_PCAS_B_SCHEDULE`.
const SCHEDULE: u32 = 1 << 1;
/// Values of `SEND_SIGNALING_PCAS2_B_PCAS_ACTION` that launch the QMD.
const SCHEDULING_ACTIONS: [u32; 5] = [2, 3, 9, 10, 11];
/// `LAUNCH_DMA_COMPLETION_TYPE_RELEASE_SEMAPHORE`.
const RELEASE_SEMAPHORE: u32 = 2;

/// A launched kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Virtual address of its QMD.
    pub address: u64,
    /// Its description.
    pub qmd: Qmd,
    /// A hash of its program's code.
    pub program: u64,
    /// Its first parameters, for the log.
    pub parameters: Parameters,
    /// The channel's address space.
    pub space: AddressSpace,
}

impl Kernel {
    /// Reads the QMD at an address.
    fn read(memory: &mut Memory, space: AddressSpace, address: u64) -> Result<Self, MmuFault> {
        let mut bytes = [0; QMD_BYTES];
        space.read(memory, address, &mut bytes)?;
        let qmd = Qmd::of(&bytes);
        let program = kernels::hash_of(memory, space, qmd.program)?;
        let parameters = kernels::parameters(memory, space, &qmd)?;
        Ok(Self {
            address,
            qmd,
            program,
            parameters,
            space,
        })
    }

    /// The kernel has ended: its work is done if it is one that is known, and its semaphores are
    /// released. The time is in nanoseconds.
    pub fn complete(&self, memory: &mut Memory, now: u64) -> Result<(), MmuFault> {
        if let Some(work) = Work::of(self.program, &self.parameters, &self.qmd) {
            work.run(memory, self.space)?;
        }
        for release in &self.qmd.releases {
            release.execute(memory, self.space, now)?;
        }
        Ok(())
    }
}

/// Data that goes into memory from the push buffer itself (I2M).
#[derive(Debug)]
struct InlineTransfer {
    /// Lines' length in bytes, their number, and the distance from one to the next.
    length: u64,
    lines: u64,
    pitch: u64,
    /// Address of the first line.
    to: u64,
    /// Bytes that have come.
    done: u64,
    flags: u32,
}

/// The engine's memory of a channel between methods.
#[derive(Debug, Default)]
pub struct ComputeState {
    inline: Option<InlineTransfer>,
}

/// One method's surroundings.
pub struct Surroundings<'a> {
    /// Both memories.
    pub memory: &'a mut Memory,
    /// The channel's address space.
    pub space: AddressSpace,
    /// The value of another method, zero if it was not set.
    pub get: &'a dyn Fn(u16) -> u32,
    /// Acts after the kernel that is under way, if there is one.
    pub deferred: Option<&'a mut Vec<Deferred>>,
}

impl Surroundings<'_> {
    fn wide(&self, upper: u16, lower: u16) -> u64 {
        u64::from((self.get)(upper)) << 32 | u64::from((self.get)(lower))
    }

    fn release(&mut self, semaphore: Semaphore) -> Result<(), MmuFault> {
        if let Some(deferred) = &mut self.deferred {
            deferred.push(Deferred::Semaphore(semaphore));
            return Ok(());
        }
        semaphore
            .execute(self.memory, self.space, clock::now())
            .map(|_| ())
    }
}

impl ComputeState {
    /// Takes a method whose value is already among those that `get` knows. Returns a kernel if the
    /// method launches one.
    pub fn method(
        &mut self,
        at: &mut Surroundings<'_>,
        address: u16,
        value: u32,
    ) -> Result<Option<Kernel>, MmuFault> {
        match address {
            method::REPORT_SEMAPHORE_EXECUTE => report(at, value)?,
            method::SET_REPORT_SEMAPHORE_D => old_report(at, value)?,
            method::LAUNCH_DMA => {
                self.inline = Some(InlineTransfer {
                    length: u64::from((at.get)(method::LINE_LENGTH_IN)),
                    lines: u64::from((at.get)(method::LINE_COUNT)),
                    pitch: u64::from((at.get)(method::PITCH_OUT)),
                    to: at.wide(method::OFFSET_OUT_UPPER, method::OFFSET_OUT),
                    done: 0,
                    flags: value,
                });
            }
            method::LOAD_INLINE_DATA => self.load(at, value)?,
            method::LOAD_INLINE_QMD_DATA..method::LOAD_INLINE_QMD_END => {
                let inside = u64::from(address - method::LOAD_INLINE_QMD_DATA);
                let [upper, lower] = [
                    method::SET_INLINE_QMD_ADDRESS_A,
                    method::SET_INLINE_QMD_ADDRESS_B,
                ];
                let upper = u64::from((at.get)(upper) & 0x1ff) << 32;
                let to = (upper | u64::from((at.get)(lower))) << 8;
                at.space
                    .write(at.memory, to + inside, &value.to_le_bytes())?;
            }
            method::SEND_SIGNALING_PCAS_B if value & SCHEDULE != 0 => return self.launch(at),
            method::SEND_SIGNALING_PCAS2_B if SCHEDULING_ACTIONS.contains(&(value & 0xf)) => {
                return self.launch(at);
            }
            _ => {}
        }
        Ok(None)
    }

    fn launch(&self, at: &mut Surroundings<'_>) -> Result<Option<Kernel>, MmuFault> {
        let address = u64::from((at.get)(method::SEND_PCAS_A)) << 8;
        Kernel::read(at.memory, at.space, address).map(Some)
    }

    /// Takes a word of inline data. Its last line's end may leave some of the word over.
    fn load(&mut self, at: &mut Surroundings<'_>, value: u32) -> Result<(), MmuFault> {
        let Some(transfer) = &mut self.inline else {
            return Ok(());
        };
        for byte in value.to_le_bytes() {
            if transfer.done >= transfer.length * transfer.lines {
                break;
            }
            let (line, inside) = (
                transfer.done / transfer.length,
                transfer.done % transfer.length,
            );
            let to = transfer.to + line * transfer.pitch + inside;
            at.space.write(at.memory, to, &[byte])?;
            transfer.done += 1;
        }
        if transfer.done < transfer.length * transfer.lines {
            return Ok(());
        }
        let flags = transfer.flags;
        self.inline = None;
        if flags >> 4 & 3 != RELEASE_SEMAPHORE {
            return Ok(());
        }
        at.release(Semaphore {
            address: at.wide(method::SET_I2M_SEMAPHORE_A, method::SET_I2M_SEMAPHORE_B),
            payload: u64::from((at.get)(method::SET_I2M_SEMAPHORE_C)),
            bytes: 4,
            action: SemaphoreAction::Release {
                timestamp: flags >> 12 & 1 == 0,
            },
        })
    }
}

/// `REPORT_SEMAPHORE_EXECUTE`: a release or a reduction, with a payload of 32 or 64 bits.
fn report(at: &mut Surroundings<'_>, value: u32) -> Result<(), MmuFault> {
    if value & 3 != 0 {
        return Ok(());
    }
    let wide = value >> 12 & 1 != 0;
    let upper = if wide {
        (at.get)(method::REPORT_PAYLOAD_UPPER)
    } else {
        0
    };
    let action = if value >> 6 & 1 != 0 {
        let signed = value >> 10 & 3 != 0;
        SemaphoreAction::Reduce(Reduction::of_report(value >> 7 & 7, signed))
    } else {
        SemaphoreAction::Release {
            timestamp: value >> 3 & 3 == 0,
        }
    };
    at.release(Semaphore {
        address: at.wide(method::REPORT_ADDRESS_UPPER, method::REPORT_ADDRESS_LOWER),
        payload: u64::from(upper) << 32 | u64::from((at.get)(method::REPORT_PAYLOAD_LOWER)),
        bytes: if wide { 8 } else { 4 },
        action,
    })
}

/// The semaphore of `SET_REPORT_SEMAPHORE_A` to `_D`.
fn old_report(at: &mut Surroundings<'_>, value: u32) -> Result<(), MmuFault> {
    let first = method::SET_REPORT_SEMAPHORE_A;
    at.release(Semaphore {
        address: at.wide(first, first + 4),
        payload: u64::from((at.get)(first + 8)),
        bytes: 4,
        action: SemaphoreAction::Release {
            timestamp: value >> 28 & 1 == 0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmu::tests::Tables;
    use std::collections::HashMap;

    struct MethodBench {
        memory: Memory,
        space: AddressSpace,
        state: ComputeState,
        values: HashMap<u16, u32>,
    }

    impl MethodBench {
        fn new() -> Self {
            let mut memory = Memory::new(1 << 30);
            let mut tables = Tables::new(1 << 20);
            tables.map(&mut memory, 0, 21, 0x1000_0000);
            let space = AddressSpace { root: tables.root };
            Self {
                memory,
                space,
                state: ComputeState::default(),
                values: HashMap::new(),
            }
        }

        fn method(&mut self, address: u16, value: u32) -> Option<Kernel> {
            self.values.insert(address, value);
            let values = &self.values;
            let get = |address: u16| values.get(&address).copied().unwrap_or(0);
            let (memory, space) = (&mut self.memory, self.space);
            let mut at = Surroundings {
                memory,
                space,
                get: &get,
                deferred: None,
            };
            self.state
                .method(&mut at, address, value)
                .expect("is mapped")
        }

        fn bytes(&mut self, at: u64, length: usize) -> Vec<u8> {
            let mut bytes = vec![0; length];
            self.space
                .read(&mut self.memory, at, &mut bytes)
                .expect("is mapped");
            bytes
        }
    }

    #[test]
    fn inline_data_goes_to_memory_and_releases() {
        let mut bench = MethodBench::new();
        for (address, value) in [
            (method::LINE_LENGTH_IN, 6),
            (method::LINE_COUNT, 1),
            (method::OFFSET_OUT, 0x1000),
            (method::SET_I2M_SEMAPHORE_B, 0x2000),
            (method::SET_I2M_SEMAPHORE_C, 9),
            (method::LAUNCH_DMA, 1 | RELEASE_SEMAPHORE << 4 | 1 << 12),
            (method::LOAD_INLINE_DATA, 0x0403_0201),
        ] {
            bench.method(address, value);
        }
        assert_eq!(bench.bytes(0x2000, 4), [0; 4]);
        bench.method(method::LOAD_INLINE_DATA, 0xffff_0605);
        assert_eq!(bench.bytes(0x1000, 8), [1, 2, 3, 4, 5, 6, 0, 0]);
        assert_eq!(bench.bytes(0x2000, 4), [9, 0, 0, 0]);
    }

    #[test]
    fn launch_reads_the_qmd_and_completion_releases() {
        let mut bench = MethodBench::new();
        let bytes = crate::qmd::tests::version_4(0x3000, 0x55);
        bench
            .space
            .write(&mut bench.memory, 0x1_0000, &bytes)
            .expect("is mapped");
        assert_eq!(bench.method(method::SEND_PCAS_A, 0x100), None);
        let kernel = bench
            .method(method::SEND_SIGNALING_PCAS2_B, 9)
            .expect("is a launch");
        assert_eq!(kernel.address, 0x1_0000);
        kernel.complete(&mut bench.memory, 7).expect("is mapped");
        assert_eq!(bench.bytes(0x3000, 4), [0x55, 0, 0, 0]);
    }

    #[test]
    fn report_writes_payload_and_time() {
        let mut bench = MethodBench::new();
        bench.method(method::REPORT_ADDRESS_LOWER, 0x4000);
        bench.method(method::REPORT_PAYLOAD_LOWER, 3);
        bench.method(method::REPORT_SEMAPHORE_EXECUTE, 0);
        assert_eq!(bench.bytes(0x4000, 4), [3, 0, 0, 0]);
        assert_ne!(bench.bytes(0x4008, 8), [0; 8]);
    }
}
