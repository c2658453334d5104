// SPDX-License-Identifier: GPL-2.0
//! For the drivers of tests: whole structs in the place of the parts that the proxy forwards.

use crate::proxy::{
    Hole,
    Part, //
};

/// Runs a driver of a test's on whole structs: zeros stand in the [holes](Hole).
pub fn whole<R>(parts: &mut [Part<'_>], driver: impl FnOnce(&mut [Part<'_>]) -> R) -> R {
    let mut structs: Vec<Vec<u8>> = parts.iter().map(|part| vec![0; part.size()]).collect();
    for (part, all) in parts.iter().zip(&mut structs) {
        for (at, piece) in part.pieces() {
            all.iter_mut()
                .skip(at)
                .zip(piece)
                .for_each(|(to, from)| *to = *from);
        }
    }
    let filled = parts.iter().zip(&mut structs);
    let filled = filled.map(|(part, bytes)| Part {
        bytes,
        hole: Hole::default(),
        pointer: part.pointer,
    });
    let returned = driver(&mut filled.collect::<Vec<_>>());
    for (part, all) in parts.iter_mut().zip(&structs) {
        let (at, results) = part.results();
        results
            .iter_mut()
            .zip(all.iter().skip(at))
            .for_each(|(to, from)| *to = *from);
    }
    returned
}
