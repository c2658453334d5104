// SPDX-License-Identifier: GPL-2.0
//! The device's side of vfio-user, by rust-vmm's server: one connection, until QEMU closes it.

use crate::{
    faults::Fault,
    gpu::{Gpu, Region},
};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixListener,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};
use vfio_bindings::bindings::vfio::{
    vfio_region_info, VFIO_IRQ_INFO_AUTOMASKED, VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_MASKABLE,
    VFIO_IRQ_INFO_NORESIZE, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_NUM_IRQS,
    VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

/// A GPU that the bus and the clock share.
#[derive(Debug)]
struct Shared {
    gpu: Mutex<Life>,
    /// Something was written: the clock may have work.
    written: Condvar,
}

/// A GPU, and whether its bus is still there.
#[derive(Debug)]
struct Life {
    gpu: Gpu,
    gone: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Life> {
        self.gpu
            .lock()
            .expect("no thread that holds the GPU panics")
    }
}

/// The device that the server calls.
struct Backend(Arc<Shared>);

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        if let Some(region) = Region::of(region) {
            self.0.lock().gpu.read(region, offset, data);
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(region) = Region::of(region) {
            self.0.lock().gpu.write(region, offset, data);
            self.0.written.notify_one();
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        _flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        match file {
            Some(file) => self
                .0
                .lock()
                .gpu
                .units
                .memory
                .machine
                .map(address, size, file, offset),
            // Memory without a file can only be asked for by messages; the GPU does not use it.
            None => Ok(()),
        }
    }

    fn dma_unmap(&mut self, _flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.0.lock().gpu.units.memory.machine.unmap(address, size);
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.0.lock().gpu.reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        _start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        let off = flags & VFIO_IRQ_SET_DATA_NONE != 0 && count == 0;
        if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 || off {
            let event = fds.into_iter().next();
            self.0.lock().gpu.units.interrupts.connect(index, event);
        }
        Ok(())
    }
}

fn regions(gpu: &Gpu) -> Vec<ServerRegion> {
    let region = |index: u32| {
        let size = Region::of(index).map_or(0, |region| gpu.size(region));
        let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        let region_info = vfio_region_info {
            argsz: size_of::<vfio_region_info>() as u32,
            flags: if size == 0 { 0 } else { access },
            index,
            cap_offset: 0,
            size,
            offset: 0,
        };
        ServerRegion {
            region_info,
            sparse_areas: Vec::new(),
            mmap_fd: None,
        }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

fn interrupts() -> Vec<IrqInfo> {
    let irq = |index: u32| {
        let (count, flags) = match index {
            0 => (1, VFIO_IRQ_INFO_MASKABLE | VFIO_IRQ_INFO_AUTOMASKED),
            1 => (1, VFIO_IRQ_INFO_NORESIZE),
            _ => (0, VFIO_IRQ_INFO_NORESIZE),
        };
        IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD | flags,
            count,
        }
    };
    (0..VFIO_PCI_NUM_IRQS).map(irq).collect()
}

/// Takes faults from connections to a socket, a line each, and answers when one has happened. It
/// ends with the program.
fn control(shared: &Shared, listener: &UnixListener) {
    for connection in listener.incoming().map_while(Result::ok) {
        for line in BufReader::new(&connection).lines().map_while(Result::ok) {
            match Fault::parse(&line) {
                Ok(fault) => {
                    shared.lock().gpu.inject(fault);
                    // A client that does not read it has gone.
                    let _ = writeln!(&connection, "done: {line}");
                }
                Err(_) => eprintln!("gpu-emulator: no such fault: {line}"),
            }
        }
    }
}

/// Lets time pass for the GPU, until its bus is gone.
fn clock(shared: &Shared) {
    let mut life = shared.lock();
    while !life.gone {
        let next = life.gpu.tick();
        life = match next {
            Some(wait) => {
                shared
                    .written
                    .wait_timeout(life, wait)
                    .expect("as `lock`")
                    .0
            }
            None => shared.written.wait(life).expect("as `lock`"),
        };
    }
}

/// A GPU that waits for QEMU.
pub struct Waiting {
    server: Server,
    shared: Arc<Shared>,
}

impl Waiting {
    /// Binds the socket. A socket that is there from an earlier run is replaced.
    pub fn bind(path: &Path, gpu: Gpu) -> Result<Self, vfio_user::Error> {
        if path.exists() {
            std::fs::remove_file(path).map_err(vfio_user::Error::SocketBind)?;
        }
        let server = Server::new(path, true, interrupts(), regions(&gpu))?;
        let life = Life { gpu, gone: false };
        let shared = Arc::new(Shared {
            gpu: Mutex::new(life),
            written: Condvar::new(),
        });
        Ok(Self { server, shared })
    }

    /// Takes faults from a socket as long as the program runs.
    pub fn control(&self, path: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(path)?;
        let shared = self.shared.clone();
        thread::spawn(move || control(&shared, &listener));
        Ok(())
    }

    /// Serves one connection to its end. Returns the lines of the summary.
    pub fn serve(self) -> Result<Vec<String>, vfio_user::Error> {
        let Self { server, shared } = self;
        thread::scope(|scope| {
            let clock = scope.spawn(|| clock(&shared));
            let served = server.run(&mut Backend(shared.clone()));
            shared.lock().gone = true;
            shared.written.notify_all();
            clock.join().expect("the clock does not panic");
            let mut life = shared.lock();
            life.gpu.summary();
            served.map(|()| life.gpu.counts())
        })
    }
}
