// SPDX-License-Identifier: GPL-2.0 OR MIT
//! JSON patches of pods whose resources became claims.

use crate::asked::AskedResources;
use serde_json::{json, Value};

/// On a converted pod: its wishes that are not kept.
pub const NOT_KEPT: &str = "cgpu.io/not-kept";

/// Changes a pod so that a list has more elements.
pub(crate) fn append(patch: &mut Vec<Value>, list: &str, is_there: bool, more: Vec<Value>) {
    if is_there {
        let add = |one| json!({"op": "add", "path": format!("{list}/-"), "value": one});
        patch.extend(more.into_iter().map(add));
    } else {
        patch.push(json!({"op": "add", "path": list, "value": more}));
    }
}

/// The change of a pod that writes on it which wishes are not kept.
pub(crate) fn annotate(has_annotations: bool, note: String) -> Value {
    if has_annotations {
        let path = format!("/metadata/annotations/{}", NOT_KEPT.replace('/', "~1"));
        json!({"op": "add", "path": path, "value": note})
    } else {
        json!({"op": "add", "path": "/metadata/annotations", "value": {NOT_KEPT: note}})
    }
}

/// Changes a container's resources so that the names that were converted are gone, and a claim is
/// there.
pub(crate) fn use_claim(patch: &mut Vec<Value>, at: &str, resources: &AskedResources, claim: &str) {
    for (list, found) in [
        ("limits", &resources.limits),
        ("requests", &resources.requests),
    ] {
        for name in found.iter().flat_map(|found| found.0.keys()) {
            let name = name.replace('/', "~1");
            patch.push(json!({"op": "remove", "path": format!("{at}/{list}/{name}")}));
        }
    }
    let more = vec![json!({"name": claim})];
    append(
        patch,
        &format!("{at}/claims"),
        resources.claims.is_some(),
        more,
    );
}
