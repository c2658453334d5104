// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cgpu-dra`, the Kubernetes DRA driver of cgpu: a pod asks for GPU memory and weight, the
//! scheduler of Kubernetes sets them aside, and this driver makes an instance of exactly that.
//!
//! From the bottom up: [`quantity`], [`names`] and [`proto`] are formats; [`gpus`], [`failures`],
//! [`kernel_log`] and [`slices`] say what a node has; [`claims`] and [`config`] what a claim wants;
//! [`journal`], [`turns`] and [`tenants`] make and remove instances; [`kubelet`], [`publisher`] and
//! [`keeper`] talk to the kubelet and the apiserver, whose claims [`apiserver`] reads; [`pods`] and
//! [`metrics`] tell figures, also of the kubelet's [`calls`], which [`web`] serves after a
//! [`login`]; [`probes`] say whether all is well; [`driver`] starts all of it. [`once`] keeps the
//! log short, and [`threads`] wait for the driver.
//!
//! Beside the driver there are two more programs in the same binary: [`webhook`] checks
//! [`parameters`] and turns other systems' resource names ([`asked`]) into claims ([`compat`],
//! `init_claims`, [`templates`], `scheduler`, [`patch`]), and tells what is lost in [`events`].
//! [`device_plugin`] gives out [`slots`] of fixed sizes in clusters whose scheduler cannot divide a
//! GPU, and puts those back that are [`unused`].

#![forbid(unsafe_code)]

pub mod apiserver;
pub mod asked;
pub mod calls;
pub mod claims;
pub mod compat;
pub mod config;
pub mod device_plugin;
pub mod driver;
pub mod events;
pub mod failures;
pub mod gpus;
pub(crate) mod init_claims;
pub mod journal;
pub mod keeper;
pub mod kernel_log;
pub mod kubelet;
pub mod login;
pub mod metrics;
pub mod names;
pub mod node;
pub mod once;
pub mod parameters;
pub mod patch;
pub mod pods;
pub mod probes;
pub mod proto;
pub mod publisher;
pub mod quantity;
pub(crate) mod rounds;
pub mod rpc;
pub(crate) mod scheduler;
pub mod slices;
pub mod slots;
pub mod status;
pub mod templates;
pub mod tenants;
pub mod threads;
pub(crate) mod turns;
pub mod unused;
pub mod web;
pub mod webhook;
