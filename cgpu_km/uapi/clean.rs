// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Conditions that the records of a caller must meet before the module looks at them any further.

use super::{
    set,
    GpuSetCompute,
    InstanceCreate,
    InstanceGet,
    InstanceKey,
    InstanceLimits,
    InstanceRefusals,
    InstanceSetCapabilities,
    InstanceSetChannels,
    InstanceSetCompute,
    InstanceSetLimit,
    InstanceSetManaged,
    InstanceSetMemory,
    InstanceSetWeight,
    Limited,
    ManagedMode,
    RecordList,
    FLAG_OVERCOMMIT, //
};

/// A record of a caller.
pub trait Clean {
    /// Whether every field that must be zero is zero, and every flag and mode is known.
    fn is_clean(&self) -> bool;
}

/// Declares the rule of each record.
macro_rules! clean {
    ($($record:ident, |$this:ident| $rule:expr;)*) => {$(
        impl Clean for $record {
            fn is_clean(&self) -> bool {
                let $this = self;
                $rule
            }
        }
    )*};
}

clean! {
    RecordList, |list| list.reserved == [0; 5];
    InstanceKey, |key| key.reserved == [0; 5];
    InstanceGet, |get| get.key.is_clean();
    InstanceCreate, |create| create.key.is_clean()
        && are_flags(create.flags)
        && ManagedMode::from_number(create.managed_mode).is_some()
        && create.reserved == [0; 7];
    InstanceSetMemory, |set| set.key.is_clean() && are_flags(set.flags) && set.reserved == [0; 5];
    InstanceSetWeight, |set| set.key.is_clean() && set.reserved == [0; 5];
    InstanceSetManaged, |set| set.key.is_clean()
        && ManagedMode::from_number(set.managed_mode).is_some()
        && set.reserved == [0; 5];
    InstanceSetChannels, |set| set.key.is_clean()
        && are_flags(set.flags)
        && set.reserved == [0; 4];
    InstanceSetCapabilities, |set| set.key.is_clean() && set.reserved == [0; 5];
    InstanceSetLimit, |set| set.key.is_clean()
        && Limited::from_number(set.what).is_some()
        && set.reserved == [0; 5];
    InstanceLimits, |asked| asked.key.is_clean()
        && asked.list.is_clean()
        && asked.reserved == [0; 2];
    InstanceRefusals, |asked| asked.key.is_clean()
        && asked.list.is_clean()
        && asked.reserved == [0; 3];
    GpuSetCompute, |wish| are_named(wish.set, &[
            (set::POLICY, wish.policy, u32::MAX),
            (set::PERIOD, wish.period, u32::MAX),
            (set::MAX_INSTANCES, wish.max_instances, u32::MAX),
            (set::PRIORITY_PERCENT, wish.priority_percent, u32::MAX),
            (set::BURST, wish.burst_ms, u32::MAX),
        ])
        && wish.reserved == [0; 3];
    InstanceSetCompute, |wish| wish.key.is_clean()
        && are_named(wish.set, &[
            (set::HIGH_PRIORITY, wish.high_priority, 1),
            (set::SUSPENDED, wish.suspended, 1),
            (set::INSTANCE_BURST, wish.burst_ms, u32::MAX),
        ])
        && wish.reserved == [0; 4];
}

fn are_flags(flags: u32) -> bool {
    flags & !FLAG_OVERCOMMIT == 0
}

/// Whether `bits` names at least one of these fields and nothing else. A field is a bit, a value
/// and the largest value; one that is not named must be zero.
fn are_named(bits: u32, fields: &[(u32, u32, u32)]) -> bool {
    let known = fields.iter().fold(0, |known, (bit, ..)| known | bit);
    let fits =
        |&(bit, value, most): &(u32, u32, u32)| value <= if bits & bit != 0 { most } else { 0 };
    bits != 0 && bits & !known == 0 && fields.iter().all(fits)
}
