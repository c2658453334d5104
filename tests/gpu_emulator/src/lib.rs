// SPDX-License-Identifier: GPL-2.0
//! An emulated Hopper GPU, good enough that NVIDIA's own driver comes up on it.
//!
//! QEMU's `vfio-user-pci` connects to a socket of this program and takes what it finds there for
//! a PCI device. The firmware (GSP) is emulated by its messages, not by its code.
//!
//! | module | what |
//! | --- | --- |
//! | [`vfio_user`] | the device's side of the protocol |
//! | [`pci`], [`registers`], [`bar`] | configuration space, BAR0, BAR1 and BAR2 |
//! | [`memory`], [`video_memory`], [`machine`] | physical memory on both sides of the bus |
//! | [`mmu`] | page tables |
//! | [`interrupts`] | the tree of interrupts |
//! | [`fsp`], [`gsp`] | boot, and the firmware's messages |
//! | [`host`], [`copy_engine`], [`compute`], [`qmd`], [`kernels`] | channels and engines |
//! | [`engine`] | how long kernels take |
//! | [`model`], [`engines`], [`abi`] | data: the GPU, its engines, what the driver's headers say |
//! | [`faults`] | what a test makes go wrong |
//! | [`firmware`] | a firmware file without firmware |

pub mod abi;
pub mod bar;
pub mod clock;
pub mod compute;
pub mod copy_engine;
pub mod engine;
pub mod engines;
pub mod faults;
pub mod firmware;
pub mod fsp;
pub mod gpu;
pub mod gsp;
pub mod host;
pub mod interrupts;
pub mod kernels;
pub mod log;
pub mod machine;
pub mod memory;
pub mod mmu;
pub mod model;
pub mod names;
pub mod pci;
pub mod place;
pub mod qmd;
pub mod registers;
pub mod units;
pub mod vfio_user;
pub mod video_memory;

/// One mebibyte.
pub const MIB: u64 = 1 << 20;
