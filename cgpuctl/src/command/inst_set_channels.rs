// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-channels`.

use super::{
    inst_create::flags,
    setting::{Before, Setting, Undo},
};
use crate::{args::channels, control::Control};
use cgpu_uapi::InstanceSetChannels;
use clap::Args;
use nix::errno::Errno;
use zerocopy::FromZeros;

/// Change how many channels an instance may have on a runlist of its GPU, also while programs run.
///
/// A CUDA program has 8 channels on the runlist of compute and 4 on each of three others. Without
/// this an instance may have its part of the 2,044 of a runlist, by `gpu set
/// --max-instances`: 127 of 16.
#[derive(Args)]
pub(crate) struct InstSetChannels {
    /// New limit, of channels and of groups of channels each.
    #[arg(value_name = "1-2044", value_parser = channels())]
    pub(super) channels: u32,
    /// Let the limits on a GPU add up to more than a runlist has.
    #[arg(long)]
    pub(super) overcommit: bool,
}

impl Setting for InstSetChannels {
    const ATTEMPT: &'static str = "set the channels of";
    const KEY: &'static str = "channel_limit";
    const LABEL: &'static str = "channels ";
    type Value = u32;

    fn value(&self, _: &Before) -> u32 {
        self.channels
    }

    fn before(&self, was: &Before) -> u32 {
        was.instance.channel_limit
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        let mut request = InstanceSetChannels::new_zeroed();
        request.key = was.key();
        request.channel_limit = self.channels;
        request.flags = flags(self.overcommit);
        control.set_channels(&request)
    }
}

impl Undo for InstSetChannels {
    fn former(&self, was: &Before) -> Self {
        Self {
            channels: self.before(was),
            // They were granted before.
            overcommit: true,
        }
    }
}
