// SPDX-License-Identifier: GPL-2.0
//! The model against what was measured on one H200 (driver 580.159.04): each figure within 10 %.

use gpu_model::{
    lab::{measure, Drill, DEFAULT_SLICE},
    world::Habit,
    Nanos, MS, US,
};

const SHORT: Nanos = 15 * US;
const SMALL: Nanos = 800 * US;
const MIDDLE: Nanos = 16 * MS;
const LONG: Nanos = 81 * MS;

const fn habit(kernel: Nanos, depth: u32) -> Habit {
    Habit { kernel, depth }
}

/// The programs of the tables of shares: the long ones had two kernels queued, the short ones four.
fn full(kernel: Nanos) -> Habit {
    habit(kernel, if kernel >= MIDDLE { 2 } else { 4 })
}

fn near(what: &str, got: f64, measured: f64) {
    let off = (got - measured).abs() / measured;
    println!(
        "{what}: {got:.4}, measured {measured:.4}, off by {:.1} %",
        off * 100.0
    );
    assert!(off <= 0.1, "{what}: {got:.4}, measured {measured:.4}");
}

/// The first program's share of what both get.
fn share(drill: Drill, kernel: Nanos) -> f64 {
    let got = measure(drill, &[full(kernel); 2], 8000 * MS);
    got[0] / (got[0] + got[1])
}

#[test]
fn shares_of_two_that_keep_the_gpu_full() {
    let lengths = [SHORT, SMALL, MIDDLE, LONG];
    let rows: [(&str, Drill, [Option<f64>; 4]); 6] = [
        (
            "default",
            Drill::Slices(DEFAULT_SLICE, DEFAULT_SLICE),
            [Some(0.506), Some(0.5), Some(0.5), Some(0.5)],
        ),
        (
            "slices 3 : 1 ms",
            Drill::Slices(3 * MS, MS),
            [Some(0.75), Some(0.754), Some(0.754), Some(0.748)],
        ),
        (
            "slices 9 : 3 ms",
            Drill::Slices(9 * MS, 3 * MS),
            [None, Some(0.751), Some(0.751), Some(0.749)],
        ),
        (
            "slices 9 : 1 ms",
            Drill::Slices(9 * MS, MS),
            [Some(0.902), None, None, None],
        ),
        (
            "doorbell 30 : 10 ms",
            Drill::DoorbellTurns(30 * MS, 10 * MS),
            [Some(0.75), Some(0.753), Some(0.499), Some(0.505)],
        ),
        (
            "windows 30 : 10 ms",
            Drill::Windows(30 * MS, 10 * MS),
            [Some(0.743), Some(0.742), Some(0.741), Some(0.742)],
        ),
    ];
    for (name, drill, measured) in rows {
        for (kernel, measured) in lengths.into_iter().zip(measured) {
            if let Some(measured) = measured {
                near(
                    &format!("{name}, {kernel} ns"),
                    share(drill, kernel),
                    measured,
                );
            }
        }
    }
}

#[test]
fn caps_of_one_that_is_alone() {
    let rows: [(&str, Drill, [f64; 3]); 3] = [
        (
            "doorbell 3 : 7 ms",
            Drill::DoorbellCap(3 * MS, 7 * MS),
            [55.0, 100.0, 100.0],
        ),
        (
            "doorbell 30 : 70 ms",
            Drill::DoorbellCap(30 * MS, 70 * MS),
            [33.0, 48.0, 101.0],
        ),
        (
            "channels 30 : 70 ms",
            Drill::ChannelCap(30 * MS, 70 * MS),
            [30.3, 30.5, 31.8],
        ),
    ];
    for (name, drill, measured) in rows {
        for (kernel, measured) in [SMALL, MIDDLE, LONG].into_iter().zip(measured) {
            let got = measure(drill, &[full(kernel)], 8000 * MS);
            near(&format!("{name}, {kernel} ns, %"), got[0] * 100.0, measured);
        }
    }
}

#[test]
fn throughput_of_two_by_length_of_slice() {
    for (slices, measured) in [
        ((500 * US, 500 * US), 0.747),
        ((MS, MS), 0.864),
        ((DEFAULT_SLICE, DEFAULT_SLICE), 0.91),
        ((9 * MS, MS), 0.96),
        ((10 * MS, 10 * MS), 0.976),
        ((16 * MS, 16 * MS), 0.986),
    ] {
        let drill = Drill::Slices(slices.0, slices.1);
        let got = measure(drill, &[full(SMALL); 2], 4000 * MS);
        near(&format!("slices of {slices:?}"), got[0] + got[1], measured);
    }
    for (slice, measured) in [(MS, 0.83), (DEFAULT_SLICE, 0.91)] {
        let got = measure(Drill::Slices(slice, slice), &[full(SMALL); 16], 4000 * MS);
        near(&format!("16 of {slice} ns"), got.iter().sum(), measured);
    }
}

/// The calls that were made, and what A and B got of what each does alone, for each pair.
type Row = (&'static str, Drill, [(f64, f64); 3]);

/// Programs that wait for each kernel, in the three pairs that were measured.
#[test]
fn an_instance_that_waits_for_each_kernel() {
    let pairs = [
        (habit(SHORT, 1), habit(LONG, 2)),
        (habit(SHORT, 8), habit(LONG, 2)),
        (habit(SMALL, 1), habit(SHORT, 8)),
    ];
    let rows: [Row; 8] = [
        (
            "default",
            Drill::Slices(DEFAULT_SLICE, DEFAULT_SLICE),
            [(0.008, 0.862), (0.453, 0.456), (0.256, 0.649)],
        ),
        (
            "slices 10 : 1 ms",
            Drill::Slices(10 * MS, MS),
            [(0.015, 0.748), (0.872, 0.094), (0.386, 0.473)],
        ),
        (
            "slices 0.5 : 0.5 ms",
            Drill::Slices(500 * US, 500 * US),
            [(0.024, 0.585), (0.352, 0.345), (0.330, 0.399)],
        ),
        (
            "doorbell 10 : 10 ms",
            Drill::DoorbellTurns(10 * MS, 10 * MS),
            [(0.005, 0.916), (0.218, 0.725), (0.488, 0.475)],
        ),
        (
            "windows 10 : 10 ms",
            Drill::Windows(10 * MS, 10 * MS),
            [(0.451, 0.464), (0.457, 0.465), (0.461, 0.460)],
        ),
        (
            "windows 5 : 5 ms",
            Drill::Windows(5 * MS, 5 * MS),
            [(0.422, 0.437), (0.429, 0.446), (0.435, 0.433)],
        ),
        (
            "exclusive 10 of 20 ms",
            Drill::Exclusive(10 * MS, 10 * MS),
            [(0.489, 0.428), (0.752, 0.198), (0.629, 0.313)],
        ),
        (
            "exclusive by slice 0",
            Drill::ExclusiveBySlice(10 * MS, 10 * MS),
            [(0.033, 0.424), (0.690, 0.188), (0.491, 0.306)],
        ),
    ];
    for (name, drill, measured) in rows {
        for ((a, b), measured) in pairs.into_iter().zip(measured) {
            let got = measure(drill, &[a, b], 4000 * MS);
            let what = format!(
                "{name}, {}*{} : {}*{}",
                a.kernel, a.depth, b.kernel, b.depth
            );
            near(&format!("{what}, A"), got[0], measured.0);
            near(&format!("{what}, B"), got[1], measured.1);
        }
    }
}
