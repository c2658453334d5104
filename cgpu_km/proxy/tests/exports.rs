// SPDX-License-Identifier: GPL-2.0
//! Objects behind descriptors: refused, since what they keep alive would be charged to nobody.

use super::*;

#[test]
fn an_export_and_an_import_are_refused_counted_and_not_forwarded() {
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(0x5c00_0010, 2 * MIB), 0);
    program.seen.clear();
    let controls = [
        (0x3d05, 24),
        (0x3d06, 20),
        (0x3d08, 80),
        (0x3d0b, 2128),
        (0x3d0c, 652),
    ];
    for (count, (cmd, size)) in (1..).zip(controls) {
        let params = vec![0xee; size];
        let status = control(&mut program, CLIENT, cmd, &params);
        assert_eq!(status, NvStatus::NV_ERR_NOT_SUPPORTED.0, "{cmd:#x}");
        assert_eq!(program.at(PARAMS), params, "parameters stay untouched");
        let share = program.books.share(GPU).expect("added");
        assert_eq!(share.refused_calls, count);
    }
    assert!(program.seen.is_empty(), "the driver was asked");
    assert_eq!(program.used(), 2 * MIB);
}
