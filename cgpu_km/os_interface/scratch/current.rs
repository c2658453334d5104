// SPDX-License-Identifier: GPL-2.0
//! The scratch of the calling task's address space: found, or made and mapped.

use super::{
    pool::{
        Pool,
        PoolStage, //
    },
    pool_mapping,
    table, //
};
use kernel::{
    mm::MmWithUser,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Release, //
        },
        Arc, //
    }, //
};

/// The pool of `mm`, the current task's address space, and where its mapping is.
pub(super) fn current(mm: &MmWithUser) -> Result<(Arc<Pool>, usize)> {
    loop {
        let pool = table::find_or_insert(mm)?;
        if let Some(base) = base_of(&pool)? {
            return Ok((pool, base));
        }
    }
}

/// The address of a pool's mapping, which is made if it is not there yet. `None` if the pool is
/// dead and another one is to be made.
fn base_of(pool: &Arc<Pool>) -> Result<Option<usize>> {
    let base = pool.base.load(Acquire);
    if base != 0 {
        return Ok(Some(base));
    }
    let mut stage = pool.stage.lock();
    let made = match *stage {
        PoolStage::Dead => return Ok(None),
        PoolStage::Made => match pool.base.load(Acquire) {
            // Nothing can take a sealed mapping away; if something did, start anew.
            0 => Ok(None),
            base => return Ok(Some(base)),
        },
        PoolStage::New => pool_mapping::make(pool).map(Some),
    };
    if let Ok(Some(base)) = made {
        *stage = PoolStage::Made;
        pool.base.store(base, Release);
    } else {
        *stage = PoolStage::Dead;
        drop(stage);
        table::remove(pool);
    }
    made
}
