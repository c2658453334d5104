// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Reads in the kernel's log which GPUs have failed. The log numbers its records, and the number of
//! the last one outlives this program: what was said while it was away counts as well, and what was
//! read once is not noted again when an operator has removed it.

use crate::{
    failures::{xid, Failures},
    once::Once,
};
use cgpu_client::path_error::PathError;
use nix::fcntl::OFlag;
use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

/// Longest record that a kernel gives out, bytes.
const LONGEST: usize = 8192;
/// How the driver's first message after a load begins (`nv.c`, `nvidia_init_module`).
const LOADED: &str = "NVRM: loading NVIDIA UNIX";

/// The number of a record, if it is the kernel's own: others can write into its log as well.
fn number(record: &str) -> Option<u64> {
    let mut fields = record.split(';').next()?.split(',');
    let facility: u32 = fields.next()?.parse::<u32>().ok()? >> 3;
    fields.next()?.parse().ok().filter(|_| facility == 0)
}

/// The state of a log that is read in parts.
struct Reader {
    failures: Failures,
    /// The number of the last record that was read since the boot, by this run of the program or an
    /// earlier one.
    last: Option<u64>,
    /// The records up to now were said before this program ever ran on the node in this boot.
    is_past: bool,
}

impl Reader {
    fn new(failures: Failures) -> Self {
        let last = failures.last_record();
        Self {
            failures,
            last,
            is_past: last.is_none(),
        }
    }

    /// Reads what there is of a log, which gives one record at a time and may begin anew.
    fn read(&mut self, log: &mut impl Read) -> io::Result<()> {
        let (before, mut record) = (self.last, [0; LONGEST]);
        let ended = loop {
            match log.read(&mut record) {
                Ok(0) => break Ok(()),
                Ok(length) => {
                    let text = record.get(..length).unwrap_or_default();
                    // The log is opened anew then, and has all of its records again.
                    if let Err(error) = self.take(&String::from_utf8_lossy(text)) {
                        break Err(io::Error::other(error));
                    }
                }
                // Records were overwritten before they were read.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        if let Some(last) = self.last.filter(|_| self.last != before) {
            if let Err(error) = self.failures.note_record(last) {
                eprintln!("cgpu-dra: {error}");
            }
        }
        self.is_past &= ended.is_err();
        ended
    }

    /// Takes a record. One that says of a failure which cannot be noted was not read.
    fn take(&mut self, record: &str) -> Result<(), PathError> {
        let is_new = |number: &u64| self.last.is_none_or(|last| *number > last);
        let Some(number) = number(record).filter(is_new) else {
            return Ok(());
        };
        let message = record.split_once(';').map_or("", |(_, message)| message);
        // Failures from before it, perhaps of the time while this program was away, have ended.
        if message.starts_with(LOADED) {
            if let Err(error) = self.failures.forget() {
                eprintln!("cgpu-dra: {error}");
            }
        }
        if let Some((pci, xid)) = xid(message).filter(|_| !self.is_past) {
            self.failures.note(&pci, xid)?;
            eprintln!("cgpu-dra: the GPU at {pci} has failed: Xid {xid}");
        }
        self.last = Some(number);
        Ok(())
    }
}

/// The kernel's log.
pub struct KernelLog {
    path: PathBuf,
    file: Option<File>,
    reader: Reader,
    last: Once,
}

impl KernelLog {
    /// The log at this path, `/dev/kmsg`. Failures in it are noted.
    pub fn new(path: PathBuf, failures: Failures) -> Self {
        Self {
            path,
            file: None,
            reader: Reader::new(failures),
            last: Once::default(),
        }
    }

    /// Reads what was said since the last time. A log that cannot be read is opened again the next
    /// time. `load` is that of the driver, see [`Failures::note_load`]. It is noted first, so that
    /// what a new load says is not forgotten with the failures of the one before.
    pub fn read_on(&mut self, load: Option<u64>) {
        self.reader.failures.note_load(load);
        let (ended, path) = (self.try_read(), self.path.display());
        let said = |why| format!("cannot follow {path}, so no Xid is seen: {why}");
        if ended.is_err() {
            self.file = None;
        }
        self.last.say(ended.err().map(said));
    }

    fn try_read(&mut self) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new()
                .read(true)
                .custom_flags(OFlag::O_NONBLOCK.bits())
                .open(&self.path)?,
        };
        let ended = self.reader.read(&mut file);
        self.file = Some(file);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::Failure;
    use std::{collections::VecDeque, fs};

    /// A log that gives its records and is then at its end, or fails.
    struct Records(VecDeque<io::Result<String>>);

    /// A record of this number.
    fn record(number: u64, xid: u32) -> String {
        let said = format!("NVRM: Xid (PCI:0000:65:00): {xid}, pid=1, x");
        format!("3,{number},99,-;{said}\n SUBSYSTEM=pci\n")
    }

    impl Records {
        fn of(xids: &[(u64, u32)]) -> Self {
            let of = |(number, xid): &(u64, u32)| Ok(record(*number, *xid));
            Self(xids.iter().map(of).collect())
        }
    }

    impl Read for Records {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let next = self.0.pop_front();
            let text = next.unwrap_or(Err(ErrorKind::WouldBlock.into()))?;
            to[..text.len()].copy_from_slice(text.as_bytes());
            Ok(text.len())
        }
    }

    fn failures(name: &str) -> (PathBuf, Failures) {
        let root = std::env::temp_dir().join(format!("cgpu-log-{name}-{}", std::process::id()));
        (root.clone(), Failures::at(root.join("failed")))
    }

    #[test]
    fn xids_of_an_absence_are_read_once() {
        let (root, failures) = failures("absence");
        let restart = || Reader::new(failures.clone());
        let mut first = restart();
        // Said before this program was there at all.
        first.read(&mut Records::of(&[(4, 79)])).expect("read");
        assert!(failures.all().is_empty());
        let after = [(4, 79), (5, 13), (6, 48)];
        restart().read(&mut Records::of(&after)).expect("read");
        assert_eq!(failures.all().len(), 1);
        // An operator removes it.
        failures.forget().expect("removed");
        restart().read(&mut Records::of(&after)).expect("read");
        assert!(failures.all().is_empty());
        let mut again = restart();
        again.read(&mut Records::of(&after)).expect("read");
        again.read(&mut Records::of(&[(7, 95)])).expect("read");
        assert_eq!(failures.all().len(), 1);
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn a_boot_begins_the_log_anew() {
        let (root, failures) = failures("boot");
        let restart = |boot| Reader::new(Failures::of_boot(root.join("failed"), boot));
        restart("a")
            .read(&mut Records::of(&[(900, 13)]))
            .expect("read");
        // The node keeps its files over the reboot.
        let mut again = restart("b");
        again.read(&mut Records::of(&[(1, 48)])).expect("read");
        assert!(failures.all().is_empty());
        again.read(&mut Records::of(&[(2, 79)])).expect("read");
        assert_eq!(failures.all().len(), 1);
        failures.forget().expect("removed");
        restart("b")
            .read(&mut Records::of(&[(2, 79), (3, 95)]))
            .expect("read");
        let left: Vec<_> = failures.all().into_values().collect();
        assert_eq!(left, [Failure::Xid(95)]);
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn a_log_that_fails_is_read_on() {
        let (root, failures) = failures("fails");
        let mut reader = Reader::new(failures.clone());
        reader.read(&mut Records::of(&[(1, 13)])).expect("read");
        let mut log = Records::of(&[(1, 13), (2, 31)]);
        log.0.push_back(Err(ErrorKind::BrokenPipe.into()));
        log.0.push_back(Err(io::Error::other("gone")));
        assert!(reader.read(&mut log).is_err());
        let rest = [(2, 31), (3, 79)];
        reader.read(&mut Records::of(&rest)).expect("read");
        assert_eq!((failures.all().len(), failures.last_record()), (1, Some(3)));
        fs::remove_dir_all(&root).expect("removed");
        // One that cannot be opened is tried again.
        let path = root.with_extension("kmsg");
        let mut log = KernelLog::new(path.clone(), failures.clone());
        log.read_on(None);
        assert_eq!(failures.last_record(), None);
        fs::write(&path, "6,1,1,-;usb 1-1: new device\n").expect("written");
        log.read_on(None);
        assert_eq!(failures.last_record(), Some(1));
        fs::remove_file(path).expect("removed");
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn a_failure_not_noted_is_read_again() {
        let (root, failures) = failures("again");
        fs::create_dir_all(&root).expect("made");
        let path = root.join("kmsg");
        let mut log = KernelLog::new(path.clone(), failures.clone());
        // No folder can be where a file is.
        let folder = root.join("failed");
        fs::write(&folder, "").expect("written");
        fs::write(&path, "6,1,1,-;usb 1-1: new device\n").expect("written");
        log.read_on(None);
        log.file = None;
        fs::write(&path, record(2, 79)).expect("written");
        for _ in 0..2 {
            log.read_on(None);
            assert_eq!(failures.last_record(), Some(1));
        }
        fs::remove_file(folder).expect("removed");
        log.read_on(None);
        let found: Vec<_> = failures.all().into_values().collect();
        assert_eq!(
            (found, failures.last_record()),
            (vec![Failure::Xid(79)], Some(2))
        );
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn a_new_load_keeps_its_own_failures() {
        let (root, failures) = failures("load");
        fs::create_dir_all(&root).expect("made");
        let path = root.join("kmsg");
        fs::write(&path, "6,1,1,-;usb 1-1: new device\n").expect("written");
        let mut log = KernelLog::new(path.clone(), failures.clone());
        log.read_on(Some(1));
        for (load, number, xid) in [(1, 2, 79), (2, 3, 63)] {
            fs::write(&path, record(number, xid)).expect("written");
            log.file = None;
            log.read_on(Some(load));
            log.read_on(Some(load));
            let found: Vec<_> = failures.all().into_values().collect();
            assert_eq!(found, [Failure::Xid(xid)]);
        }
        // The load is noticed before the log is read that tells of failures from before it.
        let loaded = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.142";
        let said = [Ok(record(4, 48)), Ok(format!("3,5,9,-;{loaded}\n"))];
        let mut reader = Reader::new(failures.clone());
        reader.read(&mut Records(said.into())).expect("read");
        assert!(failures.all().is_empty());
        fs::remove_dir_all(root).expect("removed");
    }

    #[test]
    fn only_the_kernel_is_believed() {
        assert_eq!(number("3,1234,999,-;NVRM: Xid"), Some(1234));
        // Of the facility `user`.
        assert_eq!(number("11,1234,999,-;NVRM: Xid"), None);
        for odd in ["", ";", "3", "3,", "x,1,1,-;", "3;1,2", "-1,1,1,-;"] {
            assert_eq!(number(odd), None, "{odd}");
        }
    }
}
