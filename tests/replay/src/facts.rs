// SPDX-License-Identifier: GPL-2.0
//! Differences between the branches of the driver that the programs meet: sizes of parameters, as
//! `tests/abi/facts.txt` has them of NVIDIA's headers.

/// The releases' facts, a column for each branch.
const FACTS: &str = include_str!("../../abi/facts.txt");
/// The release as which the stand-in speaks; it has no version that the kernel shows.
const STAND_IN: &str = "580.159.04";

/// The release of the driver that is loaded.
#[must_use]
pub fn release() -> String {
    let loaded = std::fs::read_to_string("/sys/module/nvidia/version");
    loaded.map_or_else(|_| STAND_IN.to_owned(), |text| text.trim().to_owned())
}

/// Its branch.
#[must_use]
pub fn branch() -> u32 {
    branch_of(&release())
}

fn branch_of(release: &str) -> u32 {
    let word = release.split('.').next();
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Bytes of a control's parameters in the driver that is loaded; `None` if its branch has no such
/// control.
#[must_use]
pub fn control_size(command: u32) -> Option<usize> {
    size_in(branch(), "control", command)
}

/// Bytes of the parameters of a request to UVM, by its number, in the same way.
#[must_use]
pub fn uvm_size(request: u32) -> Option<usize> {
    size_in(branch(), "uvm", request)
}

fn size_in(branch: u32, kind: &str, number: u32) -> Option<usize> {
    let mut lines = FACTS.lines().map(|line| line.split(' '));
    let releases = lines.by_ref().find_map(|mut words| {
        let found = words.next() == Some("releases");
        found.then(|| words.collect::<Vec<_>>())
    })?;
    let column = releases.iter().position(|r| branch_of(r) == branch)?;
    let number = number.to_string();
    lines.find_map(|mut words| {
        if words.next() != Some(kind) {
            return None;
        }
        let values: Vec<&str> = words.skip(1).collect();
        // One value is that of all branches.
        let value = values.get(column).or(values.first())?;
        let mut numbers = value.split(',');
        let found = numbers.next()? == number;
        found.then(|| numbers.next()?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_branchs_own() {
        // FB_GET_INFO_V2, which grew; GPU_GET_PIDS, which did not.
        assert_eq!(size_in(550, "control", 0x2080_1303), Some(444));
        assert_eq!(size_in(580, "control", 0x2080_1303), Some(1028));
        assert_eq!(size_in(550, "control", 0x2080_018d), Some(3812));
        assert_eq!(size_in(580, "control", 0x2080_ffff), None);
        // UVM_MAP_EXTERNAL_ALLOCATION, which has an entry for each GPU that there can be.
        assert_eq!(size_in(535, "uvm", 33), Some(1200));
        assert_eq!(size_in(550, "uvm", 33), Some(9264));
        assert_eq!(size_in(550, "uvm", 3333), None);
    }
}
