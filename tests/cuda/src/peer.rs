// SPDX-License-Identifier: GPL-2.0
//! The other process of a case: this program once more, which opens what the case shares with it,
//! finds `GIVEN` there and writes `ANSWERED`.

use std::{
    env,
    io::{stdin, Read, Write},
    os::fd::{AsFd, AsRawFd},
    process::{Child, Command, Stdio},
};

use crate::{
    api::{AccessDescription, Address, Cuda, IpcHandle, MemoryLocation},
    device::{pattern, same, Context},
};

/// The seed of what the case has written.
pub(crate) const GIVEN: u8 = 41;
/// The seed of what the other process writes.
pub(crate) const ANSWERED: u8 = 43;

/// The other process, while it runs.
pub(crate) struct Peer(Child);

/// Starts the other process: `way` is "open" (handles on its standard input) or "import" (the
/// standard input is the descriptor).
pub(crate) fn start(way: &str, device: i32, bytes: usize, input: Stdio) -> Result<Peer, String> {
    let program =
        env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    Command::new(program)
        .args(["--peer", way, &device.to_string(), &bytes.to_string()])
        .stdin(input)
        .stdout(Stdio::null())
        .spawn()
        .map(Peer)
        .map_err(|error| format!("the other process: {error}"))
}

impl Peer {
    /// Gives it a handle.
    pub(crate) fn send(&mut self, handle: &IpcHandle) -> Result<(), String> {
        let input = self.0.stdin.as_mut().ok_or("it has no input")?;
        input
            .write_all(&handle.0)
            .map_err(|error| format!("to the other process: {error}"))
    }

    /// Waits until it has done its part.
    pub(crate) fn end(mut self) -> Result<(), String> {
        drop(self.0.stdin.take());
        let status = self
            .0
            .wait()
            .map_err(|error| format!("the other process: {error}"))?;
        if status.success() {
            return Ok(());
        }
        Err(format!(
            "the other process failed ({status}); its own words are above"
        ))
    }
}

/// Reads a handle from the standard input.
fn receive() -> Result<IpcHandle, String> {
    let mut handle = [0; 64];
    stdin()
        .read_exact(&mut handle)
        .map_err(|error| format!("from the first process: {error}"))?;
    Ok(IpcHandle(handle))
}

/// Checks that the bytes of the case are there, and writes the answer.
fn answer(cuda: &Cuda, address: Address, bytes: usize) -> Result<(), String> {
    let mut read = vec![0; bytes];
    cuda.copy_out(&mut read, address)?;
    same(&read, &pattern(bytes, GIVEN))?;
    cuda.copy_in(address, &pattern(bytes, ANSWERED))?;
    Ok(cuda.context_synchronize()?)
}

/// Opens memory and event by their handles.
fn open(cuda: &Cuda, bytes: usize) -> Result<(), String> {
    /// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag, and wanted.
    const LAZY: u32 = 1;
    let (shown, signalled) = (receive()?, receive()?);
    let (mut address, mut event) = (0, 0);
    cuda.ipc_open_event(&mut event, signalled)?;
    cuda.event_synchronize(event)?;
    cuda.event_destroy(event)?;
    cuda.ipc_open_memory(&mut address, shown, LAZY)?;
    answer(cuda, address, bytes)?;
    Ok(cuda.ipc_close_memory(address)?)
}

/// Imports the allocation whose descriptor is the standard input. libcuda takes the number 0 for no
/// descriptor: it gets another one.
fn import(cuda: &Cuda, device: i32, bytes: usize) -> Result<(), String> {
    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
    const DESCRIPTOR: i32 = 1;
    let shared = stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| error.to_string())?;
    let (mut allocation, mut address) = (0, 0);
    cuda.allocation_import(&mut allocation, shared.as_raw_fd() as usize, DESCRIPTOR)?;
    cuda.address_reserve(&mut address, bytes, 0, 0, 0)?;
    cuda.allocation_map(address, bytes, 0, allocation, 0)?;
    let location = MemoryLocation { kind: 1, device };
    cuda.set_access(
        address,
        bytes,
        &AccessDescription {
            location,
            rights: 3,
        },
        1,
    )?;
    answer(cuda, address, bytes)?;
    cuda.allocation_unmap(address, bytes)?;
    cuda.address_free(address, bytes)?;
    Ok(cuda.allocation_release(allocation)?)
}

/// Does the work of `--peer`: its words are the way, the device's number and the bytes.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let [way, device, bytes] = words else {
        return Err("--peer is for this program itself".into());
    };
    let device = device
        .parse()
        .map_err(|error| format!("{device}: {error}"))?;
    let bytes = bytes.parse().map_err(|error| format!("{bytes}: {error}"))?;
    let cuda = Cuda::load()?;
    cuda.init(0)?;
    let context = Context::new(&cuda, device)?;
    match way.as_str() {
        "open" => open(&cuda, bytes),
        "import" => import(&cuda, device, bytes),
        _ => Err(format!("what is {way}?")),
    }?;
    Ok(context.end()?)
}
