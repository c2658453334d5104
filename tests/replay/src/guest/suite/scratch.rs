// SPDX-License-Identifier: GPL-2.0
//! The sealed pages through which parameters reach the driver, from the program's side.

use crate::{
    bytes::{put_u32, put_u64},
    guest::{
        instance::Instance,
        race::{scratch, scratch_range},
        rm,
        taking::Taken,
        tools::{at, equal, fails, holds, tests, Verdict, GIB, MIB},
    },
    layout, sys as os,
};

tests! {
    "scratch: addresses in it are refused wherever they stand" => addresses;
    "scratch: it cannot be taken away or replaced" => sealed;
}

/// A program that has a scratch, and where.
fn with_scratch(instance: &Instance) -> Result<(rm::Client, u64), String> {
    let client = instance.client()?;
    Ok((client, scratch()?))
}

fn addresses() -> Verdict {
    const GR_GET_INFO: u32 = 0x2080_1201;
    let instance = Instance::new("scratch", GIB)?;
    let (client, scratch) = with_scratch(&instance)?;
    // Pages that are never there, the argument's, the parameters', the last one of all slots.
    for offset in [0, 0x1000, 0x1040, 0x3000, 8 * 40 * 0x1000 - 8] {
        let place = scratch + offset;
        let mut outer = [0; 48];
        put_u32(&mut outer, 0, client.handle);
        put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
        put_u32(&mut outer, 8, 0x5C00_0010);
        put_u32(&mut outer, 12, rm::VIDEO_MEMORY);
        put_u64(&mut outer, 16, place);
        let alloc = rm::request(layout::NR_ALLOC, 48);
        let called = os::ioctl(client.ctl, alloc, &mut outer);
        fails("parameters in the scratch", called, libc::EFAULT)?;
        // The driver would take here what it is not to look at.
        let mut params = rm::memory_params(client.handle, 2 * MIB);
        put_u64(&mut params, 80, place);
        put_u64(&mut outer, 16, params.as_mut_ptr() as u64);
        let called = os::ioctl(client.ctl, alloc, &mut outer);
        fails("an address in parameters", called, libc::EFAULT)?;
        let mut info = [0; 32];
        put_u32(&mut info, 0, 1);
        put_u64(&mut info, 8, place);
        let (ctl, handle) = (client.ctl, client.handle);
        let listed = rm::control(ctl, handle, rm::SUBDEVICE_HANDLE, GR_GET_INFO, &mut info);
        let refused = matches!(listed, Err(rm::Failure::Errno(libc::EFAULT)));
        holds("a list in the scratch is filled", refused)?;
        // SAFETY: The kernel checks the address.
        let called = unsafe { libc::ioctl(client.ctl, libc::Ioctl::from(alloc), place) };
        // A page that an earlier call has left is memory of the program's, with nothing in it: no
        // class.
        let refused = called == 0 || os::errno() == libc::EFAULT;
        holds("the argument in the scratch is taken or refused", refused)?;
        equal("charged for it", &instance.used()?, &0)?;
    }
    equal("charged", &instance.used()?, &0)?;
    at("the file works on", client.memory(0x5C00_0010, 2 * MIB))?;
    client.close();
    Ok(())
}

fn sealed() -> Verdict {
    let instance = Instance::new("sealed", GIB)?;
    let (client, _) = with_scratch(&instance)?;
    let range = scratch_range()?;
    // SAFETY: The kernel refuses; nothing of the program lies there.
    let unmapped = unsafe { os::munmap(range.0, range.1) };
    fails("munmap", unmapped, libc::EPERM)?;
    let taken = Taken::new(range)?;
    equal("not refused", &taken.first_taken(), &None)?;
    taken.close();
    equal("it is where it was", &scratch_range()?, &range)?;
    at("calls go on", client.memory(0x5C00_0010, 2 * MIB))?;
    client.close();
    Ok(())
}
