// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Why a command failed.

#[cfg(doc)]
use super::{
    CHANNELS_MAX,
    MAX_INSTANCES_PER_GPU,
    WEIGHT_MAX, //
};

/// Declares the causes, in the order of their errnos: `Cause = errno;`.
macro_rules! causes {
    ($($(#[$about:meta])* $cause:ident = $errno:literal;)*) => {
        /// Why a command failed. Each cause has an errno of its own, which never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Cause {
            $($(#[$about])* $cause = $errno,)*
        }

        impl Cause {
            /// Every cause, in the order of its errno.
            pub const ALL: [Self; [$($errno),*].len()] = [$(Self::$cause),*];
        }
    };
}

causes! {
    /// `EPERM`: the caller lacks CAP_SYS_ADMIN in the initial user namespace.
    NotPermitted = 1;
    /// `ENOENT`: there is no such instance.
    NoSuchInstance = 2;
    /// `ENXIO`: there is no such GPU.
    NoSuchGpu = 6;
    /// `E2BIG`: the policy `fixed-equal` would have more instances than parts.
    TooManyForPolicy = 7;
    /// `EBUSY`: files of the instance are open, or its memory is not all freed.
    Busy = 16;
    /// `EEXIST`: the name is taken on this GPU.
    NameTaken = 17;
    /// `ENODEV`: the NVIDIA driver is not loaded, or does not answer.
    DriverMissing = 19;
    /// `EINVAL`: a reserved field or an unknown flag is not zero, or a record size is wrong.
    Malformed = 22;
    /// `ENOTTY`: the command is unknown.
    UnknownCommand = 25;
    /// `EFBIG`: the limit is over the GPU's whole memory.
    LimitAboveGpu = 27;
    /// `ENOSPC`: the limits would add up to more than the GPU's memory, and overcommit was not
    /// asked for.
    LimitsAboveGpu = 28;
    /// `EDOM`: a limit of zero.
    LimitZero = 33;
    /// `ERANGE`: the weight is not between 1 and [`WEIGHT_MAX`].
    WeightOutOfRange = 34;
    /// `ECHRNG`: the limit of channels is not between 1 and [`CHANNELS_MAX`].
    ChannelsOutOfRange = 44;
    /// `EXFULL`: the limits of channels would add up to more than a runlist has, and overcommit was
    /// not asked for.
    ChannelsAboveRunlist = 54;
    /// `EBADRQC`: a capability that is not known, or none.
    UnknownCapability = 56;
    /// `EOVERFLOW`: the weights would add up to more than the fixed policy can give.
    WeightsAboveWhole = 75;
    /// `ENOTUNIQ`: the name is on several GPUs and none was named.
    Ambiguous = 76;
    /// `ELIBACC`: the driver's interface for other kernel modules cannot be used; no instance is
    /// made without it.
    NoKernelInterface = 79;
    /// `EILSEQ`: the name has a byte that is not allowed, is empty or too long.
    BadName = 84;
    /// `EUSERS`: the GPU has [`MAX_INSTANCES_PER_GPU`] instances, or no node number is left.
    TooMany = 87;
    /// `EPROTONOSUPPORT`: the running NVIDIA driver's branch is not known.
    UnknownDriver = 93;
    /// `EOPNOTSUPP`: there is no such policy, period, percentage, number of instances or burst.
    UnknownPolicy = 95;
}

impl Cause {
    /// The errno, positive.
    pub const fn errno(self) -> i32 {
        // CAST: the discriminants of this repr(i32) enum are the errnos.
        self as i32
    }

    /// The cause behind a positive errno.
    pub fn from_errno(errno: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.errno() == errno)
    }
}
