// SPDX-License-Identifier: GPL-2.0
//! The instance and the recording that this process was started with.

use std::sync::OnceLock;

use cgpu_gpu::{record::Recorder, state::State, times::Times};
use cgpu_km::nvidia::{tables::Tables, version::Branch};

/// The instance and the recording that this process was started with.
pub(crate) struct Setting {
    pub(crate) state: Option<&'static State>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) times: Option<Times>,
}

pub(crate) static SETTING: OnceLock<Setting> = OnceLock::new();
/// The setting, which the first call makes out of the environment.
pub(crate) fn setting() -> &'static Setting {
    SETTING.get_or_init(|| {
        let state = State::join().unwrap_or_else(|e| fail("the instance", &e));
        if let Some(state) = state {
            // This may be another program in the process of a former one, all of whose files of the
            // driver are closed on that (the driver's programs open them so).
            state.leave_all();
        }
        let tables = state.map(State::tables);
        let tables = tables.or_else(|| Tables::of(Branch::R580));
        let recorder = tables.and_then(|tables| {
            Recorder::begin(tables).unwrap_or_else(|e| fail("the recording", &e))
        });
        Setting {
            state,
            recorder,
            times: Times::begin(),
        }
    })
}

/// A program that was to run in an instance, or to be recorded, must not run without.
pub(crate) fn fail(what: &str, error: &std::io::Error) -> ! {
    eprintln!("cgpu-gpu: {what} cannot be had: {error}");
    std::process::abort()
}
