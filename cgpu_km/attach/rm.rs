// SPDX-License-Identifier: GPL-2.0
//! The module as a program of the driver's: a client of RM with its calls, in the task that asks.

use crate::{
    failure::Failure,
    nvidia::{
        class,
        escape::Escape,
        handle::{
            ClientHandle,
            ControlCmd, //
        },
        nvos::{
            self,
            nvos00,
            nvos33,
            nvos54,
            nvos64, //
        },
        params::nv0080,
        status::NvStatus,
        tables::Tables, //
    },
    os_interface::{
        BackingFile,
        CallRoute, //
    },
    proxy::{
        Part,
        PointerAt, //
    },
    uapi::Cause, //
};
use kernel::prelude::*;

/// The handle of a client's device. Any number but 0 and the client's will do.
pub(super) const DEVICE: u32 = 0xc690_0080;
/// [`nvos33::FLAGS`] as CUDA passes them for the shared data: for reading (`NVOS33_FLAGS_ACCESS`),
/// the caching and the address are the driver's choice.
const MAP_FLAGS: u32 = 0x0008_0001;

/// Issues an escape on a file that the module opened itself.
pub(super) fn escape(
    file: &BackingFile,
    escape: Escape,
    argument: &mut [u8],
) -> Result<(), Failure> {
    let parts = &mut [Part::argument(argument)];
    forward(file, escape, parts)
}

fn forward(file: &BackingFile, escape: Escape, parts: &mut [Part<'_>]) -> Result<(), Failure> {
    let size = parts.first().map_or(0, |part| part.bytes.len());
    let code = nvos::request_code(escape.nr(), size).ok_or(EINVAL)?;
    file.forward(code, parts, CallRoute::Caller)
        .map_err(answer)?;
    Ok(())
}

/// A pointer in the argument of a call.
fn argument(offset: usize) -> PointerAt {
    PointerAt { part: 0, offset }
}

/// A client of RM, freed when this is dropped.
pub(super) struct Rm<'a> {
    control: &'a BackingFile,
    tables: &'static Tables,
    /// Its handle.
    pub(super) client: u32,
}

impl<'a> Rm<'a> {
    /// A client with the first of these handles that nobody has.
    pub(super) fn new(
        control: &'a BackingFile,
        tables: &'static Tables,
        handles: impl Iterator<Item = ClientHandle>,
    ) -> Result<Self, Failure> {
        let mut this = Self {
            control,
            tables,
            client: 0,
        };
        for handle in handles {
            // As for a program's client, the handle stands in the place of the client.
            let (status, _) = this.alloc_in(handle.0, [0, 0], class::NV01_ROOT.0, &mut [])?;
            if status != Some(NvStatus::NV_ERR_INSERT_DUPLICATE_NAME.0) {
                check(status)?;
                this.client = handle.0;
                return Ok(this);
            }
        }
        Err(Cause::DriverMissing.into())
    }

    /// Makes an object and returns its handle. A handle of 0 is chosen by the driver.
    pub(super) fn alloc(
        &self,
        parent: u32,
        object: u32,
        class: u32,
        params: &mut [u8],
    ) -> Result<u32, Failure> {
        let (status, handle) = self.try_alloc(parent, object, class, params)?;
        check(status)?;
        Ok(handle)
    }

    /// The same; the driver's status and the handle.
    pub(super) fn try_alloc(
        &self,
        parent: u32,
        object: u32,
        class: u32,
        params: &mut [u8],
    ) -> Result<(Option<u32>, u32), Failure> {
        self.alloc_in(self.client, [parent, object], class, params)
    }

    /// The same in a client, or for a new one.
    fn alloc_in(
        &self,
        client: u32,
        [parent, object]: [u32; 2],
        class: u32,
        params: &mut [u8],
    ) -> Result<(Option<u32>, u32), Failure> {
        let mut outer = [0; nvos64::SIZE];
        nvos64::H_ROOT.set(&mut outer, client);
        nvos64::H_OBJECT_PARENT.set(&mut outer, parent);
        nvos64::H_OBJECT_NEW.set(&mut outer, object);
        nvos64::H_CLASS.set(&mut outer, class);
        let parts = &mut [
            Part::argument(&mut outer),
            Part::pointed(params, argument(nvos64::P_ALLOC_PARMS.offset())),
        ];
        forward(self.control, Escape::RmAlloc, parts)?;
        let handle = nvos64::H_OBJECT_NEW.get(&outer).unwrap_or_default();
        Ok((nvos64::STATUS.get(&outer), handle))
    }

    /// Makes a device of the GPU that `gpu` is a file of. The driver looks for such a file in the
    /// calling task's table (`nv_is_gpu_accessible()`, kernel-open/nvidia/nv.c).
    pub(super) fn device(&self, gpu: &BackingFile, instance: u32) -> Result<(), Failure> {
        let mut params = [0; nv0080::SIZE];
        nv0080::DEVICE_ID.set(&mut params, instance);
        let class = class::NV01_DEVICE_0.0;
        gpu.with_descriptor(|_| self.alloc(self.client, DEVICE, class, &mut params))??;
        Ok(())
    }

    /// Prepares `file` for a mapping of an object's first bytes, for reading.
    pub(super) fn prepare_map(
        &self,
        parent: u32,
        object: u32,
        length: u64,
        file: &BackingFile,
    ) -> Result<(), Failure> {
        let mut argument = [0; nvos33::SIZE];
        nvos33::H_CLIENT.set(&mut argument, self.client);
        nvos33::H_DEVICE.set(&mut argument, parent);
        nvos33::H_MEMORY.set(&mut argument, object);
        nvos33::LENGTH.set(&mut argument, length);
        nvos33::FLAGS.set(&mut argument, MAP_FLAGS);
        file.with_descriptor(|fd| {
            nvos33::FD.set(&mut argument, fd);
            escape(self.control, Escape::RmMapMemory, &mut argument)
        })??;
        check(nvos33::STATUS.get(&argument))
    }

    /// Room for the parameters of a control, whose size the branch decides.
    pub(super) fn params(&self, cmd: u32) -> Result<KVec<u8>, Failure> {
        let entry = self.tables.control(ControlCmd(cmd));
        let size = entry.ok_or(Cause::UnknownDriver)?.params;
        let size = usize::try_from(size).map_err(|_| EINVAL)?;
        Ok(KVec::from_elem(0, size, GFP_KERNEL)?)
    }

    /// Calls a control of an object.
    pub(super) fn control(&self, object: u32, cmd: u32, params: &mut [u8]) -> Result<(), Failure> {
        let mut outer = [0; nvos54::SIZE];
        let size = u32::try_from(params.len()).map_err(|_| EINVAL)?;
        nvos54::H_CLIENT.set(&mut outer, self.client);
        nvos54::H_OBJECT.set(&mut outer, object);
        nvos54::CMD.set(&mut outer, cmd);
        nvos54::PARAMS_SIZE.set(&mut outer, size);
        let parts = &mut [
            Part::argument(&mut outer),
            Part::pointed(params, argument(nvos54::PARAMS.offset())),
        ];
        forward(self.control, Escape::RmControl, parts)?;
        check(nvos54::STATUS.get(&outer))
    }

    /// Frees an object with all below it.
    pub(super) fn free(&self, object: u32) -> Result<(), Failure> {
        let mut argument = [0; nvos00::SIZE];
        nvos00::H_ROOT.set(&mut argument, self.client);
        nvos00::H_OBJECT_OLD.set(&mut argument, object);
        escape(self.control, Escape::RmFree, &mut argument)
    }
}

impl Drop for Rm<'_> {
    fn drop(&mut self) {
        if self.client != 0 {
            // Closing the file would free the client as well.
            let _ = self.free(self.client);
        }
    }
}

/// Whether RM did what was asked.
pub(super) fn check(status: Option<u32>) -> Result<(), Failure> {
    match status {
        Some(0) => Ok(()),
        _ => Err(Cause::DriverMissing.into()),
    }
}

/// The failure behind a call that the driver did not answer: a failure of the kernel's own, or of
/// the driver.
pub(super) fn answer(error: Error) -> Failure {
    if [ENOMEM, EINTR, ERESTARTSYS, EMFILE, ENFILE].contains(&error) {
        Failure::Kernel(error)
    } else {
        Failure::Cause(Cause::DriverMissing)
    }
}
