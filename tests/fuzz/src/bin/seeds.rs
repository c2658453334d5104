// SPDX-License-Identifier: GPL-2.0
//! seeds FOLDER RECORDING...: makes a corpus for each target, FOLDER/TARGET/NAME, and
//! FOLDER/dictionary, out of recordings of real programs.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use cgpu_fuzz::seeds;
use cgpu_replay::record::Trace;

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: seeds FOLDER RECORDING...");
        return ExitCode::from(2);
    };
    let files: Vec<PathBuf> = arguments.collect();
    match write(&folder, &files) {
        Ok(count) => {
            println!("{count} inputs from {} recordings", files.len());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("seeds: {why}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path, files: &[PathBuf]) -> Result<usize, String> {
    let mut traces = Vec::new();
    for file in files {
        traces.push(Trace::read(file).map_err(|e| e.to_string())?);
    }
    let put = |path: PathBuf, bytes: &[u8]| {
        fs::write(&path, bytes).map_err(|e| format!("write {}: {e}", path.display()))
    };
    let mut count = 0;
    for (target, inputs) in seeds::of(&traces) {
        let folder = folder.join(target);
        fs::create_dir_all(&folder).map_err(|e| format!("make {}: {e}", folder.display()))?;
        for (name, bytes) in inputs {
            put(folder.join(name), &bytes)?;
            count += 1;
        }
    }
    put(folder.join("dictionary"), seeds::dictionary().as_bytes())?;
    Ok(count)
}
