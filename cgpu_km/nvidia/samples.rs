// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The driver's ring of samples. A sample names the process that was on each engine at a moment
//! (`NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2`).

pub use super::generated::kernel::sample;

use super::{
    params::gpumon,
    wire::Field, //
};

/// `NV2080_CTRL_GPUMON_SAMPLE_TYPE_PERFMON_UTIL`: samples of the processes on the engines.
pub const SAMPLE_TYPE: u8 = 2;
/// `NV2080_CTRL_PERF_GPUMON_SAMPLE_COUNT_PERFMON_UTIL`: places in the ring.
pub const SAMPLES: usize = 72;
/// `NV2080_GPUMON_PID_INVALID`: nobody was on the engine.
pub const NO_PROCESS: u32 = 0xffff_ffff;

/// A place of the ring that has a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSample {
    /// The driver's time of it.
    pub stamp: u64,
    /// The process that was on the compute engine then; `None`: nobody was.
    pub process: Option<u32>,
}

/// The layout of a branch's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleLayout {
    /// Bytes of the control's parameters.
    pub ring: usize,
    /// Bytes of a sample.
    pub sample: usize,
    /// Offset in a sample of the process that was on the compute engine.
    pub process: usize,
}

impl SampleLayout {
    /// Writes the question into the control's parameters, which have [`Self::ring`] bytes.
    pub fn ask(self, params: &mut [u8]) {
        gpumon::TYPE.set(params, SAMPLE_TYPE);
        // CAST: below 2^16.
        let bytes = (self.sample * SAMPLES) as u32;
        gpumon::BUF_SIZE.set(params, bytes);
    }

    /// The samples in the answer, in no order. Places without a sample yet are left out.
    pub fn samples(self, params: &[u8]) -> impl Iterator<Item = RingSample> + Clone + '_ {
        (0..SAMPLES).filter_map(move |index| {
            let at = gpumon::SAMPLES.checked_add(self.sample.checked_mul(index)?)?;
            let stamp = sample::TIME_STAMP
                .within(at)
                .and_then(|at| at.get(params))?;
            let process = Field::<u32>::at(self.process).within(at);
            let process = process.and_then(|at| at.get(params))?;
            (stamp != 0).then_some(RingSample {
                stamp,
                process: (process != NO_PROCESS).then_some(process),
            })
        })
    }
}
