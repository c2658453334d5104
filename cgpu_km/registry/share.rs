// SPDX-License-Identifier: GPL-2.0
//! A tenant's share of a GPU, and the devices behind its nodes.

use super::{
    gpu::HostGpu,
    shared_data::SharedData,
    usage::{
        ToldUsage,
        Usage, //
    }, //
};
use crate::{
    nvidia::{
        capability::Capabilities,
        nvos::Card, //
    },
    os_interface::{
        shared_page::{
            DriverPage,
            Shadow, //
        },
        BackingFile,
        Worker, //
    },
    policy::{
        Accounting,
        ManagedMode, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The real node behind a proxy node, and how many files are open through it.
pub(super) struct RealNode {
    /// Gone once the proxy node is destroyed.
    pub(super) backing: Option<Arc<BackingFile>>,
    files: u32,
}

/// The part of a tenant that an instance adds: a GPU.
pub(super) struct TenantShare {
    pub(super) instance: u32,
    pub(super) gpu: Arc<HostGpu>,
    pub(super) worker: Arc<Worker>,
    pub(super) shared_data: Option<Arc<DriverPage>>,
    /// The page that is shown in the place of that one, while files use it, and how many do.
    pub(super) shadow: Option<(Arc<Shadow<SharedData>>, u32)>,
    pub(super) card: Card,
    pub(super) node: RealNode,
    /// Its usage, as it was told last.
    pub(super) told: Arc<ToldUsage>,
}

/// The terms of a new share.
#[derive(Clone, Copy)]
pub struct ShareTerms {
    /// Its memory limit, bytes.
    pub limit: u64,
    /// The most groups and channels, each, that it has on a runlist.
    pub channels: u32,
    /// Instances among which the GPU is divided.
    pub max_instances: u32,
    /// The mode of managed memory that does not fit.
    pub managed_mode: ManagedMode,
    /// Which calls its programs may make.
    pub capabilities: Capabilities,
}

/// A GPU's device while somebody has it open, which keeps the GPU initialized; shared by its
/// instances.
#[derive(Clone)]
pub(super) struct OpenGpu {
    /// The device.
    pub(super) backing: Arc<BackingFile>,
    /// Makes the calls that need the device in a descriptor table.
    pub(super) worker: Arc<Worker>,
    /// The page of `RM_USER_SHARED_DATA`, if the GPU has one: the same as long as it is
    /// initialized.
    pub(super) shared_data: Option<Arc<DriverPage>>,
    /// Its entry in the driver's list, which changes only when it is initialized (its interrupt, by
    /// MSI) or taken out of the machine.
    pub(super) card: Card,
}

impl RealNode {
    pub(super) fn new(backing: Arc<BackingFile>) -> Self {
        Self {
            backing: Some(backing),
            files: 0,
        }
    }

    /// The driver's file of it; `ENODEV` once the proxy node is destroyed.
    pub(super) fn backing(&self) -> Result<Arc<BackingFile>> {
        self.backing.clone().ok_or(ENODEV)
    }

    /// Files that are open now.
    pub(super) fn files(&self) -> u32 {
        self.files
    }

    /// A file is opened.
    pub(super) fn enter(&mut self) -> Result {
        if self.backing.is_none() {
            return Err(ENODEV);
        }
        self.files = self.files.checked_add(1).ok_or(EMFILE)?;
        Ok(())
    }

    /// A file is closed.
    pub(super) fn leave(&mut self) {
        self.files = self.files.saturating_sub(1);
    }
}

impl TenantShare {
    pub(super) fn new(
        instance: u32,
        gpu: Arc<HostGpu>,
        opened: OpenGpu,
        told: Arc<ToldUsage>,
    ) -> Self {
        Self {
            instance,
            gpu,
            worker: opened.worker,
            shared_data: opened.shared_data,
            shadow: None,
            card: opened.card,
            node: RealNode::new(opened.backing),
            told,
        }
    }

    /// How it is used now; `None` once it is taken away. `tenant_open_files` are those of the
    /// tenant's control and UVM nodes.
    pub(super) fn usage(&self, accounting: &Accounting, tenant_open_files: u32) -> Option<Usage> {
        let gpu = self.gpu.id();
        let mut processes = 0u32;
        let count = |_, _| processes = processes.saturating_add(1);
        accounting.processes(gpu, count);
        Some(Usage {
            share: accounting.share(gpu)?,
            open_files: self.node.files(),
            tenant_open_files,
            processes,
            capabilities: accounting.capabilities(Some(gpu)),
        })
    }
}
