// SPDX-License-Identifier: GPL-2.0
//! Faults that a test asks for: what goes wrong with real GPUs, at a moment that the test chooses.
//!
//! A fault is a line of words, which `serve --control PATH` takes from connections to that socket:
//!
//! | line | what happens |
//! | --- | --- |
//! | `xid NUMBER TEXT` | the firmware logs an error that concerns no channel |
//! | `rc RUNLIST CHANNEL NUMBER` | the channel is stopped with this error, as robust channels are |
//! | `rc last NUMBER` | the same of the channel that was rung for last |
//! | `refuse CLASS STATUS` | the next allocation of this class is refused with this status |
//! | `slow MILLISECONDS` | every message is answered that much later; 0 ends it |
//! | `mute` | the firmware answers nothing any more |
//! | `lost` | the GPU has fallen off the bus: all reads are ones, all writes are lost |
//!
//! When it has happened, the answer is `done: ` and the line.

use crate::names::ChannelId;
use std::time::Duration;

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error in the driver's log (nverror.h has the numbers).
    Xid(u32, String),
    /// A channel is stopped with an error.
    Channel(ChannelId, u32),
    /// The channel that was rung for last is stopped with an error.
    LastChannel(u32),
    /// The next allocation of a class has this status.
    Refuse(u32, u32),
    /// Messages are answered later.
    Slow(Duration),
    /// Messages are not answered.
    Mute,
    /// The GPU is gone.
    Lost,
}

/// A line that is no fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFault;

fn number(word: Option<&str>) -> Result<u32, NoFault> {
    let word = word.ok_or(NoFault)?;
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| NoFault)
}

impl Fault {
    /// Reads a line.
    pub fn parse(line: &str) -> Result<Self, NoFault> {
        let mut words = line.split_whitespace();
        let fault = match words.next().ok_or(NoFault)? {
            "xid" => {
                let xid = number(words.next())?;
                return Ok(Self::Xid(xid, words.collect::<Vec<_>>().join(" ")));
            }
            "rc" => match words.next() {
                Some("last") => Self::LastChannel(number(words.next())?),
                runlist => {
                    let id = ChannelId {
                        runlist: number(runlist)?,
                        number: number(words.next())?,
                    };
                    Self::Channel(id, number(words.next())?)
                }
            },
            "refuse" => Self::Refuse(number(words.next())?, number(words.next())?),
            "slow" => Self::Slow(Duration::from_millis(number(words.next())?.into())),
            "mute" => Self::Mute,
            "lost" => Self::Lost,
            _ => return Err(NoFault),
        };
        match words.next() {
            None => Ok(fault),
            Some(_) => Err(NoFault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_faults() {
        let channel = ChannelId {
            runlist: 1,
            number: 3,
        };
        for (line, fault) in [
            (
                "xid 79 GPU has fallen",
                Fault::Xid(79, "GPU has fallen".to_string()),
            ),
            ("rc 1 3 31", Fault::Channel(channel, 31)),
            ("rc last 31", Fault::LastChannel(31)),
            ("refuse 0xc86f 0x51", Fault::Refuse(0xc86f, 0x51)),
            ("slow 20", Fault::Slow(Duration::from_millis(20))),
            (" mute ", Fault::Mute),
            ("lost", Fault::Lost),
        ] {
            assert_eq!(Fault::parse(line), Ok(fault), "{line}");
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "",
            "xid",
            "rc 1 3",
            "rc last",
            "rc",
            "refuse 0xg 1",
            "lost now",
            "explode",
        ] {
            assert_eq!(Fault::parse(line), Err(NoFault), "{line}");
        }
    }
}
