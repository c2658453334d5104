// SPDX-License-Identifier: GPL-2.0
//! The controls that put objects behind a descriptor, or take them from there: how CUDA shares
//! memory that it maps itself (`cuMemExportToShareableHandle()`).
//!
//! The descriptor is a number in the parameters. The driver finds out what it stands for after the
//! module has looked, and another thread can give the number another file in between. So the module
//! holds the file first, decides on that, and has the driver asked by a task whose descriptor table
//! the program cannot change ([`Call::forward_holding`]).
//!
//! Memory behind a dma-buf is another matter: see [`dma_buf`].
//!
//! The file must be the tenant's own control file. Another tenant's file, come over a socket, is as
//! good as none: what is behind it is charged to the other tenant.

use super::{
    call::{
        Call,
        Errno,
        Held,
        Returned,
        Role, //
    },
    part::{
        FileAt,
        Part,
        CONTROL_PARAMS, //
    },
    sent::DriverReply,
    stop::{
        get,
        Asked,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        class::Kind,
        control::Exported,
        handle::{
            ClientHandle,
            ObjectHandle, //
        },
        nvos::nvos54,
        params::{
            self,
            export_info,
            export_object,
            export_objects,
            export_places,
            import_object,
            import_objects, //
        },
        status::NvStatus,
        wire::{
            Field,
            Items, //
        }, //
    },
    policy::{
        DescriptorPlaces,
        Reason, //
    },
    store::List, //
};

/// The layout of one of these controls, which exports, imports or asks.
struct DescriptorRequest {
    file: Field<i32>,
    /// The handles: one field, or an array with their number and the place of the first.
    objects: Objects,
    way: Way,
}

enum Objects {
    None,
    One(Field<u32>),
    Many {
        handles: Items<u32>,
        count: Field<u16>,
        first: Field<u16>,
    },
}

enum Way {
    /// Into the file, with the device that the file is for, and how many places the driver makes
    /// for it, if it has none yet; `None`: one.
    In(Field<u32>, Option<Field<u16>>),
    /// Out of it, below this parent; and the place of each object's type.
    Out(Field<u32>, Option<Items<u8>>),
    /// Neither.
    Ask,
}

impl DescriptorRequest {
    fn of(exported: Exported) -> Self {
        match exported {
            Exported::Create => Self {
                file: export_places::FD,
                objects: Objects::None,
                way: Way::In(export_places::H_DEVICE, Some(export_places::MAX_OBJECTS)),
            },
            Exported::Put => Self {
                file: export_object::FD,
                objects: Objects::One(export_object::H_OBJECT),
                way: Way::In(export_object::H_DEVICE, None),
            },
            Exported::PutMany => Self {
                file: export_objects::FD,
                objects: Objects::Many {
                    handles: export_objects::OBJECTS,
                    count: export_objects::NUM_OBJECTS,
                    first: export_objects::INDEX,
                },
                way: Way::In(export_objects::H_DEVICE, Some(export_objects::MAX_OBJECTS)),
            },
            Exported::Take => Self {
                file: import_object::FD,
                objects: Objects::One(import_object::H_OBJECT),
                way: Way::Out(import_object::H_PARENT, None),
            },
            Exported::TakeMany => Self {
                file: import_objects::FD,
                objects: Objects::Many {
                    handles: import_objects::OBJECTS,
                    count: import_objects::NUM_OBJECTS,
                    first: import_objects::INDEX,
                },
                way: Way::Out(import_objects::H_PARENT, Some(import_objects::OBJECT_TYPES)),
            },
            Exported::Ask => Self {
                file: export_info::FD,
                objects: Objects::None,
                way: Way::Ask,
            },
        }
    }

    /// The number of places that it is about, and the first.
    fn places(&self, bytes: &[u8]) -> Result<(usize, u16), Errno> {
        Ok(match &self.objects {
            Objects::None => (0, 0),
            Objects::One(_) => (1, 0),
            Objects::Many { count, first, .. } => {
                (usize::from(get(*count, bytes)?), get(*first, bytes)?)
            }
        })
    }

    /// How many places the driver makes for the file, if it has none yet.
    fn new_places(&self, bytes: &[u8]) -> Result<u16, Errno> {
        match self.way {
            Way::In(_, Some(places)) => get(places, bytes),
            Way::In(_, None) => Ok(1),
            Way::Out(..) | Way::Ask => Ok(0),
        }
    }

    /// The field with the handle of one of the places.
    fn handle(&self, number: usize) -> Option<Field<u32>> {
        match &self.objects {
            Objects::None => None,
            Objects::One(handle) => (number == 0).then_some(*handle),
            Objects::Many { handles, .. } => handles.item(number),
        }
    }

    /// Refuses what the driver refuses without looking behind the descriptor: the checks of
    /// `cliresCtrlCmdOsUnix*_IMPL()` in src/nvidia/arch/nvalloc/unix/src/os.c. The driver would
    /// keep places for it, which stay charged until the file is closed.
    fn check(
        &self,
        call: &mut impl Call,
        exported: Exported,
        client: ClientHandle,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        let invalid = Err(Stop::status(NvStatus::NV_ERR_INVALID_PARAMETER));
        let is_plain = match exported {
            Exported::Put => {
                get(export_object::TYPE, bytes)? == params::EXPORT_TYPE_RM
                    && get(export_object::FLAGS, bytes)? & params::EXPORT_FLAG_EMPTY == 0
            }
            Exported::Take => get(import_object::TYPE, bytes)? == params::EXPORT_TYPE_RM,
            Exported::Create | Exported::PutMany | Exported::TakeMany | Exported::Ask => true,
        };
        let most = match &self.objects {
            Objects::Many { handles, .. } => handles.count(),
            Objects::None | Objects::One(_) => 1,
        };
        if !is_plain || self.places(bytes)?.0 > most {
            return invalid;
        }
        let Way::In(device, _) = &self.way else {
            return Ok(());
        };
        let device = ObjectHandle(get(*device, bytes)?);
        if device.0 == 0 {
            return Ok(());
        }
        match call.look(|accounting| accounting.kind_of(client, device)) {
            Some(Kind::Device) => Ok(()),
            Some(_) => invalid,
            None => Err(Stop::status(NvStatus::NV_ERR_OBJECT_NOT_FOUND)),
        }
    }
}

/// Runs one of these controls, of which `outer` and `bytes` are the outer struct and the
/// parameters.
pub(super) fn control(
    call: &mut impl Call,
    asked: &Asked<'_>,
    exported: Exported,
    client: ClientHandle,
    (outer, bytes): (&mut [u8], &mut [u8]),
) -> Result<i32, Stop> {
    let request = DescriptorRequest::of(exported);
    request.check(call, exported, client, bytes)?;
    let file = call.hold(get(request.file, bytes)?);
    let Some(file) = file.filter(|file| file.session().role == Role::Control) else {
        // As for a descriptor that is none of the driver's.
        return Err(Stop::refused(
            NvStatus::NV_ERR_INVALID_PARAMETER,
            Reason::Foreign,
        ));
    };
    let (count, first) = request.places(bytes)?;
    let mut handles = List::new();
    handles.reserve(count)?;
    for field in (0..count).filter_map(|number| request.handle(number)) {
        handles.push(ObjectHandle(get(field, bytes)?))?;
    }
    let places = DescriptorPlaces {
        file: file.session().file,
        first,
        client,
        objects: &handles,
        made: request.new_places(bytes)?,
    };
    let mut driver = ReadyCall {
        code: asked.code,
        outer,
        bytes,
        file: &file,
        at: request.file.offset(),
    };
    match &request.way {
        Way::Ask => Ok(driver.ask(call)?),
        Way::In(..) => {
            let ticket = call.accounting(|accounting| accounting.begin_export(&places))?;
            let returned = driver.ask(call);
            call.accounting(|accounting| accounting.end_export(ticket, returned.is_ok()));
            Ok(returned?)
        }
        Way::Out(parent, types) => {
            let parent = ObjectHandle(get(*parent, driver.bytes)?);
            import(call, &mut driver, &request, &places, parent, *types)
        }
    }
}

/// A call that is ready for the driver.
struct ReadyCall<'a, H> {
    code: u32,
    outer: &'a mut [u8],
    bytes: &'a mut [u8],
    file: &'a H,
    /// Offset of the descriptor's number in `bytes`.
    at: usize,
}

impl<H: Held> ReadyCall<'_, H> {
    fn ask(&mut self, call: &mut impl Call<Held = H>) -> Returned {
        let file = FileAt {
            file: self.file,
            part: 1,
            offset: self.at,
        };
        let mut parts = [
            Part::argument(self.outer),
            Part::pointed(self.bytes, CONTROL_PARAMS),
        ];
        call.forward_holding(self.code, &mut parts, file)
    }
}

/// Takes objects out of a file.
fn import<C: Call>(
    call: &mut C,
    driver: &mut ReadyCall<'_, C::Held>,
    request: &DescriptorRequest,
    places: &DescriptorPlaces<'_>,
    parent: ObjectHandle,
    types: Option<Items<u8>>,
) -> Result<i32, Stop> {
    let count = places.objects.len();
    let mut made = List::filled(count, false)?;
    let ticket = call.accounting(|accounting| accounting.begin_import(places, parent))?;
    for number in 0..count {
        // If nothing comes out of a place, the driver is given no handle for it. When it fails at a
        // later place, it frees what has the handles of the earlier ones.
        let handle = ticket.handle(number).unwrap_or(ObjectHandle(0));
        if let Some(field) = request.handle(number) {
            let _ = field.set(driver.bytes, handle.0);
        }
    }
    let returned = driver.ask(call);
    let answer = DriverReply::new(returned, nvos54::STATUS.get(driver.outer));
    for (number, made) in made.iter_mut().enumerate() {
        let Some(handle) = ticket.handle(number) else {
            continue;
        };
        let kind = types.and_then(|types| types.item(number)?.get(driver.bytes));
        let mut answer = answer;
        if answer.status == Some(NvStatus::NV_OK) && kind == Some(params::IMPORT_TYPE_NONE) {
            // The place is empty: the driver says that it has done nothing.
            answer.status = Some(NvStatus::NV_ERR_OBJECT_NOT_FOUND);
        }
        *made = answer.has_made(call, Kind::VideoMemory, places.client, handle);
    }
    let is_there = |number: usize| made.get(number).copied().unwrap_or(false);
    for (number, written) in places.objects.iter().enumerate() {
        let handle = ticket.handle(number);
        let handle = handle.filter(|_| answer.is_ok() && is_there(number));
        if let Some(field) = request.handle(number) {
            let _ = field.set(driver.bytes, handle.unwrap_or(*written).0);
        }
    }
    call.accounting(|accounting| accounting.end_import(ticket, is_there));
    Ok(answer.returned?)
}

/// `NV_ESC_EXPORT_TO_DMABUF_FD`: memory for other devices. Answered as on a GPU whose driver cannot
/// do it (`nv_dma_buf_create()` in kernel-open/nvidia/nv-dmabuf.c), which is what `GPU_GET_INFO_V2`
/// says of it, too ([`crate::policy::report`]).
///
/// The importer of a dma-buf keeps the memory, with every file of the tenant closed: nothing here
/// could tell when to credit it.
pub(super) fn dma_buf() -> Stop {
    Stop::refused(NvStatus::NV_ERR_NOT_SUPPORTED, Reason::Forbidden)
}
