// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cgpu-dra`, the Kubernetes DRA driver of cgpu: a pod asks for GPU memory and weight, the
//! scheduler of Kubernetes sets them aside, and this driver makes an instance of exactly that.
//!
//! From the bottom up: [`quantity`], [`names`] and [`proto`] are formats; [`gpus`], [`failures`]
//! and [`slices`] say what a node has; [`claims`] and [`config`] what a claim wants; [`journal`]
//! and [`tenants`] make and remove instances; [`kubelet`], [`publisher`] and [`keeper`] talk to the
//! kubelet and the apiserver, whose words [`apiserver`] cuts; [`pods`] and [`metrics`] tell
//! figures; [`driver`] starts all of it.

#![forbid(unsafe_code)]

pub mod apiserver;
pub mod claims;
pub mod config;
pub mod driver;
pub mod failures;
pub mod gpus;
pub mod journal;
pub mod keeper;
pub mod kubelet;
pub mod metrics;
pub mod names;
pub mod node;
pub mod pods;
pub mod proto;
pub mod publisher;
pub mod quantity;
pub mod rpc;
pub mod slices;
pub mod status;
pub mod tenants;
