// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: keys of events for programs.

use crate::{
    nvidia::handle::ClientHandle,
    policy::{
        accounting::Accounting,
        event::RefusalCause,
        ids::FileId,
        os_events::KeyState, //
    },
    uapi::Limited, //
};

impl Accounting {
    /// `NV_ESC_ALLOC_OS_EVENT` is about to make a key of a number, on a file. It counts as an open
    /// file. Not as an event: no interrupt looks at it, and a CUDA program has more keys than
    /// events.
    ///
    /// # Errors
    ///
    /// The refusal that the caller is told. The call is not forwarded.
    pub fn begin_os_event(
        &mut self,
        client: ClientHandle,
        number: u32,
        file: FileId,
    ) -> Result<(), RefusalCause> {
        let key = key_of(client, number);
        match self.os_events.state(key) {
            // The driver may have refused it before.
            Some((KeyState::Refused, of)) if of == file => {
                self.os_events.set_state(key, KeyState::InFlight);
                return Ok(());
            }
            Some(_) => return Err(RefusalCause::KeyTaken),
            None => {}
        }
        let ledgers = &mut self.accounts.ledgers;
        ledgers.count(None, Limited::Files, 1)?;
        let entered = self.os_events.insert(key, file);
        Ok(entered.inspect_err(|_| {
            let ledgers = &mut self.accounts.ledgers;
            ledgers.uncount(None, Limited::Files, 1);
        })?)
    }

    /// The driver has answered a call that [`Accounting::begin_os_event`] agreed to; `None`: it was
    /// not reached.
    pub fn end_os_event(&mut self, client: ClientHandle, number: u32, made: Option<bool>) {
        let key = key_of(client, number);
        match made {
            Some(true) => self.os_events.set_state(key, KeyState::Made),
            Some(false) => self.os_events.set_state(key, KeyState::Refused),
            None => self.forget_os_event(key),
        }
    }

    /// `NV_ESC_FREE_OS_EVENT` is about to free a key. `false`: there is none for certain, or
    /// another call is about it, and the call is not forwarded.
    pub fn begin_os_event_free(&mut self, client: ClientHandle, number: u32) -> bool {
        let key = key_of(client, number);
        let is_made = matches!(self.os_events.state(key), Some((KeyState::Made, _)));
        if is_made {
            self.os_events.set_state(key, KeyState::InFlight);
        }
        is_made
    }

    /// The driver has answered that call, or was not reached.
    pub fn end_os_event_free(&mut self, client: ClientHandle, number: u32, reached: bool) {
        let key = key_of(client, number);
        if reached {
            self.forget_os_event(key);
        } else {
            self.os_events.set_state(key, KeyState::Made);
        }
    }

    fn forget_os_event(&mut self, key: u64) {
        if self.os_events.remove(key).is_some() {
            let ledgers = &mut self.accounts.ledgers;
            ledgers.uncount(None, Limited::Files, 1);
        }
    }

    /// The driver has released a file, and with it the keys that were made on it.
    pub(super) fn close_os_events(&mut self, file: FileId) {
        while self.os_events.take_of(file) {
            let ledgers = &mut self.accounts.ledgers;
            ledgers.uncount(None, Limited::Files, 1);
        }
    }
}

fn key_of(client: ClientHandle, number: u32) -> u64 {
    u64::from(client.0) << 32 | u64::from(number)
}
