// SPDX-License-Identifier: GPL-2.0
//! A tenant on two GPUs. Without a second GPU there is nothing to test, and each of these says so
//! by failing: the test machine has one.

use cgpu_uapi::{self as uapi, Cause};

use crate::{
    control::{folder, Control},
    guest::{
        instance::Instance,
        rm,
        tools::{
            at, control, device_instance, equal, fails, holds, second_gpu, sys, tests, Verdict,
            GIB, GPU, MIB,
        },
        uvm::{uuid, Space},
    },
    standin,
};

tests! {
    "tenants: a name on two GPUs needs the GPU" => ambiguous;
    "tenants: one control node, a limit for each GPU" => two_limits;
    "tenants: a GPU outside the tenant is closed" => other_gpu;
    "tenants: workers do not see each other's files" => workers;
}

/// The second GPU's minor.
fn second(control: &Control) -> Result<u32, String> {
    second_gpu(control)?.ok_or_else(|| "there is no second GPU".to_owned())
}

/// Runs a test with an instance of a name on both GPUs.
fn on_both(name: &str, test: impl FnOnce(&Control, u32) -> Verdict) -> Verdict {
    let c = control()?;
    let other = second(&c)?;
    sys("create", c.create(name, GPU, GIB, 1))?;
    let made = sys("create", c.create(name, other, GIB / 2, 1));
    let result = made.and_then(|_| test(&c, other));
    let _ = c.destroy(name, other);
    let destroyed = sys("destroy", c.destroy(name, GPU));
    result.and(destroyed)
}

fn ambiguous() -> Verdict {
    on_both("twice", |c, other| {
        let errno = Cause::Ambiguous.errno();
        fails("get", c.get("twice", uapi::GPU_ANY).map(drop), errno)?;
        fails("destroy", c.destroy("twice", uapi::GPU_ANY), errno)?;
        let first = sys("get", c.get("twice", GPU))?;
        let second = sys("get", c.get("twice", other))?;
        holds("one number for two", first.id != second.id)?;
        let nodes = |i: &uapi::Instance| (i.major, i.control_node_minor, i.uvm_node_minor);
        equal("the tenant's nodes", &nodes(&first), &nodes(&second))
    })
}

fn two_limits() -> Verdict {
    on_both("both", |c, other| {
        let open = |minor| {
            let instance = device_instance(c, minor)?;
            at("client", rm::Client::open(&folder("both"), minor, instance))
        };
        let (first, second) = (open(GPU)?, open(other)?);
        at("first", first.memory(0x5C00_0010, GIB))?;
        holds("more", first.memory(0x5C00_0011, 2 * MIB).is_err())?;
        at("second", second.memory(0x5C00_0010, GIB / 2))?;
        holds("more", second.memory(0x5C00_0011, 2 * MIB).is_err())?;
        let used = |minor| sys("get", c.get("both", minor)).map(|i| i.memory_used_bytes);
        equal("charged", &(used(GPU)?, used(other)?), &(GIB, GIB / 2))?;
        first.close();
        equal("charged", &(used(GPU)?, used(other)?), &(0, GIB / 2))?;
        second.close();
        equal("charged", &(used(GPU)?, used(other)?), &(0, 0))
    })
}

/// Registers a GPU with UVM again and again, which its worker does.
fn register(name: &str, gpu: u32) -> Verdict {
    let uuid = uuid(gpu)?;
    for _ in 0..500 {
        let space = at("UVM", Space::open(&folder(name)))?;
        at("register", space.register_gpu(&uuid))?;
        space.close();
    }
    Ok(())
}

fn workers() -> Verdict {
    on_both("workers", |_, other| {
        let seen = || Ok::<_, String>(standin::number(&standin::read("refs")?, "others_files"));
        let before = seen()?;
        let both = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| register("workers", other));
            let own = register("workers", GPU);
            own.and(theirs.join().unwrap_or_else(|_| Err("a panic".to_owned())))
        });
        both?;
        equal("files of the other worker", &seen()?, &before)
    })
}

fn other_gpu() -> Verdict {
    let c = control()?;
    let other = second(&c)?;
    let theirs = device_instance(&c, other)?;
    let one = Instance::new("alone", GIB)?;
    let client = one.client()?;
    let mut device = [0; 56];
    crate::bytes::put_u32(&mut device, 0, theirs);
    let made = client.alloc(client.handle, 0x5C00_0020, rm::DEVICE, &mut device);
    client.close();
    holds("a device of it is made", made.is_err())
}
