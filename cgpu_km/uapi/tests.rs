// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Numbers that must never change, and rules for names.

use super::*;

#[test]
fn names_that_become_file_names_are_checked() {
    for good in ["a", "train-7B", "0.x_y", &"n".repeat(NAME_LEN - 1)] {
        assert_eq!(Name::new(good).expect("valid").as_str(), Some(good));
    }
    for bad in [
        "",
        ".",
        "..",
        "-x",
        "a/b",
        "a b",
        "ä",
        "a\0b",
        &"n".repeat(NAME_LEN),
    ] {
        assert!(Name::new(bad).is_none(), "{bad:?}");
    }
    let mut dirty = Name::new("a").expect("valid");
    dirty.0[5] = b'x';
    assert_eq!(dirty.as_str(), None);
}

#[test]
fn causes_are_listed_by_errno() {
    for cause in Cause::ALL {
        assert_eq!(Cause::from_errno(cause.errno()), Some(cause));
    }
    assert!(Cause::ALL.map(Cause::errno).is_sorted());
}

#[test]
fn request_codes_never_change() {
    assert_eq!(request::VERSION, 0x8088_C601);
    assert_eq!(request::GPU_LIST, 0xC028_C602);
    assert_eq!(request::INSTANCE_CREATE, 0xC090_C610);
    assert_eq!(request::INSTANCE_DESTROY, 0x4058_C611);
    assert_eq!(request::INSTANCE_GET, 0xC140_C612);
    assert_eq!(request::INSTANCE_LIST, 0xC028_C613);
    assert_eq!(request::INSTANCE_SET_MEMORY, 0x4078_C614);
    assert_eq!(request::INSTANCE_SET_WEIGHT, 0x4070_C615);
    assert_eq!(request::INSTANCE_SET_MANAGED, 0x4070_C616);
    assert_eq!(request::INSTANCE_SET_CHANNELS, 0x4070_C617);
    assert_eq!(request::INSTANCE_SET_LIMIT, 0x4078_C618);
    assert_eq!(request::INSTANCE_SET_CAPABILITIES, 0x4070_C620);
    assert_eq!(request::INSTANCE_REFUSALS, 0xC0A0_C621);
    assert_eq!(request::INSTANCE_LIMITS, 0xC090_C622);
    assert_eq!(request::GPU_SET_COMPUTE, 0x4028_C630);
    assert_eq!(request::INSTANCE_SET_COMPUTE, 0x4078_C631);
    assert_eq!(request::GPU_COMPUTE, 0xC028_C632);
    assert_eq!(request::INSTANCE_COMPUTE, 0xC028_C633);
}
