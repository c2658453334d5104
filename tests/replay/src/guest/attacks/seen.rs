// SPDX-License-Identifier: GPL-2.0
//! The visible state of the victim and the GPU: from below, in the stand-in's accounting, or by the
//! victim's own calls where the driver is another one.

use super::victims;
use crate::{bytes::u32_at, guest::rm, standin};

/// The timeslice of a new channel group in microseconds (kernel_fifo_gv100.c).
const NEW_TIMESLICE: &str = "1024";
/// NV0041_CTRL_CMD_GET_SURFACE_INFO, NVA06C_CTRL_CMD_GET_TIMESLICE and
/// NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN: each is answered if the object is there.
const GET_SURFACE_INFO: u32 = 0x41_0110;
const GET_TIMESLICE: u32 = 0xa06c_0104;
const GET_TOKEN: u32 = 0xc36f_0108;

/// The visible state. With another driver than the stand-in the victim is all that is seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The victim: its line of `clients`, or what its own calls are answered.
    pub(super) victim: String,
    /// All settings of the GPU.
    pub(super) settings: String,
    /// The timeslices of other programs that are not as new groups have them, in microseconds.
    pub(super) timeslices: String,
    /// Programs with kernels that cannot be taken off the GPU: their lines of `engine`.
    pub(super) waiting: String,
}

impl State {
    pub(super) fn of(victim: &rm::Client) -> Result<Self, String> {
        if standin::is_in_reach() {
            Self::from_below(victim.handle)
        } else {
            Ok(Self::through(victim))
        }
    }

    /// Through the victim's own calls: what it has, and what is in its memory.
    pub(super) fn through(victim: &rm::Client) -> Self {
        let mut info = [0; 16];
        let ask =
            |object: u32, cmd: u32, params: &mut [u8]| match victim.control(object, cmd, params) {
                Ok(()) => format!("{:#x}", u32_at(params, 0)),
                Err(failure) => failure.to_string(),
            };
        let victim = [
            ("memory", ask(victims::MEMORY, GET_SURFACE_INFO, &mut info)),
            (
                "shared memory",
                ask(victims::SHARED, GET_SURFACE_INFO, &mut info),
            ),
            ("group", ask(victims::GROUP, GET_TIMESLICE, &mut [0; 8])),
            ("channel", ask(victims::CHANNEL, GET_TOKEN, &mut [0; 4])),
        ];
        let victim = victim.map(|(name, seen)| format!("{name} {seen}"));
        Self {
            victim: victim.join(", "),
            ..Self::default()
        }
    }

    fn from_below(victim: u32) -> Result<Self, String> {
        let read = |file: &str| {
            let path = format!("{}/{file}", standin::DEBUGFS);
            std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))
        };
        let name = format!("{victim:#010x}: ");
        let clients = read("clients")?;
        let (own, others): (Vec<&str>, Vec<&str>) =
            clients.lines().partition(|line| line.starts_with(&name));
        Ok(Self {
            victim: own.first().ok_or("the victim is gone")?.to_string(),
            settings: read("settings")?,
            timeslices: others
                .iter()
                .filter_map(|line| timeslices_of(line))
                .filter(|slice| *slice != "0" && *slice != NEW_TIMESLICE)
                .collect::<Vec<_>>()
                .join(" "),
            waiting: read("engine")?
                .lines()
                .filter(|line| line.contains(": ran ") && !line.ends_with(" waits 0"))
                .collect::<Vec<_>>()
                .join("; "),
        })
    }

    /// The differences of a later state, of the victim and the GPU.
    pub(super) fn difference(&self, later: &Self) -> String {
        let mut lines = Vec::new();
        if self.victim != later.victim {
            lines.push(format!("{} became {}", self.victim, later.victim));
        }
        for (before, after) in self.settings.lines().zip(later.settings.lines()) {
            if before != after {
                lines.push(format!("{before} became {after}"));
            }
        }
        lines.join("; ")
    }
}

/// The sum of the timeslices of a client's groups, in microseconds, by its line of `clients`.
pub(super) fn timeslices_of(line: &str) -> Option<&str> {
    line.split("timeslices ").nth(1)?.split(' ').next()
}
