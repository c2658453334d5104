// SPDX-License-Identifier: GPL-2.0
//! Notes refused calls, so that an operator can see why a program fails: which call, how often,
//! why, and which set of capabilities would allow it.
//!
//! A tenant chooses the numbers of the calls that it makes. So there is room for a number of kinds,
//! and what comes after them is counted together; and a kind draws a line in the kernel log on its
//! first, tenth, hundredth refusal and so on, of all kinds together not more than [`BURST`] in
//! [`INTERVAL_S`] seconds.

use crate::{
    nvidia::{
        capability::Capabilities,
        escape::Escape,
        handle::{
            ClassId,
            ControlCmd, //
        },
        tables::Tables,
        title, //
    },
    policy::ids::{
        GpuId,
        ProcessId, //
    },
    store::List,
    uapi::RefusalReason, //
};
use core::fmt;

pub use crate::uapi::CallKind;

/// Most kinds of calls that are told apart.
pub const MOST_RECORDS: usize = 128;
/// Most lines in the log in [`INTERVAL_S`] seconds: the kernel's own default
/// (`DEFAULT_RATELIMIT_BURST`, linux/ratelimit_types.h).
pub const BURST: u32 = 10;
/// See [`BURST`].
pub const INTERVAL_S: u64 = 5;

/// Why a call did not reach the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No table has it.
    Unlisted,
    /// The instance has none of the sets of capabilities that allow it: these.
    Capability(Capabilities),
    /// It names a client that is not the tenant's, or another tenant's GPU or process.
    Foreign,
    /// It is kept from every container.
    Forbidden,
    /// It says something in its parameters that no container may say.
    Parameters,
    /// It did reach the driver: a control for the GPU's firmware of which nothing is known, on an
    /// object of the tenant's own.
    PassedUnseen,
}

impl Reason {
    /// The reason as the control device has it.
    pub fn word(self) -> RefusalReason {
        match self {
            Self::Unlisted => RefusalReason::Unlisted,
            Self::Capability(_) => RefusalReason::Capability,
            Self::Foreign => RefusalReason::Foreign,
            Self::Forbidden => RefusalReason::Forbidden,
            Self::Parameters => RefusalReason::Parameters,
            Self::PassedUnseen => RefusalReason::PassedUnseen,
        }
    }
}

/// A call that is taken note of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audited {
    /// The kind of its number.
    pub kind: CallKind,
    /// Its number.
    pub number: u32,
    /// Why.
    pub reason: Reason,
}

impl Audited {
    /// NVIDIA's name for the call: that of the driver's branch, where its tables have the call.
    pub fn title(&self, tables: &Tables) -> Option<&'static str> {
        match self.kind {
            CallKind::Escape => {
                let escape = u8::try_from(self.number).ok().and_then(Escape::from_nr);
                escape.map(Escape::name)
            }
            CallKind::Class => {
                let class = ClassId(self.number);
                let listed = tables.class(class).map(|entry| entry.name);
                listed.or_else(|| title::of_class(class))
            }
            CallKind::Control => {
                let cmd = ControlCmd(self.number);
                let listed = tables.control(cmd).map(|entry| entry.name);
                listed.or_else(|| title::of_control(cmd))
            }
            CallKind::Uvm => {
                let listed = tables.uvm(self.number).map(|entry| entry.name);
                listed.or_else(|| title::of_uvm(self.number))
            }
        }
    }
}

/// "control 0x20801206".
impl fmt::Display for Audited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            CallKind::Escape => "escape",
            CallKind::Class => "class",
            CallKind::Control => "control",
            CallKind::Uvm => "UVM command",
        };
        write!(f, "{kind} {:#x}", self.number)
    }
}

/// The text that follows "refused: ".
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlisted => f.write_str("not on the allowlist"),
            Self::Capability(sets) => write!(f, "takes one of the capabilities {sets}"),
            Self::Foreign => f.write_str("names what is another's"),
            Self::Forbidden => f.write_str("kept from containers"),
            Self::Parameters => f.write_str("parameters that containers may not give"),
            Self::PassedUnseen => f.write_str("not refused: to the firmware, unseen"),
        }
    }
}

/// One kind of calls, as it was noted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Which.
    pub call: Audited,
    /// The GPU that they were for; `None`: for none in particular.
    pub gpu: Option<GpuId>,
    /// How many there were.
    pub count: u64,
    /// When the last one was, in seconds since 1970.
    pub last: u64,
    /// The process that made it.
    pub process: ProcessId,
}

/// A line that the kernel log is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Calls of this kind so far.
    pub count: u64,
    /// Lines that the log should have had since the last one, but for their number.
    pub suppressed: u64,
}

/// The refused calls of one tenant.
#[derive(Debug, Default)]
pub(super) struct Audit {
    records: List<AuditRecord>,
    /// Calls beyond [`MOST_RECORDS`] kinds.
    others: u64,
    /// Since when [`Audit::lines`] is counted, in seconds.
    since: u64,
    lines: u32,
    suppressed: u64,
}

impl Audit {
    /// Takes note of a call, and tells whether the log is to have a line. If no record can be made,
    /// it counts among the others, without a line.
    pub(super) fn note(
        &mut self,
        call: &Audited,
        gpu: Option<GpuId>,
        process: ProcessId,
        now: u64,
    ) -> Option<Notice> {
        let same = |record: &&mut AuditRecord| record.call == *call && record.gpu == gpu;
        let count = match self.records.iter_mut().find(same) {
            Some(record) => {
                record.count = record.count.saturating_add(1);
                record.last = now;
                record.process = process;
                record.count
            }
            None => {
                let record = AuditRecord {
                    call: *call,
                    gpu,
                    count: 1,
                    last: now,
                    process,
                };
                if self.records.len() >= MOST_RECORDS || self.records.push(record).is_err() {
                    self.others = self.others.saturating_add(1);
                    return None;
                }
                1
            }
        };
        if !is_power_of_ten(count) {
            return None;
        }
        if now.abs_diff(self.since) >= INTERVAL_S {
            self.since = now;
            self.lines = 0;
        }
        if self.lines >= BURST {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.lines = self.lines.saturating_add(1);
        Some(Notice {
            count,
            suppressed: core::mem::take(&mut self.suppressed),
        })
    }

    /// Another instance is on this GPU from now on.
    pub(super) fn forget(&mut self, gpu: GpuId) {
        while let Some(at) = self.records.iter().position(|r| r.gpu == Some(gpu)) {
            self.records.swap_remove(at);
        }
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &AuditRecord> {
        self.records.iter()
    }

    pub(super) fn others(&self) -> u64 {
        self.others
    }
}

fn is_power_of_ten(mut number: u64) -> bool {
    while number >= 10 && number % 10 == 0 {
        number /= 10;
    }
    number == 1
}
