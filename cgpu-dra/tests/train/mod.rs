// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A claim for 8 GiB of the first GPU, as it is prepared.

use cgpu_dra::claims::{Plan, Share};

/// Its uid.
pub(crate) const UID: &str = "7b2ea4b2-0000-4000-8000-00000000000f";

pub(crate) fn plan() -> Plan {
    Plan {
        namespace: "team-a".to_owned(),
        name: "train".to_owned(),
        shares: vec![Share {
            request: "gpu".to_owned(),
            device: "gpu-0".to_owned(),
            share_id: None,
            minor: 0,
            memory_bytes: 8 << 30,
            weight: 20,
            priority: 0,
            managed: 0,
            capabilities: 3,
            burst_ms: None,
        }],
    }
}
