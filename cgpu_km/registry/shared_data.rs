// SPDX-License-Identifier: GPL-2.0
//! The page of `RM_USER_SHARED_DATA` as a tenant's programs see it.
//!
//! The driver's page is known by its frame since the GPU was opened (`attach::shared_data`), so it
//! is recognised in whatever file and by whatever object or duplicate a program maps it. Each file
//! that maps it gets a page of its own, which is made anew for as long as the file is open or
//! mapped.

use super::tenant::Tenant;
use crate::{
    nvidia::rusd::Layout,
    os_interface::shared_page::{DriverPage, Refresh, Shadow, ShownPage},
    policy::{
        rusd::{refresh, Words, WordsMut},
        FbView, GpuId,
    },
};
use kernel::{prelude::*, sync::Arc};

/// What is shown of one GPU to one tenant.
pub(super) struct SharedData {
    tenant: Arc<Tenant>,
    gpu: GpuId,
    page: Arc<DriverPage>,
    layout: Layout,
}

impl SharedData {
    /// A page for a file that maps the driver's one.
    pub(super) fn show(
        tenant: Arc<Tenant>,
        gpu: GpuId,
        page: Arc<DriverPage>,
    ) -> Result<Shadow<Self>> {
        let layout = tenant.tables().shared_data;
        Shadow::start(Self {
            tenant,
            gpu,
            page,
            layout,
        })
    }
}

impl Refresh for SharedData {
    fn refresh(&self, page: &ShownPage) -> Result {
        let view = self
            .tenant
            .with_accounting(|accounting| accounting.fb_view(self.gpu));
        // Of an instance that was destroyed nothing is left.
        let view = view.unwrap_or(FbView { limit: 0, free: 0 });
        let made = refresh(self.layout, view, &*self.page, page);
        made.map_err(|_| ENOMEM)
    }
}

impl Words for DriverPage {
    fn get(&self, index: usize) -> u64 {
        self.word(index)
    }
}

impl Words for ShownPage {
    fn get(&self, index: usize) -> u64 {
        self.word(index)
    }
}

impl WordsMut for ShownPage {
    fn set(&self, index: usize, word: u64) {
        self.set_word(index, word);
    }
}
