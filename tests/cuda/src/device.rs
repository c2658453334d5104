// SPDX-License-Identifier: GPL-2.0
//! The resources of a case, which gives them back: contexts, memory, streams and events that end
//! with their scope, and bytes that can be recognised.

use crate::api::{Address, Cuda, CudaError, Handle};

/// A context that is current in this thread, until it is dropped.
pub(crate) struct Context<'a> {
    cuda: &'a Cuda,
    handle: Handle,
}

impl<'a> Context<'a> {
    /// A new context on a GPU.
    pub(crate) fn new(cuda: &'a Cuda, device: i32) -> Result<Self, CudaError> {
        let mut handle = 0;
        cuda.context_create(&mut handle, 0, device)?;
        Ok(Context { cuda, handle })
    }

    /// libcuda's handle.
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Ends it and says what libcuda said.
    pub(crate) fn end(self) -> Result<(), CudaError> {
        let ended = self.cuda.context_destroy(self.handle);
        std::mem::forget(self);
        ended
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // The case has failed already, or has nothing left to say.
        let _ = self.cuda.context_destroy(self.handle);
    }
}

/// Memory on the GPU.
pub(crate) struct Memory<'a> {
    cuda: &'a Cuda,
    /// Address of its first byte.
    pub(crate) address: Address,
    /// How much it is.
    pub(crate) bytes: usize,
}

impl<'a> Memory<'a> {
    /// Memory of the current context, without content.
    pub(crate) fn new(cuda: &'a Cuda, bytes: usize) -> Result<Self, CudaError> {
        let mut address = 0;
        cuda.memory_allocate(&mut address, bytes)?;
        Ok(Memory {
            cuda,
            address,
            bytes,
        })
    }

    /// Memory that the CPU and the GPU both address.
    pub(crate) fn managed(cuda: &'a Cuda, bytes: usize) -> Result<Self, CudaError> {
        /// `CU_MEM_ATTACH_GLOBAL`.
        const GLOBAL: u32 = 1;
        let mut address = 0;
        cuda.managed_allocate(&mut address, bytes, GLOBAL)?;
        Ok(Memory {
            cuda,
            address,
            bytes,
        })
    }

    /// The bytes as the CPU sees them; only for managed memory, and not while the GPU writes it.
    pub(crate) fn seen_by_cpu(&mut self) -> &mut [u8] {
        // SAFETY: `managed` made it, so the CPU may address it, for as long as this owner lives;
        // the exclusive borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }

    /// Frees it and says what libcuda said.
    pub(crate) fn free(self) -> Result<(), CudaError> {
        let freed = self.cuda.memory_free(self.address);
        std::mem::forget(self);
        freed
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let _ = self.cuda.memory_free(self.address);
    }
}

/// Host memory that does not move, for copies that go on while the program does.
pub(crate) struct Pinned<'a> {
    cuda: &'a Cuda,
    pointer: usize,
    bytes: usize,
}

impl<'a> Pinned<'a> {
    /// Pinned memory, mapped for the GPU too.
    pub(crate) fn new(cuda: &'a Cuda, bytes: usize) -> Result<Self, CudaError> {
        /// `CU_MEMHOSTALLOC_DEVICEMAP`.
        const MAPPED: u32 = 2;
        let mut pointer = 0;
        cuda.host_allocate(&mut pointer, bytes, MAPPED)?;
        Ok(Pinned {
            cuda,
            pointer,
            bytes,
        })
    }

    /// The address in this process.
    pub(crate) fn address(&self) -> usize {
        self.pointer
    }

    /// The bytes. No copy may be under way.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: libcuda allocated so many bytes there, and they live until this owner is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.pointer as *mut u8, self.bytes) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let _ = self.cuda.host_free(self.pointer);
    }
}

/// A stream that does not wait for the default one.
pub(crate) struct Stream<'a> {
    cuda: &'a Cuda,
    /// libcuda's handle.
    pub(crate) handle: Handle,
}

impl<'a> Stream<'a> {
    /// A new stream of the current context.
    pub(crate) fn new(cuda: &'a Cuda) -> Result<Self, CudaError> {
        /// `CU_STREAM_NON_BLOCKING`.
        const NON_BLOCKING: u32 = 1;
        let mut handle = 0;
        cuda.stream_create(&mut handle, NON_BLOCKING)?;
        Ok(Stream { cuda, handle })
    }

    /// Waits until everything in it is done.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        self.cuda.stream_synchronize(self.handle)
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let _ = self.cuda.stream_destroy(self.handle);
    }
}

/// An event.
pub(crate) struct Event<'a> {
    cuda: &'a Cuda,
    /// libcuda's handle.
    pub(crate) handle: Handle,
}

impl<'a> Event<'a> {
    /// A new event of the current context. `flags` are `CU_EVENT_*`.
    pub(crate) fn new(cuda: &'a Cuda, flags: u32) -> Result<Self, CudaError> {
        let mut handle = 0;
        cuda.event_create(&mut handle, flags)?;
        Ok(Event { cuda, handle })
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        let _ = self.cuda.event_destroy(self.handle);
    }
}

/// Bytes that tell where they belong: another seed or another place has others.
pub(crate) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ u64::from(seed);
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

/// Whether the bytes are those that were written; says the first that is not.
pub(crate) fn same(read: &[u8], written: &[u8]) -> Result<(), String> {
    if read.len() != written.len() {
        return Err(format!("{} bytes instead of {}", read.len(), written.len()));
    }
    match read.iter().zip(written).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!(
            "byte {at} of {} is {:#04x} instead of {:#04x}",
            written.len(),
            read[at],
            written[at]
        )),
    }
}
