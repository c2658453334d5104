// SPDX-License-Identifier: GPL-2.0
//! Why a command of the host's root could not be carried out.

use crate::{
    policy::sched::{Misfit, Refused},
    uapi::Cause,
};
use kernel::{alloc::AllocError, prelude::*};

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

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Misfit(Misfit::Weights) => Self::Cause(Cause::WeightsAboveWhole),
            Refused::Misfit(Misfit::Instances) => Self::Cause(Cause::TooManyForPolicy),
            Refused::NoSuchInstance => Self::Cause(Cause::NoSuchInstance),
            Refused::Exhausted => Self::Kernel(ENOMEM),
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
