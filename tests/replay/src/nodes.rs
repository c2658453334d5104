// SPDX-License-Identifier: GPL-2.0
//! Which real file a path of the recording stands for.

/// The folder of the device files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// The driver's own.
    Direct,
    /// An instance's proxy nodes, in this folder.
    Instance(String),
}

impl Nodes {
    /// The real path; nothing for one that an instance does not have.
    pub fn path(&self, recorded: &str) -> Option<String> {
        match self {
            Self::Direct => Some(recorded.to_owned()),
            Self::Instance(folder) => {
                let name = recorded.strip_prefix("/dev/")?;
                (!Self::is_optional(recorded)).then(|| format!("{folder}/{name}"))
            }
        }
    }

    /// Whether the driver's own files are used.
    pub fn is_direct(&self) -> bool {
        *self == Self::Direct
    }

    /// Whether a program can do without the file (capabilities, procfs, display): what depends on
    /// such a descriptor is passed over where the file is missing.
    pub fn is_optional(recorded: &str) -> bool {
        recorded != "/dev/nvidiactl" && recorded != "/dev/nvidia-uvm" && minor(recorded).is_none()
    }
}

/// `N` of `/dev/nvidiaN`.
pub fn minor(path: &str) -> Option<u32> {
    let digits = path.strip_prefix("/dev/nvidia")?;
    digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_three_kinds_of_nodes() {
        let nodes = Nodes::Instance("/run/cgpu/dev/a".into());
        let path = |p| nodes.path(p);
        assert_eq!(
            path("/dev/nvidia3").as_deref(),
            Some("/run/cgpu/dev/a/nvidia3")
        );
        assert_eq!(
            path("/dev/nvidia-uvm").as_deref(),
            Some("/run/cgpu/dev/a/nvidia-uvm")
        );
        assert_eq!(path("/dev/nvidia-caps/nvidia-cap1"), None);
        assert_eq!(path("/proc/driver/nvidia/params"), None);
        assert_eq!(minor("/dev/nvidia-uvm"), None);
        assert_eq!(minor("/dev/nvidia"), None);
    }
}
