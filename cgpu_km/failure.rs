// SPDX-License-Identifier: GPL-2.0
//! Why a command of the host's root could not be carried out.

use crate::{
    policy::sched::{
        ChangeRefused,
        Misfit, //
    },
    uapi::Cause, //
};
use kernel::{
    alloc::AllocError,
    prelude::*, //
};

/// Why something could not be done: a cause that the control device's callers know, or a failure of
/// the kernel's own.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// A cause with an errno of its own.
    Cause(Cause),
    /// Anything else.
    Kernel(Error),
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self::Cause(cause)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Kernel(error)
    }
}

impl From<ChangeRefused> for Failure {
    fn from(refused: ChangeRefused) -> Self {
        match refused {
            ChangeRefused::Misfit(Misfit::Weights) => Self::Cause(Cause::WeightsAboveWhole),
            ChangeRefused::Misfit(Misfit::Instances) => Self::Cause(Cause::TooManyForPolicy),
            ChangeRefused::Misfit(Misfit::OutOfRange) => Self::Cause(Cause::UnknownPolicy),
            ChangeRefused::NoSuchInstance => Self::Cause(Cause::NoSuchInstance),
            ChangeRefused::Exhausted => Self::Kernel(ENOMEM),
        }
    }
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Self {
        Self::Kernel(error.into())
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Cause(cause) => Error::from_errno(-cause.errno()),
            Failure::Kernel(error) => error,
        }
    }
}
