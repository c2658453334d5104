// SPDX-License-Identifier: GPL-2.0
//! Calls that end before the driver is reached: why, and the one place that says so.

use super::call::{
    Call,
    Errno,
    Session, //
};
use crate::{
    nvidia::{
        status::NvStatus,
        wire::{
            Field,
            Wire, //
        }, //
    },
    policy::{
        Audited,
        CallKind,
        GpuId,
        Reason,
        RefusalCause, //
    },
    store::Exhausted, //
};

/// Why a call ends before the driver is reached. `?` carries it to [`Asked::end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    told: Ending,
    /// Why the call is noted; `None` if the driver would refuse it just so.
    reason: Option<Reason>,
}

/// How a call ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The `ioctl` itself fails.
    Errno(Errno),
    /// The `ioctl` returns 0, and the status field of its argument has this.
    Status(NvStatus),
}

impl Stop {
    /// The driver's status, which it would give as well: nothing to note.
    pub(super) const fn status(status: NvStatus) -> Self {
        Self {
            told: Ending::Status(status),
            reason: None,
        }
    }

    /// The driver's status, and a reason to note.
    pub(super) const fn refused(status: NvStatus, reason: Reason) -> Self {
        Self {
            told: Ending::Status(status),
            reason: Some(reason),
        }
    }

    /// An errno, as the driver gives it to requests that it does not know, and a reason to note.
    pub(super) const fn unknown(errno: Errno, reason: Reason) -> Self {
        Self {
            told: Ending::Errno(errno),
            reason: Some(reason),
        }
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self {
            told: Ending::Errno(errno),
            reason: None,
        }
    }
}

impl From<Exhausted> for Stop {
    fn from(exhausted: Exhausted) -> Self {
        Errno::from(exhausted).into()
    }
}

impl From<RefusalCause> for Stop {
    fn from(refusal: RefusalCause) -> Self {
        Self {
            told: Ending::Status(refusal.status()),
            reason: refusal.reason(),
        }
    }
}

/// A call under way: its file, its request code, and the name under which it would be noted.
pub(super) struct Asked<'a> {
    /// The file that it came through.
    pub(super) session: &'a Session,
    /// The request code under which the driver gets it.
    pub(super) code: u32,
    kind: CallKind,
    number: u32,
    gpu: Option<GpuId>,
}

impl<'a> Asked<'a> {
    /// A call through `session`, noted as an escape or a request of UVM until more is known.
    pub(super) fn new(session: &'a Session, code: u32, kind: CallKind, number: u32) -> Self {
        Self {
            session,
            code,
            kind,
            number,
            gpu: session.gpu(),
        }
    }

    /// The GPU under which the call would be noted.
    pub(super) fn gpu(&self) -> Option<GpuId> {
        self.gpu
    }

    /// From now on the call is noted as this one, on this GPU if one is known.
    pub(super) fn name(&mut self, kind: CallKind, number: u32, gpu: Option<GpuId>) {
        (self.kind, self.number) = (kind, number);
        self.gpu = gpu.or(self.gpu);
    }

    /// Notes the call.
    pub(super) fn note(&self, call: &mut impl Call, reason: Reason) {
        let noted = Audited {
            kind: self.kind,
            number: self.number,
            reason,
        };
        call.audit(&noted, self.gpu);
    }

    /// Ends the call: tells that the driver has refused it, or notes a refusal of ours if it has a
    /// reason, and writes its status to `argument`, in which the status stands at `status`. Returns
    /// what the `ioctl` returns.
    pub(super) fn end(
        &self,
        call: &mut impl Call,
        ended: Result<i32, Stop>,
        argument: &mut [u8],
        status: Option<Field<u32>>,
    ) -> Result<i32, Errno> {
        let told = status.and_then(|status| status.get(argument));
        let is_refused = told.is_some_and(|told| NvStatus(told).is_error());
        let stop = match ended {
            Ok(returned) => {
                if returned != 0 || is_refused {
                    call.refused_by_driver();
                }
                return Ok(returned);
            }
            Err(stop) => stop,
        };
        // The driver's answer has no place to go: the program named one that it cannot write to.
        if is_refused && matches!(stop.told, Ending::Errno(_)) {
            call.refused_by_driver();
        }
        if let Some(reason) = stop.reason {
            self.note(call, reason);
        }
        match (stop.told, status) {
            (Ending::Errno(errno), _) => Err(errno),
            (Ending::Status(told), Some(status)) => set(status, argument, told.0).map(|()| 0),
            // An escape without a status fails as a whole.
            (Ending::Status(_), None) => Err(Errno::EINVAL),
        }
    }
}

/// Reads a field of a struct whose size the tables have checked.
pub(super) fn get<T: Wire>(field: Field<T>, bytes: &[u8]) -> Result<T, Errno> {
    field.get(bytes).ok_or(Errno::EINVAL)
}

/// Writes a field of a struct whose size the tables have checked.
pub(super) fn set<T: Wire>(field: Field<T>, bytes: &mut [u8], value: T) -> Result<(), Errno> {
    field.set(bytes, value).ok_or(Errno::EINVAL)
}
