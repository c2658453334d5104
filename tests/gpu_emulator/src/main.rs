// SPDX-License-Identifier: GPL-2.0
//! `gpu-emulator serve`: GPUs behind vfio-user. `gpu-emulator firmware`: the firmware file for
//! the driver.

use clap::{Parser, Subcommand};
use gpu_emulator::{
    abi::Abi, firmware, gpu::Gpu, log::Log, model::GpuModel, vfio_user::Waiting, MIB,
};
use std::{
    error::Error,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};

/// An emulated GPU for NVIDIA's driver.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves GPUs until QEMU disconnects from all of them. Prints "ready" when QEMU can connect.
    Serve(Serve),
    /// Writes the firmware files for a release of the driver into /lib/firmware/nvidia/RELEASE or
    /// the like.
    Firmware {
        /// The release, for example 550.163.01.
        #[arg(long)]
        branch: String,
        /// The folder.
        folder: PathBuf,
    },
}

#[derive(clap::Args)]
struct Serve {
    /// The socket. Of several GPUs each has its own: PATH.0, PATH.1 and so on.
    #[arg(long)]
    socket: PathBuf,
    /// Video memory in MiB; an H200's without this.
    #[arg(long)]
    memory: Option<u64>,
    /// The first GPU's number: each number is another GPU with a UUID of its own.
    #[arg(long, default_value_t = 0)]
    first: u8,
    /// Number of GPUs.
    #[arg(long, default_value_t = 1)]
    gpus: u8,
    /// A socket that takes faults, a line each. Of several GPUs each has its own.
    #[arg(long)]
    control: Option<PathBuf>,
    /// The driver's branch or release.
    #[arg(long, default_value = "550")]
    branch: String,
    /// The log. Of several GPUs each has its own: PATH.0, PATH.1 and so on.
    #[arg(long)]
    log: Option<PathBuf>,
}

/// The path of one of several GPUs.
fn numbered(path: &Path, index: u8, gpus: u8) -> PathBuf {
    if gpus == 1 {
        return path.to_path_buf();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{index}"));
    name.into()
}

fn gpu(args: &Serve, index: u8) -> Result<Gpu, Box<dyn Error>> {
    let abi = Abi::of(&args.branch).ok_or(format!("no table for branch {}", args.branch))?;
    let mut model = GpuModel::h200();
    model.uuid[15] = args.first + index;
    if let Some(memory) = args.memory {
        model.memory = memory * MIB;
    }
    let log = match &args.log {
        Some(path) => Log::create(&numbered(path, index, args.gpus))?,
        None => Log::none(),
    };
    Ok(Gpu::new(abi, model, log))
}

fn serve(args: &Serve) -> Result<(), Box<dyn Error>> {
    let mut waiting = Vec::new();
    for index in 0..args.gpus {
        let socket = numbered(&args.socket, index, args.gpus);
        let gpu = Waiting::bind(&socket, gpu(args, index)?)?;
        if let Some(path) = &args.control {
            gpu.control(&numbered(path, index, args.gpus))?;
        }
        waiting.push(gpu);
    }
    println!("ready");
    let threads: Vec<_> = waiting
        .into_iter()
        .map(|gpu| thread::spawn(move || gpu.serve()))
        .collect();
    for (index, thread) in threads.into_iter().enumerate() {
        let lines = thread.join().expect("a GPU does not panic")?;
        for line in lines {
            // The reader that waited for "ready" may have stopped reading.
            let _ = writeln!(io::stdout(), "gpu {index}: {line}");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Serve(args) => serve(&args),
        Command::Firmware { branch, folder } => {
            firmware::write(&branch, &folder).map_err(Into::into)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu-emulator: {error}");
            ExitCode::FAILURE
        }
    }
}
