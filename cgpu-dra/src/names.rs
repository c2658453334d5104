// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The names that this driver uses. What users of the cluster write reaches no name: an instance is
//! named by the claim's uid, which the apiserver made and which is checked here again.

use cgpu_client::pods;

/// The driver.
pub const DRIVER: &str = "gpu.cgpu.io";
/// The socket by which the kubelet registers the driver. The kubelet names the socket's path, with
/// `%2F` for `/`, as the host that it talks to. A host may have no `%`, and calls to such a one are
/// refused by the HTTP/2 library; what is before an `@` may.
pub const REGISTRATION: &str = "gpu.cgpu.io@reg.sock";
/// Vendor and class of the CDI devices: other ones than `cgpuctl cdi generate` writes.
pub const CDI_KIND: &str = "cgpu.io/claim";
/// Longest name of an object.
const LONGEST: usize = 253;

/// The uid of a claim: five groups of hexadecimal digits, so that it can be part of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(String);

impl Uid {
    /// Checks a text.
    pub fn new(text: &str) -> Option<Self> {
        let groups = text.split('-').map(str::len);
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b) || b == b'-';
        (groups.eq([8, 4, 4, 4, 12]) && text.bytes().all(hex)).then(|| Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the claim's instances.
    pub fn instance(&self) -> String {
        format!("{}{}", pods::CLAIM, self.0)
    }

    /// The name of the claim's CDI device for a GPU.
    pub fn cdi_device(&self, minor: u32) -> String {
        format!("{}-{}", self.0, device(minor))
    }

    /// The same as engines are asked for it.
    pub fn cdi_id(&self, minor: u32) -> String {
        format!("{CDI_KIND}={}", self.cdi_device(minor))
    }
}

/// The claim behind the name of an instance.
pub fn uid_of(instance: &str) -> Option<Uid> {
    Uid::new(instance.strip_prefix(pods::CLAIM)?)
}

/// The name of a GPU in the slice.
pub fn device(minor: u32) -> String {
    format!("gpu-{minor}")
}

/// Whether a text can be part of the path of an object in the apiserver.
pub fn is_object(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= LONGEST
        && text.bytes().all(plain)
        && ends
            .iter()
            .all(|end| end.is_some_and(|b| b.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgpu_uapi::Name;

    const UID: &str = "7b2ea4b2-0000-4000-8000-00000000000f";

    #[test]
    fn a_uid_is_a_name_of_everything() {
        let uid = Uid::new(UID).expect("a uid");
        assert!(Name::new(&uid.instance()).is_some());
        assert!(cgpu_client::cdi::is_name(&uid.cdi_device(15)));
        assert_eq!(uid_of(&uid.instance()), Some(uid));
    }

    #[test]
    fn nothing_else_is_a_uid() {
        for text in [
            "",
            "-",
            "../../../etc/passwd",
            "7b2ea4b2-0000-4000-8000-00000000000",
            "7b2ea4b2-0000-4000-8000-00000000000f0",
            "7b2ea4b2-0000-4000-8000-00000000000/",
            "7B2EA4B2-0000-4000-8000-00000000000F",
            "7b2ea4b2-00-004000-8000-00000000000f",
        ] {
            assert_eq!(Uid::new(text), None, "{text}");
        }
        assert_eq!(uid_of("train"), None);
        assert_eq!(uid_of(UID), None);
    }

    #[test]
    fn only_names_of_objects_reach_the_apiserver() {
        for name in ["a", "train-gpu-abc12", "a.b", "0"] {
            assert!(is_object(name), "{name}");
        }
        let long = "a".repeat(254);
        for name in [
            "", "..", "a/b", "A", "-a", "a-", "a b", "a?x=1", "\u{e9}", &long,
        ] {
            assert!(!is_object(name), "{name}");
        }
    }
}
