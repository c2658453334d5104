// SPDX-License-Identifier: GPL-2.0
//! Replays recordings of CUDA programs against an instance or against the stand-in driver, and what
//! the guest programs of the VM tests share.

pub mod answers;
pub mod buffers;
pub mod bytes;
pub mod check;
pub mod compare;
pub mod control;
pub mod decode;
pub mod facts;
pub mod guest;
pub mod judge;
pub mod layout;
pub mod nodes;
pub mod orchestrate;
pub mod play;
pub mod random;
pub mod record;
pub mod relaunch;
pub mod report;
pub mod run;
pub mod size;
pub mod space;
pub mod standin;
pub mod sys;
