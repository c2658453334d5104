// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The capabilities of an instance, as they are written on the command line: `compute,utility`.

use crate::text::enumerate;
use cgpu_uapi::capability::NAMES;
use serde::{Serialize, Serializer};
use std::{fmt, str::FromStr};

/// Bits of [`cgpu_uapi::capability`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u32);

/// Not the name of a capability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{word:?} is no capability; name some of {}, with commas between them",
    known()
)]
pub struct UnknownWord {
    word: String,
}

/// All names, for sentences.
pub fn known() -> String {
    enumerate(&NAMES.map(|(_, name)| name), "and")
}

impl Capabilities {
    /// Their names, in one order always.
    pub fn names(self) -> Vec<&'static str> {
        let own = NAMES.into_iter().filter(|(bit, _)| self.0 & bit != 0);
        own.map(|(_, name)| name).collect()
    }
}

impl FromStr for Capabilities {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bits = 0;
        for word in text.split(',') {
            let known = NAMES.into_iter().find(|(_, name)| *name == word);
            bits |= known
                .ok_or_else(|| UnknownWord {
                    word: word.to_owned(),
                })?
                .0;
        }
        Ok(Self(bits))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(","))
    }
}

/// A list of names.
impl Serialize for Capabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.names().serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgpu_uapi::capability::{ALL, COMPUTE, DEFAULT, RDMA};

    #[test]
    fn words_become_bits_and_bits_words() {
        assert_eq!("rdma,compute".parse(), Ok(Capabilities(COMPUTE | RDMA)));
        assert_eq!(Capabilities(COMPUTE | RDMA).to_string(), "compute,rdma");
        assert_eq!(
            Capabilities(DEFAULT).to_string().parse(),
            Ok(Capabilities(DEFAULT))
        );
        assert_eq!(Capabilities(ALL).names().len(), NAMES.len());
    }

    #[test]
    fn an_unknown_capability_is_named() {
        for text in [
            "",
            "compute,",
            "compute utility",
            "all",
            "display",
            "COMPUTE",
        ] {
            let error = text.parse::<Capabilities>().expect_err(text).to_string();
            assert!(error.contains("compute, utility, graphics"), "{error}");
        }
    }
}
