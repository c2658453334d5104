// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `man`: manual pages, made from the same grammar as `--help`.

use crate::cli::Cli;
use crate::client::errno;
use crate::control::{Host, PathError};
use crate::error::{Failure, Problem};
use crate::hook::Arguments;
use crate::output::{lines, Report};
use clap::CommandFactory;
use clap_mangen::Man;
use nix::errno::Errno;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// The manual's section for the administrator's programs.
const SECTION: &str = "8";

#[derive(Serialize)]
struct Body {
    pages: Vec<Page>,
}

/// A manual page.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// Name of its file, like `cgpuctl-inst-create.8`.
    pub file: String,
    /// In roff.
    pub text: String,
}

pub(super) fn run(host: &dyn Host, folder: Option<&Path>) -> Result<Report, Failure> {
    report(host, folder).map_err(|problem| problem.when("make the manual pages"))
}

fn report(host: &dyn Host, folder: Option<&Path>) -> Result<Report, Problem> {
    let pages = pages()?;
    let text = match folder {
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
    Report::new(Body { pages }, text)
}

fn write(folder: &Path, pages: &[Page]) -> Result<(), Problem> {
    let failed = |action, path: &Path, e: &std::io::Error| {
        Problem::from(PathError {
            action,
            path: path.to_owned(),
            errno: errno(e),
        })
    };
    fs::create_dir_all(folder).map_err(|e| failed("making the folder", folder, &e))?;
    for page in pages {
        let path = folder.join(&page.file);
        fs::write(&path, &page.text).map_err(|e| failed("writing", &path, &e))?;
    }
    Ok(())
}

/// A page for each command, that of the tool first.
pub fn pages() -> Result<Vec<Page>, Problem> {
    let mut pages = Vec::new();
    for mut command in [Cli::command(), Arguments::command()] {
        command.build();
        add(&command, &mut pages)?;
    }
    Ok(pages)
}

fn add(command: &clap::Command, pages: &mut Vec<Page>) -> Result<(), Problem> {
    let title = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let mut roff = Vec::new();
    Man::new(command.clone())
        .title(title.as_str())
        .section(SECTION)
        .render(&mut roff)
        .map_err(|_| Problem::Output { errno: Errno::EIO })?;
    pages.push(Page {
        file: format!("{title}.{SECTION}"),
        text: String::from_utf8_lossy(&roff).into_owned(),
    });
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help") {
        add(sub, pages)?;
    }
    Ok(())
}
