// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Entry point of the runtime that engines call in place of runc.

use cgpuctl::runtime::{find, prepare, tell, Call, RuntimeError, RUNTIME};
use std::{
    env,
    ffi::OsString,
    io::stderr,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
};

/// The runtime to run, when the container's configuration is as it is to be.
fn runtime(call: &Call) -> Result<PathBuf, RuntimeError> {
    let own = env::current_exe().unwrap_or_default();
    let path = env::var_os("PATH").unwrap_or_default();
    let runtime = find(env::var_os(RUNTIME), &path, &own)?;
    if let Some(bundle) = &call.bundle {
        prepare(bundle, &own.with_file_name("cgpu-hook"))?;
    }
    Ok(runtime)
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let call = Call::read(&arguments);
    let failure = match runtime(&call) {
        Ok(runtime) => {
            let error = Command::new(&runtime).args(&arguments).exec();
            RuntimeError::Start(runtime, error)
        }
        Err(failure) => failure,
    };
    tell(&failure, call.log.as_deref(), &mut stderr());
    ExitCode::FAILURE
}
