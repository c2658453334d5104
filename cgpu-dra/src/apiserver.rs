// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The apiserver's words when it refuses.

/// The sentence of an error, without the object around it that the apiserver sends as well.
pub fn sentence(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
