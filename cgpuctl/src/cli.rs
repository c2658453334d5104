// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The tree of nouns and verbs. What belongs to a verb stands in its file below `command/`.

use crate::{
    command::{
        apply::Apply,
        bug_report::BugReport,
        cdi_check::{CdiList, CdiValidate},
        cdi_generate::CdiGenerate,
        completions::Completions,
        doctor::Doctor,
        events::Events,
        gpu_list::GpuList,
        gpu_set::{GpuSet, GpuSetPolicy},
        info::Info,
        inst_create::InstCreate,
        inst_destroy::InstDestroy,
        inst_list::InstList,
        inst_mounts::InstMounts,
        inst_restore::{InstRestore, InstSave},
        inst_set::InstSet,
        inst_set_burst::InstSetBurst,
        inst_set_caps::InstSetCaps,
        inst_set_channels::InstSetChannels,
        inst_set_limit::InstSetLimit,
        inst_set_managed::InstSetManaged,
        inst_set_mem::InstSetMem,
        inst_set_priority::InstSetPriority,
        inst_set_weight::InstSetWeight,
        inst_show::InstShow,
        inst_suspend::Suspension,
        list::List,
        man::Man,
        metrics::Metrics,
        ps::Ps,
        run::Run,
        setting::Set,
        status::Status,
        top::Top,
        unload::Unload,
        version::Version,
    },
    error::Failure,
    exit::Exit,
    host::Host,
    output::Report,
    verb::Verb,
};
use clap::{CommandFactory, Parser, Subcommand};
use std::io::Write;

/// The end of the help. A test runs the examples, in their order and after those of the documents
/// (tests/documents).
const AFTER_HELP: &str = "\
Examples:
  cgpuctl inst create train --gpu 0 --mem 24GiB
  cgpuctl inst set train --mem 30GiB --weight 40
  cgpuctl ls
  cgpuctl rm train
  cgpuctl run --gpu 0 --mem 8GiB -- python3 train.py

Exit codes: 0 done; 1 failed; 2 usage; 3 module not loaded; 4 no such GPU or instance;
5 not permitted; 6 refused (in use, name taken, limit too high); 7 NVIDIA driver missing or unknown;
8 doctor found something that must be fixed.

The documents are in /usr/share/doc/cgpu/docs.";

/// Share an NVIDIA GPU between containers.
///
/// An instance is a container's share of one GPU: a memory limit and a weight. The instances of one
/// name on several GPUs belong together (a tenant) and are given to one container.
#[derive(Parser)]
#[command(name = "cgpuctl", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// Print one JSON object instead of text for people (/usr/share/doc/cgpu/docs/json.md).
    #[arg(long, global = true)]
    pub json: bool,
    /// The verb.
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// The verb that was asked for, with its arguments.
    pub fn verb(&self) -> &dyn Verb {
        &self.command
    }
}

/// Declares a noun: each variant is a verb, or a noun below it.
macro_rules! noun {
    ($(#[$meta:meta])* enum $noun:ident {
        $($(#[$attribute:meta])* $verb:ident($arguments:ty),)*
    }) => {
        $(#[$meta])*
        #[derive(Subcommand)]
        enum $noun {
            $($(#[$attribute])* $verb($arguments),)*
        }

        impl $noun {
            fn verb(&self) -> &dyn Verb {
                match self {
                    $(Self::$verb(arguments) => arguments,)*
                }
            }
        }

        impl Verb for $noun {
            fn attempt(&self) -> String {
                self.verb().attempt()
            }

            fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
                self.verb().run(host)
            }

            fn wants_json(&self) -> bool {
                self.verb().wants_json()
            }

            fn stay(
                &self,
                host: &dyn Host,
                json: bool,
                err: &mut dyn Write,
            ) -> Option<Result<Exit, Failure>> {
                self.verb().stay(host, json, err)
            }
        }
    };
}

noun! {
    /// The nouns, and verbs without a noun.
    enum Command {
        /// The GPUs of this host.
        #[command(subcommand)]
        Gpu(GpuVerb),
        /// Instances: shares of a GPU.
        #[command(subcommand, visible_alias = "instance")]
        Inst(InstVerb),
        /// List all instances: the same as `inst list`.
        #[command(after_help = "Examples:\n  cgpuctl ls --quiet")]
        Ls(InstList),
        /// Destroy an instance that is not in use: the same as `inst destroy`.
        #[command(after_help = "Examples:\n  cgpuctl rm batch")]
        Rm(InstDestroy),
        Info(Info),
        #[command(alias = "list")]
        Files(List),
        /// The Container Device Interface: `--device cgpu.io/gpu=NAME` for podman, docker and the
        /// rest.
        #[command(subcommand)]
        Cdi(CdiVerb),
        Status(Status),
        Top(Top),
        Ps(Ps),
        Events(Events),
        Run(Run),
        Apply(Apply),
        Doctor(Doctor),
        BugReport(BugReport),
        Metrics(Metrics),
        Unload(Unload),
        Version(Version),
        Completions(Completions),
        Man(Man),
    }
}

noun! {
    /// `gpu …`.
    enum GpuVerb {
        #[command(visible_alias = "ls")]
        List(GpuList),
        Set(GpuSet),
        // Scripts have it.
        #[command(hide = true)]
        SetPolicy(GpuSetPolicy),
    }
}

noun! {
    /// `inst …`.
    enum InstVerb {
        Create(InstCreate),
        #[command(visible_alias = "ls")]
        List(InstList),
        Show(InstShow),
        Set(InstSet),
        // Each sets one thing; scripts have them.
        #[command(hide = true)]
        SetMem(Set<InstSetMem>),
        #[command(hide = true)]
        SetWeight(Set<InstSetWeight>),
        #[command(hide = true)]
        SetManaged(Set<InstSetManaged>),
        #[command(hide = true)]
        SetCaps(Set<InstSetCaps>),
        #[command(hide = true)]
        SetBurst(Set<InstSetBurst>),
        #[command(hide = true)]
        SetChannels(Set<InstSetChannels>),
        #[command(hide = true)]
        SetLimit(Set<InstSetLimit>),
        #[command(hide = true)]
        SetPriority(Set<InstSetPriority>),
        /// Keep an instance off the GPU until it is resumed. Its programs wait, and lose no work.
        #[command(after_help = "Examples:\n  cgpuctl inst suspend train")]
        Suspend(Set<Suspension<true>>),
        /// Let a suspended instance use the GPU again.
        #[command(after_help = "Examples:\n  cgpuctl inst resume train")]
        Resume(Set<Suspension<false>>),
        #[command(
            visible_alias = "rm",
            after_help = "Examples:\n  cgpuctl inst destroy pair --gpu 0,1"
        )]
        Destroy(InstDestroy),
        Mounts(InstMounts),
        Save(InstSave),
        Restore(InstRestore),
    }
}

noun! {
    /// `cdi …`.
    enum CdiVerb {
        Generate(CdiGenerate),
        List(CdiList),
        Validate(CdiValidate),
    }
}

// These are made from the tree, which their files therefore do not know.

impl Verb for BugReport {
    fn attempt(&self) -> String {
        Self::attempt()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let said = |line: &str| {
            let words = ["cgpuctl"].into_iter().chain(line.split(' '));
            let cli = match Cli::try_parse_from(words) {
                Ok(cli) => cli,
                Err(error) => return error.to_string(),
            };
            let verb = cli.verb();
            match verb.run(host) {
                Ok(report) => report.json,
                Err(failure) => failure.during(|| verb.attempt()).to_string(),
            }
        };
        self.report(host, &said)
    }
}

impl Verb for Completions {
    fn attempt(&self) -> String {
        "print the completions".to_owned()
    }

    fn run(&self, _: &dyn Host) -> Result<Report, Failure> {
        Ok(self.report(&mut Cli::command())?)
    }
}

impl Verb for Man {
    fn attempt(&self) -> String {
        "make the manual pages".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        Ok(self.report(host, Cli::command())?)
    }
}
