// SPDX-License-Identifier: GPL-2.0
//! The pure part of the kernel module, as a library for the host.
//!
//! `cgpu_km_main.rs` compiles these same files into the module; this root lets Cargo compile, test
//! and fuzz them without a kernel. The kernel build proves that they need no `std`, this one that
//! they need no kernel.

#![forbid(unsafe_code)]

pub mod nvidia;
pub mod policy;
pub mod proxy;
#[path = "store_host.rs"]
pub mod store;
#[path = "uapi/lib.rs"]
pub mod uapi;

/// Runs a driver of a test's on whole structs: zeros stand in the [gaps](proxy::Gap).
pub fn whole<R>(
    parts: &mut [proxy::Part<'_>],
    driver: impl FnOnce(&mut [proxy::Part<'_>]) -> R,
) -> R {
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
    let filled = filled.map(|(part, bytes)| proxy::Part {
        bytes,
        gap: proxy::Gap::default(),
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
