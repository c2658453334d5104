// SPDX-License-Identifier: GPL-2.0
//! The controls that put objects behind a descriptor, or take them from there: how CUDA shares memory
//! that it maps itself (`cuMemExportToShareableHandle()`).
//!
//! The descriptor is a number in the parameters, and what it stands for is the driver's to find out,
//! later than the module has looked. Another thread can give the number another file in between. So
//! the module takes hold of the file first, decides on that, and has the driver asked by a task in
//! whose descriptor table the program changes nothing ([`Call::forward_holding`]).
//!
//! Memory behind a dma-buf is another matter: see [`dma_buf`].
//!
//! The file must be the tenant's own control file. Another tenant's, come over a socket, is as good as
//! none: what is behind it is charged to the other one.

use super::control::PARAMS_AT;
use super::frontend::check_file;
use super::frontend::get;
use super::frontend::is_made;
use super::frontend::note;
use super::frontend::set;
use super::Call;
use super::Errno;
use super::FileAt;
use super::Held;
use super::Part;
use super::Role;
use super::Session;
use crate::nvidia::class::Kind;
use crate::nvidia::control;
use crate::nvidia::escape::Escape;
use crate::nvidia::handle::ClientHandle;
use crate::nvidia::handle::ControlCmd;
use crate::nvidia::handle::ObjectHandle;
use crate::nvidia::nvos;
use crate::nvidia::nvos::nvos54;
use crate::nvidia::params;
use crate::nvidia::params::export_info;
use crate::nvidia::params::export_object;
use crate::nvidia::params::export_objects;
use crate::nvidia::params::import_object;
use crate::nvidia::params::import_objects;
use crate::nvidia::status::NvStatus;
use crate::nvidia::wire::Field;
use crate::nvidia::wire::Items;
use crate::policy::CallKind;
use crate::policy::DescriptorPlaces;
use crate::policy::Reason;
use crate::store::List;

/// What one of these controls says, wherever it says it.
struct Request {
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
    /// Into the file, with the device that the file is for.
    In(Field<u32>),
    /// Out of it, below this parent; what is told of each.
    Out(Field<u32>, Option<Items<u8>>),
    /// Neither.
    Ask,
}

impl Request {
    fn of(cmd: ControlCmd) -> Option<Self> {
        Some(match cmd {
            control::EXPORT_OBJECT_TO_FD => Self {
                file: export_object::FD,
                objects: Objects::One(export_object::H_OBJECT),
                way: Way::In(export_object::H_DEVICE),
            },
            control::EXPORT_OBJECTS_TO_FD => Self {
                file: export_objects::FD,
                objects: Objects::Many {
                    handles: export_objects::OBJECTS,
                    count: export_objects::NUM_OBJECTS,
                    first: export_objects::INDEX,
                },
                way: Way::In(export_objects::H_DEVICE),
            },
            control::IMPORT_OBJECT_FROM_FD => Self {
                file: import_object::FD,
                objects: Objects::One(import_object::H_OBJECT),
                way: Way::Out(import_object::H_PARENT, None),
            },
            control::IMPORT_OBJECTS_FROM_FD => Self {
                file: import_objects::FD,
                objects: Objects::Many {
                    handles: import_objects::OBJECTS,
                    count: import_objects::NUM_OBJECTS,
                    first: import_objects::INDEX,
                },
                way: Way::Out(import_objects::H_PARENT, Some(import_objects::OBJECT_TYPES)),
            },
            control::GET_EXPORT_OBJECT_INFO => Self {
                file: export_info::FD,
                objects: Objects::None,
                way: Way::Ask,
            },
            _ => return None,
        })
    }

    /// How many places it is about, and which is the first.
    fn places(&self, bytes: &[u8]) -> Result<(usize, u16), Errno> {
        Ok(match &self.objects {
            Objects::None => (0, 0),
            Objects::One(_) => (1, 0),
            Objects::Many { count, first, .. } => {
                (usize::from(get(*count, bytes)?), get(*first, bytes)?)
            }
        })
    }

    /// Where the handle of one of the places stands.
    fn handle(&self, number: usize) -> Option<Field<u32>> {
        match &self.objects {
            Objects::None => None,
            Objects::One(handle) => (number == 0).then_some(*handle),
            Objects::Many { handles, .. } => handles.item(number),
        }
    }

    /// Why the driver would refuse it whatever is behind the descriptor: the checks of
    /// `cliresCtrlCmdOsUnix*_IMPL()` in src/nvidia/arch/nvalloc/unix/src/os.c. What is refused here
    /// is not charged until the file is closed.
    fn check(
        &self,
        call: &mut impl Call,
        cmd: ControlCmd,
        client: ClientHandle,
        bytes: &[u8],
    ) -> Result<Result<(), NvStatus>, Errno> {
        let plain = match cmd {
            control::EXPORT_OBJECT_TO_FD => {
                get(export_object::TYPE, bytes)? == params::EXPORT_TYPE_RM
                    && get(export_object::FLAGS, bytes)? & params::EXPORT_FLAG_EMPTY == 0
            }
            control::IMPORT_OBJECT_FROM_FD => {
                get(import_object::TYPE, bytes)? == params::EXPORT_TYPE_RM
            }
            _ => true,
        };
        let most = match &self.objects {
            Objects::Many { handles, .. } => handles.count(),
            Objects::None | Objects::One(_) => 1,
        };
        if !plain || self.places(bytes)?.0 > most {
            return Ok(Err(NvStatus::NV_ERR_INVALID_PARAMETER));
        }
        if let Way::In(device) = &self.way {
            let device = ObjectHandle(get(*device, bytes)?);
            if device.0 != 0 {
                match call.look(|accounting| accounting.kind_of(client, device)) {
                    Some(Kind::Device) => {}
                    Some(_) => return Ok(Err(NvStatus::NV_ERR_INVALID_PARAMETER)),
                    None => return Ok(Err(NvStatus::NV_ERR_OBJECT_NOT_FOUND)),
                }
            }
        }
        Ok(Ok(()))
    }
}

/// Runs one of these controls, `bytes` being its parameters.
pub(super) fn control(
    call: &mut impl Call,
    session: &Session,
    code: u32,
    outer: &mut [u8],
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    let cmd = ControlCmd(get(nvos54::CMD, outer)?);
    let client = ClientHandle(get(nvos54::H_CLIENT, outer)?);
    let refuse = |outer: &mut [u8], status: NvStatus| set(nvos54::STATUS, outer, status.0);
    let Some(request) = Request::of(cmd) else {
        note(call, session, CallKind::Control, cmd.0, Reason::Forbidden);
        return refuse(outer, NvStatus::NV_ERR_NOT_SUPPORTED).map(|()| 0);
    };
    if let Err(status) = check_file(call, session, client) {
        return refuse(outer, status).map(|()| 0);
    }
    if let Err(status) = request.check(call, cmd, client, bytes)? {
        return refuse(outer, status).map(|()| 0);
    }
    let file = call.hold(get(request.file, bytes)?);
    let Some(file) = file.filter(|file| file.session().role == Role::Control) else {
        // As for a descriptor that is none of the driver's.
        note(call, session, CallKind::Control, cmd.0, Reason::Foreign);
        return refuse(outer, NvStatus::NV_ERR_INVALID_PARAMETER).map(|()| 0);
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
    };
    let mut driver = Driver {
        code,
        outer,
        bytes,
        file: &file,
        at: request.file.offset(),
    };
    match &request.way {
        Way::Ask => driver.ask(call),
        Way::In(_) => {
            let ticket = match call.accounting(|accounting| accounting.begin_export(&places)) {
                Ok(ticket) => ticket,
                Err(refusal) => return refuse(driver.outer, refusal.status()).map(|()| 0),
            };
            let returned = driver.ask(call);
            call.accounting(|accounting| accounting.end_export(ticket, returned.is_ok()));
            returned
        }
        Way::Out(parent, kinds) => {
            let parent = ObjectHandle(get(*parent, driver.bytes)?);
            import(call, &mut driver, &request, &places, parent, *kinds)
        }
    }
}

/// `NV_ESC_EXPORT_TO_DMABUF_FD`: memory for other devices. Answered as on a GPU whose driver cannot do it
/// (`nv_dma_buf_create()` in kernel-open/nvidia/nv-dmabuf.c), which is what `GPU_GET_INFO_V2` says of it,
/// too ([`crate::policy::report`]).
///
/// What imports a dma-buf keeps the memory, with every file of the tenant closed: nothing here could tell
/// when to credit it.
pub(super) fn dma_buf(
    call: &mut impl Call,
    session: &Session,
    bytes: &mut [u8],
) -> Result<i32, Errno> {
    let number = u32::from(Escape::ExportToDmabufFd.nr());
    note(call, session, CallKind::Escape, number, Reason::Forbidden);
    let status = nvos::dma_buf_status(bytes.len());
    set(status, bytes, NvStatus::NV_ERR_NOT_SUPPORTED.0).map(|()| 0)
}

/// A call that is ready for the driver.
struct Driver<'a, H> {
    code: u32,
    outer: &'a mut [u8],
    bytes: &'a mut [u8],
    file: &'a H,
    /// Where in `bytes` the descriptor's number stands.
    at: usize,
}

impl<H: Held> Driver<'_, H> {
    fn ask(&mut self, call: &mut impl Call<Held = H>) -> Result<i32, Errno> {
        let file = FileAt {
            file: self.file,
            part: 1,
            offset: self.at,
        };
        let mut parts = [
            Part::argument(self.outer),
            Part::pointed(self.bytes, PARAMS_AT),
        ];
        call.forward_holding(self.code, &mut parts, file)
    }
}

/// Takes objects out of a file.
fn import<C: Call>(
    call: &mut C,
    driver: &mut Driver<'_, C::Held>,
    request: &Request,
    places: &DescriptorPlaces<'_>,
    parent: ObjectHandle,
    kinds: Option<Items<u8>>,
) -> Result<i32, Errno> {
    let count = places.objects.len();
    let mut made = List::filled(count, false)?;
    let ticket = match call.accounting(|accounting| accounting.begin_import(places, parent)) {
        Ok(ticket) => ticket,
        Err(refusal) => return set(nvos54::STATUS, driver.outer, refusal.status().0).map(|()| 0),
    };
    for number in 0..count {
        // Where nothing comes out the driver is given no handle: when it fails at a later place it
        // frees what has the handles of the earlier ones.
        let handle = ticket.handle(number).unwrap_or(ObjectHandle(0));
        if let Some(field) = request.handle(number) {
            let _ = field.set(driver.bytes, handle.0);
        }
    }
    let returned = driver.ask(call);
    let told = nvos54::STATUS.get(driver.outer);
    for (number, made) in made.iter_mut().enumerate() {
        let Some(handle) = ticket.handle(number) else {
            continue;
        };
        let kind = kinds.and_then(|kinds| kinds.item(number)?.get(driver.bytes));
        let told = match (told.map(NvStatus), kind) {
            // The place is empty: the driver says that it has done nothing.
            (Some(NvStatus::NV_OK), Some(params::IMPORT_TYPE_NONE)) => {
                Some(NvStatus::NV_ERR_OBJECT_NOT_FOUND.0)
            }
            _ => told,
        };
        let client = places.client;
        *made = is_made(call, Kind::VideoMemory, client, handle, returned, told);
    }
    let is_there = |number: usize| made.get(number).copied().unwrap_or(false);
    let ok = returned == Ok(0) && told == Some(NvStatus::NV_OK.0);
    for (number, written) in places.objects.iter().enumerate() {
        let handle = ticket.handle(number).filter(|_| ok && is_there(number));
        if let Some(field) = request.handle(number) {
            let _ = field.set(driver.bytes, handle.unwrap_or(*written).0);
        }
    }
    call.accounting(|accounting| accounting.end_import(ticket, is_there));
    returned
}
