// SPDX-License-Identifier: GPL-2.0
//! Work for the stand-in's GPU: a client with a channel for compute, whose doorbell is mapped
//! through the module (`tests/fake_nvidia/README.md`, "Work").

use std::{
    fs::File,
    io::{ErrorKind, Write},
};

use super::{
    instance::Instance,
    rm,
    suite::mappings::{map_doorbell, write, DOORBELL},
    tools::{at, sys, GPU},
};
use crate::{
    bytes::{put_u32, put_u64, u32_at},
    standin, sys as os,
};

/// Its group.
pub(in crate::guest) const GROUP: u32 = 0x5C00_0020;
const CHANNEL: u32 = 0x5C00_0021;
/// NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN.
const GET_TOKEN: u32 = 0xC36F_0108;

/// A client with a group for compute and a channel in it.
pub struct Work {
    /// The client.
    pub client: rm::Client,
    address: u64,
    token: u32,
    file: File,
}

/// A client's GPU time so far, and its kernels there now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Nanoseconds that its kernels ran.
    pub ran: u64,
    /// Kernels that the GPU was given, and those that ended.
    pub submitted: u64,
    /// See above.
    pub finished: u64,
    /// Its channels for compute.
    pub channels: u64,
    /// Those of them that are switched off.
    pub off: u64,
}

impl Work {
    /// For programs in an instance.
    pub(in crate::guest) fn new(instance: &Instance) -> Result<Self, String> {
        let path = format!("{}/work", standin::DEBUGFS);
        let file = at(&path, File::options().write(true).open(&path))?;
        let client = instance.client()?;
        at("group", client.channel_group(GROUP, rm::COMPUTE))?;
        at("channel", client.channel(GROUP, CHANNEL))?;
        let mut token = [0; 4];
        let told = client.control(CHANNEL, GET_TOKEN, &mut token);
        at("token", told)?;
        let address = map_doorbell(instance, &client)?;
        Ok(Self {
            address,
            token: u32_at(&token, 0),
            file,
            client,
        })
    }

    /// One more channel in the group.
    pub(in crate::guest) fn another_channel(&self) -> Result<u32, String> {
        let another = CHANNEL + 1;
        at("another channel", self.client.channel(GROUP, another))?;
        Ok(another)
    }

    /// Frees the channel that kernels are launched on.
    pub(in crate::guest) fn free_channel(&self) -> Result<(), String> {
        at("free", self.client.free(CHANNEL))
    }

    /// Launches kernels of `length` nanoseconds, and waits until fewer than `below` are left (0:
    /// not at all).
    pub fn launch(&self, length: u64, count: u32, below: u32) -> std::io::Result<()> {
        let mut record = [0; 24];
        put_u32(&mut record, 0, GPU);
        put_u32(&mut record, 4, self.token);
        put_u64(&mut record, 8, length);
        put_u32(&mut record, 16, count);
        put_u32(&mut record, 20, below);
        loop {
            write(self.address + rm::BELL, self.token);
            match (&self.file).write(&record) {
                // Another program rang after us and before the GPU looked.
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                result => return result.map(drop),
            }
        }
    }

    /// The client's account so far.
    pub fn account(&self) -> Result<Account, String> {
        Account::of(self.client.handle)
    }

    /// Closes everything.
    pub fn close(self) -> Result<(), String> {
        // SAFETY: nothing of the program lies in a range that the driver gave.
        sys("munmap", unsafe { os::munmap(self.address, DOORBELL) })?;
        self.client.close();
        Ok(())
    }
}

impl Account {
    /// The account of the client with this handle.
    pub fn of(client: u32) -> Result<Self, String> {
        let key = format!("gpu{GPU}_{client:#010x}");
        let engine = standin::read("engine")?;
        let line = engine.get(&key).ok_or_else(|| format!("no {key}"))?;
        let mut account = Self::default();
        let mut words = line.split(' ');
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            let value = at(name, value.parse())?;
            match name {
                "ran" => account.ran = value,
                "submitted" => account.submitted = value,
                "finished" => account.finished = value,
                "channels" => account.channels = value,
                "off" => account.off = value,
                _ => {}
            }
        }
        Ok(account)
    }
}

/// Nanoseconds of the GPU.
pub fn now() -> Result<u64, String> {
    let engine = standin::read("engine")?;
    Ok(standin::number(&engine, &format!("gpu{GPU}_now_ns")))
}
