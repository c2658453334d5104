// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The commands, one file per verb.

mod cdi_check;
mod cdi_generate;
mod completions;
mod doctor;
mod gpu_list;
mod gpu_set_policy;
mod info;
pub(crate) mod inst_create;
mod inst_destroy;
mod inst_list;
mod inst_mounts;
mod inst_refused;
mod inst_restore;
mod inst_set_caps;
mod inst_set_compute;
mod inst_set_managed;
mod inst_set_mem;
mod inst_set_weight;
mod inst_show;
mod list;
pub mod man;
pub mod metrics;
mod status;
pub(crate) mod target;
pub mod top;
mod unload;

use crate::cli::{Cdi, Command, Gpu, Inst};
use crate::control::{Control, Host};
use crate::error::{Failure, Problem};
use crate::output::Report;
use crate::size::{Bytes, CONTEXT, GIB};

/// Runs a command.
pub fn run(command: &Command, host: &dyn Host) -> Result<Report, Failure> {
    match command {
        Command::Gpu(Gpu::List) => gpu_list::run(host),
        Command::Gpu(Gpu::SetPolicy(args)) => gpu_set_policy::run(host, args),
        Command::Inst(inst) => match inst {
            Inst::Create(args) => inst_create::run(host, args),
            Inst::List => inst_list::run(host),
            Inst::Show(args) if args.refused => inst_refused::run(host, args),
            Inst::Show(args) => inst_show::run(host, args),
            Inst::SetMem(args) => inst_set_mem::run(host, args),
            Inst::SetWeight(args) => inst_set_weight::run(host, args),
            Inst::SetManaged(args) => inst_set_managed::run(host, args),
            Inst::SetCaps(args) => inst_set_caps::run(host, args),
            Inst::SetPriority(args) => inst_set_compute::priority(host, args),
            Inst::Suspend(args) => inst_set_compute::suspend(host, args, true),
            Inst::Resume(args) => inst_set_compute::suspend(host, args, false),
            Inst::Destroy(args) => inst_destroy::run(host, args),
            Inst::Mounts(args) => inst_mounts::run(host, args),
            Inst::Save(file) => inst_restore::save(host, &file.path),
            Inst::Restore(file) => inst_restore::restore(host, &file.path),
        },
        Command::Info => info::run(host),
        Command::List(args) => list::run(host, args),
        Command::Cdi(cdi) => match cdi {
            Cdi::Generate(args) => cdi_generate::run(host, args),
            Cdi::List => cdi_check::list(host),
            Cdi::Validate(args) => cdi_check::validate(host, args),
        },
        Command::Status => status::run(host),
        Command::Top(args) => top::run(host, args),
        Command::Doctor => doctor::run(host),
        Command::Metrics(_) => metrics::run(host),
        Command::Unload => unload::run(host),
        Command::Completions { shell } => completions::run(*shell),
        Command::Man { output } => man::run(host, output.as_deref()),
    }
}

/// Opens the control device.
fn open(host: &dyn Host) -> Result<Box<dyn Control>, Problem> {
    host.control().map_err(Problem::open)
}

/// The warning that a small limit deserves.
fn small_limit(limit: Bytes) -> Option<String> {
    if limit >= GIB {
        return None;
    }
    let what = if limit < CONTEXT {
        "no CUDA program will start"
    } else {
        "little is left for the program"
    };
    Some(format!(
        "a limit of {limit} is under 1 GiB: a bare CUDA context takes {CONTEXT} of it, so {what}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_under_a_gib_draws_a_warning() {
        assert_eq!(small_limit(GIB), None);
        let warning = |bytes| small_limit(Bytes(bytes)).expect("a warning");
        assert!(warning(GIB.0 - 1).ends_with("little is left for the program"));
        assert!(warning(CONTEXT.0).ends_with("little is left for the program"));
        assert!(warning(CONTEXT.0 - 1).ends_with("no CUDA program will start"));
    }
}
