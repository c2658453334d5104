// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `run`: a program in an instance that goes when the program ends. No container engine is needed.

use super::{inst_create::Terms, target};
use crate::{
    container::proxy_nodes,
    control::Control,
    error::{Failure, Problem},
    exit::Exit,
    hook,
    host::Host,
    output::{warn, Report},
    selector::Selector,
    verb::Verb,
};
use cgpu_uapi::{Gpu, Name};
use clap::Args;
use std::{
    ffi::OsString,
    io::{sink, Write},
};

const EXAMPLES: &str = "\
Examples:
  cgpuctl run --gpu 0 --mem 8GiB -- python3 train.py";

/// Run a program in a new instance, and destroy the instance when the program has ended.
///
/// The program sees the instance in the place of the GPU. Otherwise it is a program of this host:
/// it runs as root, with the host's files, and nothing keeps it from the real GPU. Use this to try
/// a limit. Run programs that you do not trust in a container.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// GPU, as `inst create` takes it; needed where the host has several.
    #[arg(long = "gpu", value_name = "GPU", value_delimiter = ',')]
    gpus: Vec<Selector>,
    #[command(flatten)]
    terms: Terms,
    /// Name of the instance; run- and the number of this process if left out.
    #[arg(long, value_parser = crate::args::name)]
    name: Option<Name>,
    // In the place of the option that all commands have: the output is the program's.
    #[arg(long, hide = true)]
    json: bool,
    /// The program and its arguments.
    #[arg(
        last = true,
        required = true,
        value_name = "PROGRAM",
        conflicts_with = "json"
    )]
    program: Vec<OsString>,
}

impl Verb for Run {
    fn attempt(&self) -> String {
        let program = self.program.first().map(|name| name.to_string_lossy());
        format!("run {}", program.unwrap_or_default())
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        Ok(Report::default().ending(self.lent(host, &mut sink())?))
    }

    fn stay(&self, host: &dyn Host, _: bool, err: &mut dyn Write) -> Option<Result<Exit, Failure>> {
        Some(self.lent(host, err))
    }
}

impl Run {
    /// Lends an instance to the program.
    fn lent(&self, host: &dyn Host, err: &mut dyn Write) -> Result<Exit, Failure> {
        let control = target::open(host)?;
        let gpus = control.gpus()?;
        let all: Vec<_> = gpus.iter().map(|gpu| gpu.minor).collect();
        let minors = match (&self.gpus[..], &all[..]) {
            ([], [_, _, ..]) => return Err(Problem::WhichGpu { present: all }.into()),
            ([], _) => target::select(&gpus, &[Selector::All])?,
            (named, _) => target::select(&gpus, named)?,
        };
        let own = format!("run-{}", std::process::id());
        let name = self.name.or_else(|| Name::new(&own));
        let name = name.ok_or(Problem::BadName)?;
        host.mount_cgpufs()?;
        let requests = self.terms.requests(name, &minors, &gpus);
        let lent = hook::lend(host, &*control, requests, self.terms.host_mem)?;
        let ended = self.started(host, &*control, name, (&minors, &gpus), err);
        // Also where the program was not started.
        let taken = lent.take_back(host, &*control);
        let ended = ended?;
        taken?;
        Ok(ended)
    }

    /// Runs the program in an instance that is there, after the warnings about its terms.
    fn started(
        &self,
        host: &dyn Host,
        control: &dyn Control,
        name: Name,
        (minors, gpus): (&[u32], &[Gpu]),
        err: &mut dyn Write,
    ) -> Result<Exit, Failure> {
        for warning in self.terms.warnings(control, minors, gpus)? {
            warn(err, &warning);
        }
        let instances = target::tenant(control, &name)?;
        let mounts = proxy_nodes(name.as_str().unwrap_or_default(), &instances);
        Ok(host.run_program(&self.program, &mounts)?)
    }
}
