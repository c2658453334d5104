// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The verbs, one file each: arguments with their help, what is done, what is printed.

pub(crate) mod cdi_check;
pub(crate) mod cdi_generate;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod effect;
pub(crate) mod gpu_list;
pub(crate) mod gpu_set_policy;
pub(crate) mod info;
pub(crate) mod inst_create;
pub(crate) mod inst_destroy;
pub(crate) mod inst_list;
pub(crate) mod inst_mounts;
pub(crate) mod inst_refused;
pub(crate) mod inst_restore;
pub(crate) mod inst_set;
pub(crate) mod inst_set_burst;
pub(crate) mod inst_set_caps;
pub(crate) mod inst_set_channels;
pub(crate) mod inst_set_limit;
pub(crate) mod inst_set_managed;
pub(crate) mod inst_set_mem;
pub(crate) mod inst_set_priority;
pub(crate) mod inst_set_weight;
pub(crate) mod inst_show;
pub(crate) mod inst_suspend;
pub(crate) mod list;
pub mod man;
pub mod metrics;
pub(crate) mod ps;
pub(crate) mod setting;
pub(crate) mod status;
pub(crate) mod target;
pub mod top;
pub(crate) mod unload;
pub(crate) mod version;
