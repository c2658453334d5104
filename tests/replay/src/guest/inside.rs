// SPDX-License-Identifier: GPL-2.0
//! `inside`: what a program in a container of a real engine finds of its instance. It talks the
//! driver's protocol itself: the figures that it is told, the memory that it gets and does not get;
//! and that nothing but its own GPU is in reach.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::rm::{Client, Failure, NO_MEMORY};
use crate::{nodes::Nodes, orchestrate, record::Trace, relaunch, size::show, sys};

/// FB_GET_INFO index: the GPU's memory, as nvidia-smi shows it.
const TOTAL: u32 = 0x08;
/// The driver's folder, which lists the host's GPUs.
const DRIVER: &str = "/proc/driver/nvidia";
const MEMORY: u32 = 0x5C00_0010;
const MORE: u32 = 0x5C00_0011;

/// The program's expectations.
#[derive(Debug, Clone)]
pub struct InsideSettings {
    /// Minor of its GPU.
    pub gpu: u32,
    /// RM's device instance of it.
    pub device_instance: u32,
    /// Its limit, bytes.
    pub limit: u64,
    /// Recording that is replayed, too.
    pub trace: Option<PathBuf>,
    /// Stay with half of the memory allocated, until killed.
    pub hold: bool,
}

/// Looks around; a line on stdout for each thing that is as it must be.
pub fn run(settings: &InsideSettings) -> Result<bool, String> {
    if settings.trace.is_some() {
        relaunch::without_random_layout();
    }
    check_numbers(settings.gpu)?;
    say("the proxy nodes show the driver's numbers");
    no_real_device(settings.gpu)?;
    say("the real GPU cannot be reached");
    mask(settings.gpu)?;
    hosts_program()?;
    memory(settings)?;
    if let Some(path) = &settings.trace {
        replay(path)?;
    }
    Ok(true)
}

/// The instance's nodes show the numbers of the real devices.
fn check_numbers(gpu_minor: u32) -> Result<(), String> {
    let number = |path: &str| {
        let meta = fs::metadata(path).map_err(|e| format!("{path}: {e}"))?;
        let rdev = meta.rdev();
        Ok::<_, String>((libc::major(rdev), libc::minor(rdev)))
    };
    let expect = |path: &str, wanted: (u32, u32)| match number(path)? {
        seen if seen == wanted => Ok(()),
        seen => Err(format!("{path} shows {seen:?}, not {wanted:?}")),
    };
    expect(&format!("/dev/nvidia{gpu_minor}"), (195, gpu_minor))?;
    expect("/dev/nvidiactl", (195, 255))
}

/// A program of the driver's is the host's own file, if the host has one. Nobody can write to it,
/// even the container's root, which is the host's.
fn hosts_program() -> Result<(), String> {
    const PROGRAM: &str = "/usr/bin/nvidia-smi";
    if !Path::new(PROGRAM).exists() {
        return Ok(());
    }
    match fs::OpenOptions::new().append(true).open(PROGRAM) {
        Err(e) if e.raw_os_error() == Some(libc::EROFS) => {
            say("the host's programs cannot be written");
            Ok(())
        }
        Err(e) => Err(format!("{PROGRAM}, opened to be written: {e}")),
        Ok(_) => Err(format!("{PROGRAM} can be written")),
    }
}

fn say(what: &str) {
    println!("inside: {what}");
}

/// With any capability that the engine left: a node of the real number is not made, or does not
/// open.
fn no_real_device(gpu: u32) -> Result<(), String> {
    for minor in [gpu, 255] {
        let path = format!("/tmp/real{minor}");
        // Of a run before, in a container that was started again.
        let _ = fs::remove_file(&path);
        match sys::make_character_device(&path, 195, minor) {
            Err(libc::EPERM) => continue,
            Err(e) => return Err(format!("mknod of 195:{minor}: errno {e}")),
            Ok(()) => {}
        }
        match sys::open(&path, libc::O_RDWR) {
            Err(libc::EPERM | libc::EACCES) => {}
            other => return Err(format!("195:{minor} can be opened: {other:?}")),
        }
    }
    match fs::read("/proc/cgpu_km/version") {
        Err(_) => Ok(()),
        Ok(_) => Err("the host's /proc/cgpu_km can be read".to_owned()),
    }
}

/// One GPU is listed, ours, and nobody is told to make nodes.
fn mask(gpu: u32) -> Result<(), String> {
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let folder = Path::new(DRIVER);
    let listed: Vec<_> = fs::read_dir(folder.join("gpus"))
        .map_err(|e| format!("{DRIVER}/gpus: {e}"))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let [own] = listed.as_slice() else {
        return Err(format!("{DRIVER}/gpus has {listed:?}"));
    };
    let minor = format!("Device Minor: \t {gpu}\n");
    if !read(&own.join("information"))?.contains(&minor) {
        return Err(format!("{} is not GPU {gpu}", own.display()));
    }
    if !read(&folder.join("params"))?.contains("ModifyDeviceFiles: 0\n") {
        return Err("the driver's parameters let libraries make nodes".to_owned());
    }
    match fs::write(folder.join("params"), "x") {
        Err(_) => say("/proc/driver/nvidia has this GPU only, and cannot be changed"),
        Ok(()) => return Err(format!("{DRIVER}/params can be written")),
    }
    Ok(())
}

fn memory(settings: &InsideSettings) -> Result<(), String> {
    let failed = |what: &'static str| move |e: Failure| format!("{what}: {e}");
    let client = Client::open("/dev", settings.gpu, settings.device_instance)
        .map_err(failed("an RM client"))?;
    let told = client.fb_info(&[TOTAL]).map_err(failed("FB_GET_INFO"))?;
    let total = told.first().map(|kib| u64::from(*kib) << 10);
    if total != Some(settings.limit) {
        return Err(format!(
            "the GPU has {total:?} bytes, not {}",
            settings.limit
        ));
    }
    say(&format!("the GPU has {}", show(settings.limit)));
    let half = settings.limit / 2;
    client
        .memory(MEMORY, half)
        .map_err(failed("half of the memory"))?;
    match client.memory(MORE, half + (2 << 20)) {
        Err(Failure::Status(NO_MEMORY)) => {
            say("more than the limit is refused as a full GPU refuses it")
        }
        other => return Err(format!("more than the limit: {other:?}")),
    }
    if settings.hold {
        say("holding");
        loop {
            sys::sleep_ms(1000);
        }
    }
    client.free(MEMORY).map_err(failed("a free"))?;
    client
        .memory(MORE, half + (2 << 20))
        .map_err(failed("the memory after a free"))?;
    say("freed memory is given again");
    client.close();
    Ok(())
}

/// Replays a recorded CUDA program on the container's own nodes.
fn replay(path: &Path) -> Result<(), String> {
    sys::stay_on_this_processor();
    let trace = Trace::read(path).map_err(|e| e.to_string())?;
    let order: Vec<_> = (0..trace.records.len()).map(|i| (0, i)).collect();
    let (mut calls, mut skipped, mut different) = (0_usize, 0_usize, Vec::new());
    let mut refused = Vec::new();
    let nodes = [Nodes::Instance("/dev".to_owned())];
    orchestrate::replay(&[trace], &order, &nodes, |_, _, outcome| {
        calls += usize::from(!outcome.skipped);
        skipped += usize::from(outcome.skipped);
        different.extend(outcome.mismatches);
        refused.extend(outcome.refused);
    })?;
    // Calls that need it are not made, so nothing else would tell.
    if !refused.is_empty() {
        return Err(format!("memory is refused: {refused:?}"));
    }
    if !different.is_empty() {
        return Err(format!(
            "{} calls are not as recorded: {different:?}",
            different.len()
        ));
    }
    say(&format!(
        "a recorded CUDA program ran, {calls} calls, {skipped} not made"
    ));
    Ok(())
}
