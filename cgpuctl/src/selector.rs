// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How a GPU is named on the command line: by minor number (`0`, the `N` of `/dev/nvidiaN`), by
//! `nvidia-smi`'s index (`index:0`), by UUID (`GPU-…`) or by PCI address (`0000:17:00.0`, also
//! without the domain or with the eight digits that nvidia-smi prints). `all` are all of them.

use cgpu_uapi as uapi;
use std::{fmt, str::FromStr};

/// A GPU as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// All GPUs.
    All,
    /// `N` of `/dev/nvidiaN`.
    Minor(u32),
    /// The number that `nvidia-smi` gives it: its place in the order of PCI addresses.
    Index(usize),
    /// `GPU-…`, in lower case behind the prefix.
    Uuid(String),
    /// A PCI address.
    Pci(PciAddress),
}

/// The place of a GPU on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// Why a text names no GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "name the GPU by minor number (0), nvidia-smi's index (index:0), UUID (GPU-…) or PCI address \
     (0000:17:00.0), or say all"
)]
pub struct SelectorError;

impl FromStr for PciAddress {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let (rest, function) = text.rsplit_once('.').ok_or(SelectorError)?;
        let (rest, device) = rest.rsplit_once(':').ok_or(SelectorError)?;
        let (domain, bus) = rest.split_once(':').unwrap_or(("0", rest));
        let hex = |digits: &str, longest: usize| {
            let valid = (1..=longest).contains(&digits.len())
                && digits.bytes().all(|b| b.is_ascii_hexdigit());
            valid
                .then(|| u32::from_str_radix(digits, 16).ok())
                .flatten()
                .ok_or(SelectorError)
        };
        let byte = |digits, longest| u8::try_from(hex(digits, longest)?).map_err(|_| SelectorError);
        Ok(Self {
            domain: hex(domain, 8)?,
            bus: byte(bus, 2)?,
            device: byte(device, 2)?,
            function: byte(function, 1)?,
        })
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            // The largest number stands for "any" in the ABI and names no GPU.
            return match text.parse() {
                Ok(minor) if minor != uapi::GPU_ANY => Ok(Self::Minor(minor)),
                _ => Err(SelectorError),
            };
        }
        if text == "all" {
            return Ok(Self::All);
        }
        if let Some(index) = text.strip_prefix("index:") {
            return index.parse().map(Self::Index).map_err(|_| SelectorError);
        }
        if text
            .get(..4)
            .is_some_and(|p| p.eq_ignore_ascii_case("GPU-"))
        {
            let digits = text.get(4..).unwrap_or_default().to_ascii_lowercase();
            return Ok(Self::Uuid(format!("GPU-{digits}")));
        }
        text.parse().map(Self::Pci)
    }
}

impl Selector {
    /// Whether it names this GPU of all.
    pub fn names(&self, gpu: &uapi::Gpu, all: &[uapi::Gpu]) -> bool {
        match self {
            Self::All => true,
            Self::Index(place) => index(all, gpu) == *place,
            Self::Minor(minor) => gpu.minor == *minor,
            Self::Uuid(uuid) => uapi::text(&gpu.uuid).eq_ignore_ascii_case(uuid),
            Self::Pci(address) => uapi::text(&gpu.pci).parse() == Ok(*address),
        }
    }
}

/// The number that `nvidia-smi` gives a GPU: how many have a lower PCI address.
pub fn index(all: &[uapi::Gpu], gpu: &uapi::Gpu) -> usize {
    let place = |gpu: &uapi::Gpu| {
        let address = uapi::text(&gpu.pci).parse::<PciAddress>().ok();
        address.map(|a| (a.domain, a.bus, a.device, a.function))
    };
    all.iter().filter(|other| place(other) < place(gpu)).count()
}

impl fmt::Display for Selector {
    /// As in "there is no …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("GPU"),
            Self::Index(index) => write!(f, "GPU with nvidia-smi's index {index}"),
            Self::Minor(minor) => write!(f, "GPU {minor}"),
            Self::Uuid(uuid) => write!(f, "GPU with the UUID {uuid}"),
            Self::Pci(a) => write!(
                f,
                "GPU at {:04x}:{:02x}:{:02x}.{:x}",
                a.domain, a.bus, a.device, a.function
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_gpu_has_three_kinds_of_names() {
        let mut gpu = uapi::Gpu::new_zeroed();
        gpu.minor = 3;
        gpu.uuid[..40].copy_from_slice(b"GPU-5a4c8b8e-0f7d-4b1e-9c2d-1234567890ab");
        gpu.pci[..12].copy_from_slice(b"0000:17:00.0");
        for text in [
            "3",
            "03",
            "GPU-5a4c8b8e-0f7d-4b1e-9c2d-1234567890ab",
            "gpu-5A4C8B8E-0F7D-4B1E-9C2D-1234567890AB",
            "0000:17:00.0",
            "17:00.0",
            "00000000:17:00.0",
        ] {
            let selector: Selector = text.parse().expect(text);
            assert!(selector.names(&gpu, &[gpu]), "{text}");
        }
        for text in ["2", "GPU-5a4c8b8e", "0001:17:00.0", "17:00.1", "18:00.0"] {
            let selector: Selector = text.parse().expect(text);
            assert!(!selector.names(&gpu, &[gpu]), "{text}");
        }
    }

    #[test]
    fn index_counts_in_order_of_addresses() {
        let gpus = [
            (0, "0001:03:00.0"),
            (1, "0000:a1:00.0"),
            (2, "0000:17:00.0"),
        ]
        .map(|(minor, pci)| {
            let mut gpu = uapi::Gpu::new_zeroed();
            gpu.minor = minor;
            gpu.pci[..12].copy_from_slice(pci.as_bytes());
            gpu
        });
        assert_eq!(gpus.map(|gpu| index(&gpus, &gpu)), [2, 1, 0]);
        let named = |text: &str| {
            let selector: Selector = text.parse().expect(text);
            let named = gpus.iter().filter(|gpu| selector.names(gpu, &gpus));
            named.map(|gpu| gpu.minor).collect::<Vec<_>>()
        };
        assert_eq!(named("index:0"), [2]);
        assert_eq!(named("index:2"), [0]);
        assert_eq!(named("index:3"), [0; 0]);
        assert_eq!(named("all"), [0, 1, 2]);
    }

    #[test]
    fn bad_names_are_refused() {
        for text in [
            "",
            "index:",
            "index:x",
            "x",
            "-1",
            "4294967295",
            "99999999999",
            "17:00",
            "17.0",
            ":00.0",
            "123:00.0",
            "17:100.0",
            "17:00.00",
            "g7:00.0",
            "000000000:17:00.0",
        ] {
            assert_eq!(text.parse::<Selector>(), Err(SelectorError), "{text:?}");
        }
    }
}
