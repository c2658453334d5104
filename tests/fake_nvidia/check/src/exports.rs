// SPDX-License-Identifier: GPL-2.0
//! Objects behind descriptors: what holds them, what each of the calls refuses (os.c,
//! `cliresCtrlCmdOsUnix*_IMPL`), and that the number counts when the driver looks.

use crate::calls::*;

/// The tests of this file.
pub(crate) const TESTS: &[Test] = &[
    ("an exported object outlives its client", outlives),
    ("a descriptor holds one object, or a list", one_or_many),
    ("a list replaces what is in its places", replaced),
    ("an import of a list skips empty places", skipped),
    ("a failed list frees its earlier handles", freed),
    ("an export file tells its purpose", told),
];

fn export(p: &Program, file: &File, object: u32) -> u32 {
    let mut b = words(24, &[(0, 1), (4, DEVICE), (12, object)]);
    b[16..20].copy_from_slice(&file.0.to_le_bytes());
    control(&p.ctl, p.client, p.client, 0x3D05, &mut b)
}

fn import(p: &Program, file: &File, handle: u32) -> u32 {
    let mut b = words(20, &[(4, 1), (8, DEVICE), (12, DEVICE), (16, handle)]);
    b[..4].copy_from_slice(&file.0.to_le_bytes());
    control(&p.ctl, p.client, p.client, 0x3D06, &mut b)
}

fn export_list(p: &Program, file: &File, max: u16, first: u16, objects: &[u32]) -> u32 {
    let mut b = words(2128, &[(4, DEVICE)]);
    b[..4].copy_from_slice(&file.0.to_le_bytes());
    b[8..10].copy_from_slice(&max.to_le_bytes());
    b[10] = 0x77;
    for (i, object) in objects.iter().enumerate() {
        b[76 + 4 * i..80 + 4 * i].copy_from_slice(&object.to_le_bytes());
    }
    b[2124..2126].copy_from_slice(&(objects.len() as u16).to_le_bytes());
    b[2126..].copy_from_slice(&first.to_le_bytes());
    control(&p.ctl, p.client, p.client, 0x3D0B, &mut b)
}

/// The status, and what is told of each place.
fn import_list(p: &Program, file: &File, first: u16, handles: &[u32]) -> (u32, Vec<u8>) {
    let mut b = words(652, &[(4, DEVICE)]);
    b[..4].copy_from_slice(&file.0.to_le_bytes());
    for (i, handle) in handles.iter().enumerate() {
        b[8 + 4 * i..12 + 4 * i].copy_from_slice(&handle.to_le_bytes());
    }
    b[648..650].copy_from_slice(&(handles.len() as u16).to_le_bytes());
    b[650..].copy_from_slice(&first.to_le_bytes());
    let status = control(&p.ctl, p.client, p.client, 0x3D0C, &mut b);
    (status, b[520..520 + handles.len()].to_vec())
}

fn outlives() {
    let holder = ctl();
    let p = Program::new();
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    assert_eq!(export(&p, &holder, 7), status::OK);
    drop(p);
    assert_eq!(used(), 2 << 20);
    let q = Program::new();
    assert_eq!(import(&q, &holder, 9), status::OK);
    drop(holder);
    assert_eq!(used(), 2 << 20, "the import holds it");
    drop(q);
    assert_eq!(used(), 0);
}

fn one_or_many() {
    let p = Program::new();
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    let one = ctl();
    assert_eq!(export(&p, &one, 7), status::OK);
    assert_eq!(export_list(&p, &one, 4, 0, &[7, 7]), status::RANGE);
    let many = ctl();
    assert_eq!(export_list(&p, &many, 0, 0, &[7]), status::PARAMETER);
    assert_eq!(export_list(&p, &many, 2, 1, &[7, 7]), status::RANGE);
    // A failed first export leaves no export file behind.
    assert_eq!(export_list(&p, &many, 4, 1, &[7, 7]), status::OK);
    assert_eq!(export(&p, &many, 7), status::STATE_IN_USE);
    assert_eq!(
        import(&p, &many, 8),
        status::PARAMETER,
        "the first is empty"
    );
    assert_eq!(import_list(&p, &many, 3, &[8, 9]).0, status::RANGE);
    assert_eq!(import_list(&p, &ctl(), 0, &[8]).0, status::PARAMETER);
}

fn replaced() {
    let p = Program::new();
    let holder = ctl();
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    assert_eq!(p.video(8, 4 << 20).0, status::OK);
    assert_eq!(export_list(&p, &holder, 2, 0, &[7]), status::OK);
    assert_eq!(p.free(7), status::OK);
    assert_eq!(used(), 6 << 20);
    assert_eq!(export_list(&p, &holder, 0, 0, &[8]), status::OK);
    assert_eq!(used(), 4 << 20);
    assert_eq!(p.free(8), status::OK);
    assert_eq!(export_list(&p, &holder, 0, 0, &[0]), status::OK);
    assert_eq!(used(), 0);
}

fn skipped() {
    let p = Program::new();
    let holder = ctl();
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    assert_eq!(export_list(&p, &holder, 4, 1, &[7, 0, 7]), status::OK);
    let (done, kinds) = import_list(&p, &holder, 0, &[10, 11, 12, 13]);
    assert_eq!((done, kinds), (status::OK, vec![0, 1, 0, 1]));
    for (handle, there) in [(10, false), (11, true), (12, false), (13, true)] {
        let made = p.video(handle, 2 << 20).0 == status::DUPLICATE;
        assert_eq!(made, there, "{handle}");
    }
}

fn freed() {
    let p = Program::new();
    let holder = ctl();
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    assert_eq!(p.video(8, 4 << 20).0, status::OK);
    assert_eq!(export_list(&p, &holder, 4, 0, &[7, 0, 7]), status::OK);
    // The third handle is taken. The first goes again, and so does 8, which was named for nothing.
    let (done, _) = import_list(&p, &holder, 0, &[10, 8, 7]);
    assert_eq!(done, status::DUPLICATE);
    assert_eq!(used(), 2 << 20);
}

fn told() {
    let p = Program::new();
    let holder = ctl();
    let ask = || {
        let mut b = words(80, &[]);
        b[..4].copy_from_slice(&holder.0.to_le_bytes());
        let status = control(&p.ctl, p.client, p.client, 0x3D08, &mut b);
        (status, b)
    };
    assert_eq!(ask().0, status::PARAMETER, "not an export file");
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    assert_eq!(export_list(&p, &holder, 4, 0, &[7]), status::OK);
    let (done, b) = ask();
    assert_eq!(done, status::OK);
    assert_eq!(get32(&b, 8), u32::MAX, "no partition");
    assert_eq!((b[12], b[13], b[14]), (4, 0, 0x77));
}
