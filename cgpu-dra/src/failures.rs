// SPDX-License-Identifier: GPL-2.0 OR MIT
//! GPUs that have failed: what the driver says in the kernel's log ("Xid"), and a driver that has
//! gone. Each failure is a file, so that it outlives this program, and an operator can remove it.

use cgpu_client::{files, path_error::PathError};
use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Xids of the hardware, the driver or its firmware. Any other may be a program's: who has a
/// channel can have its engines report errors at will, by what is in its push buffer.
#[rustfmt::skip]
const OF_GPUS: [u32; 36] = [
    46, 48, 58, 59, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 122, 123, 124, 125, 136, 140,
    143, 155, 156, 157, 158, 160, 161, 167, 168, 169, 171, 172, 173, 175,
];
/// Xids of NVLink from Blackwell on. The line says whether the link is lost; if it is not, a
/// program may have accessed what is not there.
const OF_LINKS: RangeInclusive<u32> = 144..=150;
/// Xids after which nothing on the GPU runs on: double-bit errors, the GPU off the bus, errors that
/// could not be contained, a GSP that does not answer.
const DEADLY: [u32; 5] = [48, 79, 95, 119, 120];

/// The file beside the folder that says how far the kernel's log was read.
const LAST_RECORD: &str = "last-record";

/// The kernel's file with the name of the running system, another one at each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The effect of a taint that keeps new pods away and evicts none.
pub const NO_SCHEDULE: &str = "NoSchedule";

/// How long the driver has to be missed before it is gone, and silent before that is told. Pods are
/// evicted when it is gone.
pub const PATIENCE: Duration = Duration::from_secs(6);

/// Why a GPU is not to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The driver has reported this Xid.
    Xid(u32),
    /// The driver is not there, or refuses to answer.
    DriverGone,
    /// A call of the driver has not come back for long, or fails for another reason than that the
    /// driver is not there.
    DriverSilent,
}

impl Failure {
    /// Last part of the taint's key.
    pub fn key(self) -> &'static str {
        match self {
            Self::Xid(_) => "xid",
            Self::DriverGone => "driver-gone",
            Self::DriverSilent => "driver-silent",
        }
    }

    /// The taint's value.
    pub fn value(self) -> Option<String> {
        match self {
            Self::Xid(number) => Some(number.to_string()),
            Self::DriverGone | Self::DriverSilent => None,
        }
    }

    /// The taint's effect: new pods stay away, and those that cannot go on are removed.
    pub fn effect(self) -> &'static str {
        match self {
            Self::Xid(number) if !DEADLY.contains(&number) => NO_SCHEDULE,
            Self::DriverSilent => NO_SCHEDULE,
            _ => "NoExecute",
        }
    }

    /// A sentence for people.
    pub fn sentence(self) -> String {
        match self {
            Self::Xid(number) => format!("the NVIDIA driver has reported Xid {number}"),
            Self::DriverGone => "the NVIDIA driver does not answer".to_owned(),
            Self::DriverSilent => "the NVIDIA driver has not answered for long".to_owned(),
        }
    }
}

/// Whether an Xid says that the GPU has failed. `message` is all that the driver says of it. Before
/// its own words there may be the name of a process, which is a tenant's choice: the last word on
/// how severe it is counts.
fn is_of_gpu(number: u32, message: &str) -> bool {
    let mut words = message.split_whitespace();
    let mut severity = || words.rfind(|word| matches!(*word, "Fatal" | "Nonfatal"));
    OF_GPUS.contains(&number) || OF_LINKS.contains(&number) && severity() == Some("Fatal")
}

/// The PCI address and the number in a message of the kernel's log, if it reports a failure of the
/// GPU: `NVRM: Xid (PCI:0000:65:00): 79, …`. It must begin so: within other messages of the kernel
/// there are words of tenants, such as names of files.
pub fn xid(message: &str) -> Option<(String, u32)> {
    let rest = message.strip_prefix("NVRM: Xid (PCI:")?;
    let (address, rest) = rest.split_once("): ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    let number = digits.parse().ok()?;
    // The address becomes the name of a file.
    let is_plain = |b: u8| b.is_ascii_hexdigit() || b == b':' || b == b'.';
    if !is_of_gpu(number, rest) || address.len() > 16 || !address.bytes().all(is_plain) {
        return None;
    }
    let function = if address.contains('.') { "" } else { ".0" };
    Some((
        format!("{}{function}", address.to_ascii_lowercase()),
        number,
    ))
}

/// The Xid that a file names, if there is one.
fn xid_in(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The files of the failures, by PCI address.
#[derive(Clone, Debug)]
pub struct Failures {
    folder: PathBuf,
    /// Of the running system. A boot numbers loads and records anew, and a node may keep the files.
    boot: String,
}

impl Failures {
    /// The files in this folder, which is made when it is needed.
    pub fn at(folder: PathBuf) -> Self {
        let boot = fs::read_to_string(BOOT).unwrap_or_default();
        Self::of_boot(folder, boot.trim())
    }

    /// The same, for the boot of this name.
    pub fn of_boot(folder: PathBuf, boot: &str) -> Self {
        let boot = boot.to_owned();
        Self { folder, boot }
    }

    /// A number as it is noted.
    fn note_of(&self, number: u64) -> String {
        format!("{} {number}", self.boot)
    }

    /// The number in a note, if it is of this boot, or of an earlier version, which noted no boot.
    fn noted(&self, note: &str) -> Option<u64> {
        let (boot, number) = note.split_once(' ').unwrap_or((&self.boot, note));
        number.parse().ok().filter(|_| boot == self.boot)
    }

    /// Notes that the driver has reported an Xid for the GPU at a PCI address. A milder one
    /// does not take a deadly one's place.
    pub fn note(&self, pci: &str, number: u32) -> Result<(), PathError> {
        fs::create_dir_all(&self.folder).map_err(PathError::on("making", &self.folder))?;
        let path = self.folder.join(pci);
        let is_dead = xid_in(&path).is_some_and(|before| DEADLY.contains(&before));
        if is_dead && !DEADLY.contains(&number) {
            return Ok(());
        }
        files::write_whole(&path, number.to_string().as_bytes())
    }

    /// All failures that were noted, by PCI address. A file that is no number is none.
    pub fn all(&self) -> BTreeMap<String, Failure> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        files
            .filter_map(|file| {
                let pci = file.file_name().into_string().ok()?;
                // One that is being written.
                if pci.ends_with(".new") {
                    return None;
                }
                Some((pci, Failure::Xid(xid_in(&file.path())?)))
            })
            .collect()
    }

    /// The number of the last record of the kernel's log that was read for failures, if any was
    /// since the boot.
    pub fn last_record(&self) -> Option<u64> {
        let text = fs::read_to_string(self.folder.with_file_name(LAST_RECORD)).ok()?;
        self.noted(&text)
    }

    /// Notes that number, for another run of this program.
    pub fn note_record(&self, number: u64) -> Result<(), PathError> {
        let path = self.folder.with_file_name(LAST_RECORD);
        files::make_folder(path.parent().unwrap_or(&path))?;
        files::write_whole(&path, self.note_of(number).as_bytes())
    }

    /// Notes which load of the driver is there, and forgets the failures of an earlier one: a load
    /// resets the GPUs.
    pub fn note_load(&self, load: Option<u64>) {
        if let Some(Err(error)) = load.map(|load| self.follow(load)) {
            eprintln!("cgpu-dra: {error}");
        }
    }

    /// The same. The number of the last load is in a file, for another run of this program.
    fn follow(&self, load: u64) -> Result<(), PathError> {
        let path = self.folder.with_extension("load");
        match fs::read_to_string(&path) {
            Ok(before) if self.noted(&before) == Some(load) => return Ok(()),
            Ok(_) => self.forget()?,
            Err(_) => {}
        }
        files::make_folder(path.parent().unwrap_or(&path))?;
        files::write_whole(&path, self.note_of(load).as_bytes())
    }

    /// Forgets all.
    pub fn forget(&self) -> Result<(), PathError> {
        match fs::remove_dir_all(&self.folder) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(PathError::on("removing", &self.folder)(e))
            }
            _ => Ok(()),
        }
    }
}

/// The outcome of a look at the driver so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is there. A look in which it was asked itself took so long.
    There(Option<Duration>),
    /// It is not there.
    Missing,
    /// Nothing has come yet, or an error that says nothing about the driver.
    Nothing,
}

/// Whether the driver is there, by looks at it.
#[derive(Debug, Default)]
pub struct Presence {
    /// How long the last look took in which it was asked and answered.
    took: Duration,
    /// Since when no answer has said that it is there.
    silent_since: Option<Instant>,
    /// Since when answers have said that it is not there.
    missing_since: Option<Instant>,
    gone: bool,
}

impl Presence {
    /// The driver's failure, if it has one, after a look that began then. Only answers make a
    /// driver gone: on a node without instances a look has the driver initialise each GPU, which
    /// takes seconds for each. How long it took the last time says how long it may take.
    pub fn after(&mut self, told: Told, began: Instant, now: Instant) -> Option<Failure> {
        match told {
            Told::There(took) => {
                let took = took.unwrap_or(self.took);
                *self = Self {
                    took,
                    ..Self::default()
                };
                return None;
            }
            Told::Missing => {
                let since = *self.missing_since.get_or_insert(now);
                self.gone |= now.duration_since(since) >= PATIENCE;
            }
            Told::Nothing => {}
        }
        let since = *self.silent_since.get_or_insert(began);
        let patience = PATIENCE.max(self.took * 3);
        if self.gone {
            Some(Failure::DriverGone)
        } else if now.duration_since(since) >= patience {
            Some(Failure::DriverSilent)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log_name_failed_gpus() {
        assert_eq!(
            xid("NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus."),
            Some(("0000:65:00.0".to_owned(), 79))
        );
        assert_eq!(
            xid("NVRM: Xid (PCI:0000:0A:00): 48, pid='<unknown>', name=<unknown>"),
            Some(("0000:0a:00.0".to_owned(), 48))
        );
        for line in [
            "NVRM: Xid (PCI:../../etc): 79, x",
            "NVRM: Xid (PCI:0000:65:00): x",
            "usb 1-1: new device",
            "",
            // A tenant has an overlay mounted in a user namespace of its own.
            "overlayfs: failed to resolve 'NVRM: Xid (PCI:0000:65:00): 79, x': -2",
        ] {
            assert_eq!(xid(line), None, "{line}");
        }
    }

    #[test]
    fn what_programs_cause_fails_no_gpu() {
        // Graphics, memory, push buffers, copy engines, video engines, context switches, what
        // follows from another Xid, and numbers of later drivers.
        let programs = [
            13, 31, 32, 43, 44, 45, 60, 68, 69, 80, 93, 109, 137, 141, 154, 177,
        ];
        let engines = [39..=41, 70..=73, 75..=77, 82..=89, 96..=105, 126..=135];
        for number in programs.into_iter().chain(engines.into_iter().flatten()) {
            let line = format!("NVRM: Xid (PCI:0000:65:00): {number}, pid=7, name=train, Fatal x");
            assert_eq!(xid(&line), None, "{line}");
            assert!(!DEADLY.contains(&number));
        }
        for number in DEADLY.into_iter().chain([62, 64, 74, 94, 140, 158, 171]) {
            let line = format!("NVRM: Xid (PCI:0000:65:00): {number}, pid=7, name=train, x");
            assert_eq!(xid(&line), Some(("0000:65:00.0".to_owned(), number)));
        }
        let link = |said| {
            let line = format!("NVRM: Xid (PCI:0000:65:00): 145, RLW_REMAP {said} XC0 i0 Link 00");
            xid(&line).map(|found| found.1)
        };
        assert_eq!((link("Nonfatal"), link("Fatal")), (None, Some(145)));
        // A process has such a name.
        let named = "pid=7, name=a Fatal b, RLW_REMAP Nonfatal";
        assert_eq!((link(named), link("")), (None, None));
    }

    #[test]
    fn failures_outlive_the_program_until_they_are_forgotten() {
        let folder = std::env::temp_dir().join(format!("cgpu-failures-{}", std::process::id()));
        let failures = Failures::at(folder.clone());
        assert!(failures.all().is_empty());
        failures.note("0000:65:00.0", 79).expect("noted");
        let again = failures.clone().all();
        assert_eq!(again.get("0000:65:00.0"), Some(&Failure::Xid(79)));
        assert_eq!(Failure::Xid(79).effect(), "NoExecute");
        assert_eq!(Failure::Xid(94).effect(), "NoSchedule");
        // A reader finds the old number or the new one, and nothing else.
        let (file, other) = (folder.join("0000:65:00.0"), folder.with_extension("other"));
        fs::hard_link(file, &other).expect("linked");
        // A milder one that follows lets no pod stay.
        for (number, kept) in [(63, 79), (95, 95), (94, 95)] {
            failures.note("0000:65:00.0", number).expect("noted");
            let found = failures.all();
            assert_eq!(found.get("0000:65:00.0"), Some(&Failure::Xid(kept)));
        }
        assert_eq!(fs::read_to_string(&other).expect("read"), "79");
        fs::remove_file(other).expect("removed");
        fs::write(folder.join("0000:66:00.7.new"), "79").expect("written");
        assert_eq!(failures.all().len(), 1);
        failures.forget().expect("forgotten");
        failures.forget().expect("again");
        assert!(failures.all().is_empty());
    }

    #[test]
    fn only_a_new_load_forgets_failures() {
        let root = std::env::temp_dir().join(format!("cgpu-loads-{}", std::process::id()));
        let failures = Failures::at(root.join("failed"));
        failures.note("0000:65:00.0", 79).expect("noted");
        // The first load that is seen is the one that has failed.
        for load in [7, 7] {
            failures.follow(load).expect("followed");
            assert_eq!(failures.all().len(), 1);
        }
        failures.follow(8).expect("followed");
        assert!(failures.all().is_empty());
        // The node has kept its files over a reboot, in which the load got the same number.
        let folder = root.join("failed");
        let [before, after] = ["a", "b"].map(|boot| Failures::of_boot(folder.clone(), boot));
        before.follow(8).expect("followed");
        before.note("0000:65:00.0", 79).expect("noted");
        before.follow(8).expect("followed");
        assert_eq!(after.all().len(), 1);
        after.follow(8).expect("followed");
        assert!(after.all().is_empty());
        // A note of an earlier version.
        fs::write(root.join("failed.load"), "8").expect("written");
        after.note("0000:65:00.0", 79).expect("noted");
        after.follow(8).expect("followed");
        assert_eq!(after.all().len(), 1);
        fs::remove_dir_all(root).expect("removed");
    }

    /// A driver's failure after looks, in seconds: what was told, when the look began, and now.
    fn failures_after(looks: &[(Told, u64, u64)]) -> Vec<Option<Failure>> {
        let (mut driver, zero) = (Presence::default(), Instant::now());
        let at = |seconds| zero + Duration::from_secs(seconds);
        let after = |(told, began, now): &(_, _, _)| driver.after(*told, at(*began), at(*now));
        looks.iter().map(after).collect()
    }

    const SOON: Told = Told::There(Some(Duration::ZERO));

    #[test]
    fn one_failed_look_is_no_absence() {
        let looks = [
            (Told::Missing, 0, 0),
            (SOON, 2, 2),
            (Told::Missing, 100, 100),
            (Told::Missing, 104, 104),
            (Told::Missing, 106, 106),
            // It stays gone until it has answered.
            (Told::Nothing, 108, 110),
            (Told::There(None), 108, 112),
        ];
        let gone = Some(Failure::DriverGone);
        let expected = [None, None, None, None, gone, gone, None];
        assert_eq!(failures_after(&looks), expected);
    }

    #[test]
    fn a_call_without_an_end_evicts_nobody() {
        let looks = [
            (Told::Nothing, 10, 12),
            (Told::Nothing, 10, 16),
            (Told::Nothing, 10, 10_000),
            // The call comes back, and one failure is still no absence.
            (Told::Missing, 10, 10_001),
            (Told::Missing, 10_003, 10_003),
            (Told::Missing, 10_007, 10_007),
        ];
        let silent = Some(Failure::DriverSilent);
        let gone = Some(Failure::DriverGone);
        let expected = [None, silent, silent, silent, silent, gone];
        assert_eq!(failures_after(&looks), expected);
        assert_eq!(Failure::DriverSilent.effect(), NO_SCHEDULE);
    }

    /// An idle node with eight GPUs, which nothing keeps initialised.
    #[test]
    fn slow_looks_are_waited_for() {
        let slow = Told::There(Some(Duration::from_secs(16)));
        let looks = [
            (slow, 0, 16),
            (Told::Nothing, 46, 60),
            (slow, 46, 62),
            // It was not asked itself.
            (Told::There(None), 64, 64),
            (Told::Nothing, 92, 139),
            (Told::Nothing, 92, 140),
        ];
        let silent = Some(Failure::DriverSilent);
        assert_eq!(
            failures_after(&looks),
            [None, None, None, None, None, silent]
        );
    }
}
