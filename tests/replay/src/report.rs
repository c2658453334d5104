// SPDX-License-Identifier: GPL-2.0
//! The report of a replay: of each call, and of all together.

use serde::{Deserialize, Serialize};

/// A difference between the recording and what was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Name of the recording, where several are replayed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<String>,
    /// Number of the call in its recording, from 0.
    pub index: usize,
    /// The call, for people.
    pub call: String,
    /// The part that differs: `ret`, `status`, `out`, `nout`, `tail` (written beyond the
    /// parameters), `result`.
    pub what: String,
    /// Offset of the first different byte of `out` and `nout`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<usize>,
    /// As recorded, after mapping.
    pub recorded: String,
    /// As seen.
    pub seen: String,
}

/// A call that the driver or the module refused for want of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Name of the recording, where several are replayed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<String>,
    /// Number of the call in its recording, from 0.
    pub index: usize,
    /// Class, like `0x40`, or `managed` for a mapping.
    pub class: String,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Status, like `0x51`, or the errno of a mapping.
    pub status: String,
}

/// The last answers to `nvidia-smi` and `cuMemGetInfo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// FB_GET_INFO index 0x08 (total memory), bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub total_bytes: Option<u64>,
    /// FB_GET_INFO index 0x09 (heap), bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub heap_bytes: Option<u64>,
    /// FB_GET_INFO index 0x16 (free), bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub free_bytes: Option<u64>,
}

impl Told {
    /// Takes over what a later answer told.
    pub fn update(&mut self, later: Self) {
        self.total_bytes = later.total_bytes.or(self.total_bytes);
        self.heap_bytes = later.heap_bytes.or(self.heap_bytes);
        self.free_bytes = later.free_bytes.or(self.free_bytes);
    }
}

/// The outcome of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// It depended on something that does not exist here.
    pub skipped: bool,
    /// Refused for want of memory.
    pub refused: Option<Refused>,
    /// Differences.
    pub mismatches: Vec<Mismatch>,
    /// RM clients that came into being: recorded handle and real one.
    pub clients: Vec<(u32, u32)>,
    /// Objects (client and handle, as recorded) that do not exist though the recording has them, or
    /// exist again.
    pub missing: Vec<((u32, u32), bool)>,
    /// An answer about memory.
    pub told: Told,
    /// Whether the call may have changed what is charged.
    pub charges: bool,
    /// The descriptor that stands for one which went into a socket.
    pub sent: Option<i32>,
}

/// The result of a replay, as it is printed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Calls of the recordings.
    pub calls: usize,
    /// Of them, answered by what the stand-in models (or by the module).
    pub modelled: usize,
    /// Of them, answered by the stand-in out of the recording.
    pub from_recording: usize,
    /// Allocations refused for want of memory, whether recorded as refused or not.
    pub refused: Vec<Refused>,
    /// Calls that were not made because they depend on something that was refused or is missing.
    pub skipped: usize,
    /// Differences.
    pub mismatches: Vec<Mismatch>,
    /// Highest charge for memory objects.
    pub peak_bytes: u64,
    /// Highest charge for contexts, beside `peak_bytes`.
    pub overhead_bytes: u64,
    /// Highest charge for managed memory, beside both.
    pub managed_bytes: u64,
    /// Most managed memory that was spilled.
    pub spilled_bytes: u64,
    /// Most that the stand-in's GPUs held: objects, contexts, managed memory with data.
    pub on_gpu_bytes: u64,
    /// The charge after the processes have exited.
    pub final_bytes: u64,
    /// The instance's limit; the GPU's memory when there is no instance.
    pub limit_bytes: u64,
    /// Lines of the kernel's log that tell of a fault in the kernel.
    pub kernel_warnings: usize,
    /// The last answers to programs about memory.
    pub told: Told,
    /// Calls that the module refused for another reason than memory, or let through unseen.
    pub refused_calls: Vec<RefusedCall>,
}

/// One kind of calls that the module refused, as the control device tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCall {
    /// NVIDIA's name; the number where it has none.
    pub call: String,
    /// Why: a number of `cgpu_uapi::refusal`.
    pub reason: u32,
    /// The capabilities of which one would allow it.
    pub allowed_by: Vec<String>,
    /// How often.
    pub count: u64,
}
