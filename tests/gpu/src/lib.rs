// SPDX-License-Identifier: GPL-2.0
//! The module's own policy and protocol code, in user space, between a real program and a real
//! driver.
//!
//! Kernel modules cannot be loaded on every machine that has a GPU. So [`cgpu_km::proxy`] and
//! [`cgpu_km::policy`], the very files that are compiled into the module, are run here behind a
//! preloaded library: it catches `open`, `ioctl`, `mmap` and `close`, takes the place of
//! `os_interface`, and keeps the tenant's accounting in memory that all processes of an instance
//! share.
//!
//! | module | what |
//! |---|---|
//! | [`arena`] | memory at one address in every process, in which the accounting lives |
//! | [`state`] | an instance: its accounting, open files, counters |
//! | [`ask`] | a recording of what a driver answers about the tool's own objects |
//! | [`call`] | [`cgpu_km::proxy::Call`] over the process's own memory and the driver's files |
//! | [`clocks`] | the highest clock of a GPU, for all programs that ask for it |
//! | [`compute`] | what the scheduler and the programs say to each other |
//! | [`driver`] | what the driver says of the GPUs |
//! | [`record`] | recordings of programs, in the format of `tests/traces` |
//! | [`weigh`] | the module's scheduler over programs that compete |
//! | [`times`] | how long each call took, and how much of it in the driver |
//! | [`sys`] | system calls that the preloaded library cannot catch |
//!
//! **It is a test instrument, neither a boundary nor the product**: a program that makes its system
//! calls itself goes past it, and so does one that writes to the shared memory.

pub mod arena;
pub mod ask;
pub mod call;
pub mod clocks;
pub mod compute;
pub mod driver;
pub mod record;
pub mod state;
pub mod sys;
pub mod times;
pub mod weigh;
