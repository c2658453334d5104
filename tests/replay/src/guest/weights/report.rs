// SPDX-License-Identifier: GPL-2.0
//! The report of a case: the shares that were wanted, and those that came out.

use std::fs;

use serde::Serialize;

use crate::{
    control::Control,
    guest::{
        suite::doorbell::proc,
        tools::{at, sys, GPU},
    },
};

/// One line of the report.
#[derive(Debug, Serialize)]
pub(super) struct ShareLine {
    pub(super) case: String,
    /// Shares that were wanted, and that came out, of what the programs had together; a cap: of
    /// what the program has alone.
    pub(super) wanted: Vec<f64>,
    pub(super) got: Vec<f64>,
    /// The worst error, as a fraction of the share that was wanted.
    pub(super) error: f64,
    pub(super) bound: f64,
    /// All together, as a fraction of one alone.
    pub(super) throughput: f64,
    pub(super) calls_per_second: f64,
    /// How the GPU was shared at the end.
    pub(super) mode: String,
}

/// How the GPU is shared now.
pub(super) fn mode() -> Result<String, String> {
    let text = at("status", fs::read_to_string(proc("status")))?;
    let mode = text.lines().find_map(|line| line.strip_prefix("mode: "));
    Ok(mode.ok_or("no mode in the GPU's status")?.to_owned())
}

/// A line of shares `of_alone`, each of what its program has alone.
pub(super) fn line(
    case: String,
    wanted: Vec<f64>,
    of_alone: Vec<f64>,
    bound: f64,
    calls_per_second: f64,
    mode: String,
) -> ShareLine {
    let throughput: f64 = of_alone.iter().sum();
    let got: Vec<f64> = match of_alone.len() {
        1 => of_alone,
        _ => of_alone.iter().map(|got| got / throughput).collect(),
    };
    // Of a share of nothing, all is too much.
    let error = |(got, wanted): (&f64, &f64)| (got - wanted).abs() / wanted.max(1e-6);
    let error = got.iter().zip(&wanted).map(error).fold(0.0, f64::max);
    ShareLine {
        case,
        wanted,
        got: got.into_iter().map(rounded).collect(),
        error: rounded(error),
        bound,
        throughput: rounded(throughput),
        calls_per_second: rounded(calls_per_second),
        mode,
    }
}

/// Calls into the driver that the scheduler made so far.
pub(super) fn calls() -> Result<u64, String> {
    let gpu = Control::open().and_then(|c| c.gpu_compute(GPU));
    Ok(sys("compute", gpu)?.calls)
}

/// A figure with four digits behind the point.
pub(super) fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}
