// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The scheduler of a pod whose resources became claims.

use crate::asked::AskedText;
use serde_json::{json, Value};

/// The scheduler of Kubernetes. The apiserver gives a pod this name if it has none.
const DEFAULT: &str = "default-scheduler";
/// HAMi's scheduler. Its webhook gives this name to pods, and some have it in their manifests. The
/// other systems extend the scheduler of Kubernetes, which keeps its name.
const HAMI: &str = "hami-scheduler";

/// Changes a pod that would wait forever for the scheduler of a system that is not there.
pub(crate) fn choose(named: Option<&AskedText>, patch: &mut Vec<Value>, notes: &mut Vec<String>) {
    match named.map(|name| &*name.0) {
        None | Some("" | DEFAULT) => {}
        Some(HAMI) => {
            patch.push(json!({"op": "add", "path": "/spec/schedulerName", "value": DEFAULT}));
            notes.push(format!(
                "schedulerName: {HAMI} is not kept: the scheduler of Kubernetes places pods with \
                 claims"
            ));
        }
        Some(other) => notes.push(format!(
            "schedulerName: {other} is kept: the pod waits forever if this scheduler knows no \
             claims (DRA)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str) -> (Vec<Value>, String) {
        let (mut patch, mut notes) = (vec![], vec![]);
        choose(Some(&AskedText(name.to_owned())), &mut patch, &mut notes);
        (patch, notes.join("\n"))
    }

    #[test]
    fn no_pod_waits_for_hamis_scheduler() {
        let (patch, note) = chosen("hami-scheduler");
        let change = json!({"op": "add", "path": "/spec/schedulerName",
            "value": "default-scheduler"});
        assert_eq!(patch, [change]);
        assert!(note.contains("hami-scheduler is not kept"), "{note}");
    }

    #[test]
    fn another_scheduler_is_kept() {
        let (patch, note) = chosen("volcano");
        assert!(patch.is_empty());
        assert!(note.contains("volcano is kept"), "{note}");
        for usual in ["", "default-scheduler"] {
            assert_eq!(chosen(usual), (vec![], String::new()));
        }
    }
}
