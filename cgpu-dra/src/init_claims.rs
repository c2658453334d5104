// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Claims of a converted pod, and which of them its init containers share with other containers.

use crate::templates::Wanted;

/// A claim of the converted pod.
pub(crate) struct PodClaim<'a> {
    pub(crate) claim: String,
    /// The container that it was made for.
    pub(crate) container: &'a str,
    pub(crate) wanted: Wanted,
    pub(crate) is_sidecar: bool,
    pub(crate) is_init: bool,
}

/// Finds an init container a claim of another container, and has that be as large as the larger of
/// the two: init containers have ended before the others start. Other systems count so too. Beside
/// sidecars they run at the same time.
pub(crate) fn share(
    held: &mut [PodClaim<'_>],
    container: &str,
    wanted: Wanted,
    notes: &mut Vec<String>,
) -> Option<String> {
    let others = held.iter_mut().filter(|held| !held.is_sidecar);
    let fits = others.filter_map(|held| Some((held.wanted.larger(wanted)?, held)));
    // The one that grows least.
    let largest = fits.max_by_key(|(_, held)| held.wanted.memory_bytes.unwrap_or(u64::MAX));
    let Some((larger, held)) = largest else {
        if held.iter().any(|held| !held.is_sidecar) {
            notes.push(format!(
                "container {container}: its claim is set aside beside those of the other \
                 containers, because it asks for another number of GPUs or another priority"
            ));
        }
        return None;
    };
    if larger != held.wanted && !held.is_init {
        notes.push(format!(
            "container {}: it shares a claim with the init container {container}, which asks for \
             more, and may use all of that",
            held.container
        ));
    }
    held.wanted = larger;
    Some(held.claim.clone())
}

#[cfg(test)]
mod tests {
    use crate::{asked::AskedPod, compat::convert};
    use cgpu_uapi::Priority;
    use serde_json::{json, Value};

    /// Claims of a pod with their templates, which claim each container has, and the notes
    /// beside that of the weight.
    fn shared(init: Value, main: Value) -> (Vec<String>, Vec<String>, Vec<String>) {
        let pod = json!({"spec": {"initContainers": init, "containers": main}});
        let pod: AskedPod = serde_json::from_value(pod).expect("a pod");
        let done = convert(&pod, Priority::High).expect("read");
        let done = done.expect("converted");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let last = done
            .patch
            .iter()
            .rfind(|c| c["path"] == "/spec/resourceClaims");
        let claims = last.expect("claims")["value"].as_array().expect("a list");
        let claims = claims.iter().map(|claim| {
            let template = text(&claim["resourceClaimTemplateName"]);
            format!("{} {template}", text(&claim["name"]))
        });
        let uses = done.patch.iter().filter_map(|change| {
            let at = change["path"].as_str()?.strip_suffix("/resources/claims")?;
            let name = text(&change["value"][0]["name"]);
            Some(format!("{} {name}", at.strip_prefix("/spec/")?))
        });
        let of_weight = |note: &String| note.starts_with("without a part of the GPU's compute");
        let notes = done.notes.into_iter().filter(|note| !of_weight(note));
        (claims.collect(), uses.collect(), notes.collect())
    }

    fn asks(name: &str, limits: Value) -> Value {
        json!({"name": name, "resources": {"limits": limits}})
    }

    /// As the sum that Kubernetes makes of other resources.
    #[test]
    fn init_containers_share_the_largest_claim() {
        let of = |mib: u64| json!({"nvidia.com/gpumem": mib});
        let main = json!([asks("a", of(1000)), asks("b", of(8000))]);
        let init = json!([asks("x", of(16000)), asks("y", of(2000))]);
        let (claims, uses, notes) = shared(init, main.clone());
        assert_eq!(claims, ["cgpu-0 cgpu-1000m-x1", "cgpu-1 cgpu-16000m-x1"]);
        let expected = [
            "containers/0 cgpu-0",
            "containers/1 cgpu-1",
            "initContainers/0 cgpu-1",
            "initContainers/1 cgpu-1",
        ];
        assert_eq!(uses, expected);
        assert!(notes[0].contains("container b: it shares"), "{notes:?}");
        // No main container has more than it asked for.
        let (claims, _, notes) = shared(json!([asks("x", of(8000))]), main);
        assert_eq!(claims, ["cgpu-0 cgpu-1000m-x1", "cgpu-1 cgpu-8000m-x1"]);
        assert_eq!(notes, Vec::<String>::new());
        // They run one after the other.
        let init = json!([asks("x", of(1)), asks("y", of(4000)), asks("z", of(2))]);
        let (claims, uses, notes) = shared(init, json!([{"name": "main"}]));
        assert_eq!(claims, ["cgpu-init-0 cgpu-4000m-x1"]);
        assert_eq!((uses.len(), notes), (3, vec![]));
    }

    #[test]
    fn what_no_claim_serves_is_set_aside_beside() {
        let mem = json!({"nvidia.com/gpumem": 1000});
        let main = || json!([asks("main", mem.clone())]);
        let mut sidecar = asks("side", mem.clone());
        sidecar["restartPolicy"] = "Always".into();
        let two = json!({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000});
        let high = json!({"nvidia.com/priority": 0, "nvidia.com/gpumem": 1000});
        for (init, is_noted) in [
            (sidecar, false),
            (asks("two", two), true),
            (asks("high", high), true),
        ] {
            let (claims, uses, notes) = shared(json!([init]), main());
            assert_eq!((claims.len(), notes.len()), (2, usize::from(is_noted)));
            assert_eq!(uses[1], "initContainers/0 cgpu-init-0");
        }
    }
}
