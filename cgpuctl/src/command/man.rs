// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `man`: manual pages, made from the same grammar as `--help`.

use crate::{
    error::Problem,
    hook,
    host::{Host, PathError},
    output::Report,
    text::lines,
};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Roff;
use nix::errno::Errno;
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The manual's section for the administrator's programs.
const SECTION: &str = "8";

/// Print this tool's manual page, or write those of all its commands.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl man --to-folder /tmp/cgpuctl-man")]
pub(crate) struct Man {
    /// Write all of them into this folder instead.
    #[arg(long = "to-folder", alias = "output", value_name = "FOLDER")]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct ManMembers {
    pages: Vec<ManPage>,
}

/// A manual page.
#[derive(Clone, Debug, Serialize)]
pub struct ManPage {
    /// Name of its file, like `cgpuctl-inst-create.8`.
    pub file: String,
    /// In roff.
    pub text: String,
}

impl Man {
    /// The pages for this grammar, written if a folder was named.
    pub(crate) fn report(&self, host: &dyn Host, grammar: Command) -> Result<Report, Problem> {
        let pages = pages(grammar)?;
        let text = match &self.output {
            None => pages.first().map(|p| p.text.clone()).unwrap_or_default(),
            Some(folder) => {
                write(&host.path(folder), &pages)?;
                lines(
                    pages
                        .iter()
                        .map(|p| folder.join(&p.file).display().to_string()),
                )
            }
        };
        Report::new(ManMembers { pages }, text)
    }
}

fn write(folder: &Path, pages: &[ManPage]) -> Result<(), Problem> {
    fs::create_dir_all(folder).map_err(PathError::on("making the folder", folder))?;
    for page in pages {
        let path = folder.join(&page.file);
        fs::write(&path, &page.text).map_err(PathError::on("writing", &path))?;
    }
    Ok(())
}

/// A page for each command of `cgpuctl`, by its grammar, and for `cgpu-hook`.
pub fn pages(grammar: Command) -> Result<Vec<ManPage>, Problem> {
    let mut pages = Vec::new();
    for mut command in [grammar, hook::Arguments::command()] {
        command.build();
        add(&command, &mut pages)?;
    }
    Ok(pages)
}

fn add(command: &Command, pages: &mut Vec<ManPage>) -> Result<(), Problem> {
    let title = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let mut roff = Vec::new();
    Roff::new(command.clone())
        .title(title.as_str())
        .section(SECTION)
        .render(&mut roff)
        .map_err(|_| Problem::Output { errno: Errno::EIO })?;
    pages.push(ManPage {
        file: format!("{title}.{SECTION}"),
        text: String::from_utf8_lossy(&roff).into_owned(),
    });
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help") {
        add(sub, pages)?;
    }
    Ok(())
}
