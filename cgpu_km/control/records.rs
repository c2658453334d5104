// SPDX-License-Identifier: GPL-2.0
//! Records and lists of records, from the caller of a command and back.

use crate::{
    failure::Failure,
    os_interface::{
        control_device::{
            read_record,
            write_record, //
        },
        UserAddr, //
    },
    uapi::{
        self,
        Cause,
        Clean, //
    }, //
};
use core::mem::size_of;
use kernel::prelude::*;
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

/// A caller's record whose reserved fields are zero.
pub(super) fn read<T: FromBytes + IntoBytes + Clean>(at: UserAddr) -> Result<T, Failure> {
    let record: T = read_record(at)?;
    if record.is_clean() {
        Ok(record)
    } else {
        Err(Cause::Malformed.into())
    }
}

/// A caller's list of records of type `T`.
pub(super) fn read_list<T>(at: UserAddr) -> Result<uapi::RecordList, Failure> {
    let list: uapi::RecordList = read(at)?;
    check_size::<T>(&list).map(|()| list)
}

/// Refuses a list whose records have another size than `T`. A tool of another version gets an error
/// then, and not values of other fields.
pub(super) fn check_size<T>(list: &uapi::RecordList) -> Result<(), Failure> {
    if usize::try_from(list.record_size) == Ok(size_of::<T>()) {
        Ok(())
    } else {
        Err(Cause::Malformed.into())
    }
}

/// Gives the caller as many records as there is room for, and says how many there are.
pub(super) fn write_list<T: IntoBytes + Immutable>(
    at: UserAddr,
    mut list: uapi::RecordList,
    records: &[T],
) -> Result<(), Failure> {
    fill_list(&mut list, records)?;
    Ok(write_record(at, &list)?)
}

/// As [`write_list`], but leaves it to the caller to write the list itself, which may be part of a
/// larger record.
pub(super) fn fill_list<T: IntoBytes + Immutable>(
    list: &mut uapi::RecordList,
    records: &[T],
) -> Result<(), Failure> {
    list.count = u32::try_from(records.len()).map_err(|_| EOVERFLOW)?;
    let room = usize::try_from(list.capacity).unwrap_or(usize::MAX);
    let mut to = UserAddr::new(list.records);
    for record in records.iter().take(room) {
        write_record(to, record)?;
        // CAST: the size of a record.
        to = to.offset(size_of::<T>() as u64);
    }
    Ok(())
}
