// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The parts of cgpu that the host's programs need: the commands of `/dev/cgpuctl`
//! ([`control::Control`], [`client::Client`]), the filesystem of the proxy nodes ([`cgpufs`]), the
//! nodes and files that a container gets ([`container`], [`installation`]), CDI files ([`cdi`]),
//! which instances are pods' ([`pods`]), figures ([`metrics`]) and files that appear whole
//! ([`files`]).
//!
//! `cgpuctl` and `cgpu-dra` are made of it. Only `client.rs` has unsafe code.

#![deny(unsafe_code)]

pub mod capabilities;
pub mod cdi;
pub mod cgpufs;
#[expect(unsafe_code, reason = "ioctl(2)")]
pub mod client;
pub mod container;
pub mod control;
pub mod files;
pub mod installation;
pub mod metrics;
pub mod path_error;
pub mod pods;
pub mod size;
pub mod text;
