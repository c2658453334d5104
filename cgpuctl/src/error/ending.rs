// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How the tool ends for each kind of problem: the word for programs, the exit code for scripts.

use super::Problem;
use crate::exit::Exit;

/// Declares the word in the JSON output and the exit code of each kind of problem. The compiler
/// asks for a line for each.
macro_rules! endings {
    ($($problem:pat => $word:literal, $exit:ident;)*) => {
        impl Problem {
            /// Every word, with the exit code that goes with it.
            pub const ENDINGS: [(&str, Exit); [$($word),*].len()] = [$(($word, Exit::$exit)),*];

            /// The word in the JSON output, and how the tool exits.
            pub(super) fn ending(&self) -> (&'static str, Exit) {
                match self {
                    // It is the same to a program, wherever the rights were missing.
                    Self::Path(e) if e.is_permission() => Self::NotPermitted.ending(),
                    $($problem => ($word, Exit::$exit),)*
                }
            }
        }
    };
}

endings! {
    Self::NotLoaded => "module_not_loaded", NotLoaded;
    Self::NotPermitted => "not_permitted", NotPermitted;
    Self::NoSuchInstance { .. } => "no_such_instance", NotFound;
    Self::NoSuchGpu { .. } => "no_such_gpu", NotFound;
    Self::GpuTwice { .. } => "gpu_named_twice", Usage;
    Self::Busy { .. } => "busy", Refused;
    Self::NameTaken => "name_taken", Refused;
    Self::DriverMissing => "driver_missing", Driver;
    Self::UnknownDriver => "unknown_driver", Driver;
    Self::NoKernelInterface => "no_kernel_interface", Driver;
    Self::Mismatch { .. } => "version_mismatch", Failed;
    Self::LimitAboveGpu { .. } => "limit_above_gpu", Refused;
    Self::LimitsAboveGpu { .. } => "limits_above_gpu", Refused;
    Self::LimitZero => "limit_zero", Usage;
    Self::WeightOutOfRange => "weight_out_of_range", Usage;
    Self::ChannelsOutOfRange => "channels_out_of_range", Usage;
    Self::ChannelsAboveRunlist => "channels_above_runlist", Refused;
    Self::UnknownCapability => "unknown_capability", Usage;
    Self::Ambiguous { .. } => "ambiguous", Usage;
    Self::WhichGpu { .. } => "which_gpu", Usage;
    Self::BadName => "bad_name", Usage;
    Self::TooMany => "too_many", Refused;
    Self::WeightsAboveWhole { .. } => "weights_above_whole", Refused;
    Self::TooManyForPolicy => "too_many_for_policy", Refused;
    Self::UnknownPolicy => "unknown_policy", Failed;
    Self::Terminal { .. } => "terminal", Failed;
    Self::Unexpected { .. } => "unexpected", Failed;
    Self::Path(_) => "path", Failed;
    Self::InstancesInUse { .. } => "instances_in_use", Refused;
    Self::ProxyNodesMounted { .. } => "proxy_nodes_mounted", Refused;
    Self::Pinned { .. } => "pinned", Refused;
    Self::BadFile { .. } => "bad_file", Failed;
    Self::NotRestored { .. } => "not_restored", Failed;
    Self::NotApplied { .. } => "not_applied", Failed;
    Self::Listen { .. } => "listen", Failed;
    Self::NoInstances => "no_instances", NotFound;
    Self::NoSpec { .. } => "no_spec", NotFound;
    Self::BadSpec { .. } => "bad_spec", Failed;
    Self::Output { .. } => "output", Failed;
}
