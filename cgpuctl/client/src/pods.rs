// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Names and files of the instances of pods. `cgpu-dra` makes and destroys these instances, and
//! other programs of the host leave them alone.

use std::path::Path;

/// In front of a claim's uid: the name of its instances.
pub const CLAIM: &str = "claim-";
/// In front of a slot's name: the name of its instance.
pub const SLOT: &str = "slot-";
/// The folder of what `cgpu-dra` knows until the next boot.
pub const STATE: &str = "/run/cgpu/dra";
/// The folder in it with a file for each claim, UID.json.
pub const CLAIMS: &str = "claims";
/// The name of the slots' CDI file. It is there as long as there are slots.
pub const SLOTS_FILE: &str = "cgpu.io-slot.json";

/// Whether an instance of this name belongs to a pod, or waits for one. `state` and `cdi` are the
/// folders of that state and of the CDI files.
pub fn have(name: &str, state: &Path, cdi: &Path) -> bool {
    let of_claim = |uid| state.join(CLAIMS).join(format!("{uid}.json")).exists();
    name.starts_with(SLOT) && cdi.join(SLOTS_FILE).exists()
        || name.strip_prefix(CLAIM).is_some_and(of_claim)
}
