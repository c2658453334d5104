// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Threads that may wait for the driver, or for a tenant in the midst of a call. Of each kind few
//! wait at once: who asks again and again would else take all threads of this program.

use tokio::sync::Semaphore;

/// Has a thread answer a question once one of `turns` is free, and keeps the turn until then. An
/// error is a sentence.
pub async fn ask<T, F>(turns: &'static Semaphore, question: F) -> Result<T, String>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let turn = turns.acquire().await.map_err(|e| e.to_string())?;
    let answer = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        question()
    });
    answer.await.map_err(|e| e.to_string())
}
