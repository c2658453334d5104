// SPDX-License-Identifier: GPL-2.0
//! The page of `RM_USER_SHARED_DATA` as a tenant's programs see it.
//!
//! The driver's page is known by its frame since the GPU was opened (`attach::shared_data`), so it
//! is recognised in whatever file and by whatever object or duplicate a program maps it. All files
//! of a tenant that map it get the same page, which is made anew for as long as one of them is open
//! or mapped.

use crate::{
    nvidia::rusd::Layout,
    os_interface::shared_page::{
        DriverPage,
        Refresh,
        Shadow,
        ShownPage, //
    },
    policy::{
        rusd::{
            refresh,
            Words,
            WordsMut, //
        },
        FbView,
        GpuId, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The holder of a share of a GPU's memory: a tenant.
pub(super) trait MemoryView: Send + Sync {
    /// Its memory on a GPU; `None` once its instance there is destroyed.
    fn fb_view(&self, gpu: GpuId) -> Option<FbView>;
}

/// The page about one GPU that one tenant sees.
pub(super) struct SharedData {
    tenant: Arc<dyn MemoryView>,
    gpu: GpuId,
    page: Arc<DriverPage>,
    layout: Layout,
}

impl SharedData {
    /// A page in the place of the driver's.
    pub(super) fn show(
        tenant: Arc<dyn MemoryView>,
        layout: Layout,
        gpu: GpuId,
        page: Arc<DriverPage>,
    ) -> Result<Shadow<Self>> {
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
        let view = self.tenant.fb_view(self.gpu);
        // Of an instance that was destroyed nothing is left.
        let view = view.unwrap_or_default();
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
