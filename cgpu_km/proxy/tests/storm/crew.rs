// SPDX-License-Identifier: GPL-2.0
//! Calls in flight: threads of which one runs at a time, and the test says which.
//!
//! A call that is to stand still in the middle runs on a thread of its own and stops wherever it
//! comes to the driver, before and after. So the beginnings, the driver's work and the ends of
//! several calls can come in any order, and in the same order again.

use std::{
    panic::{
        catch_unwind,
        resume_unwind,
        AssertUnwindSafe, //
    },
    sync::mpsc::{
        channel,
        Receiver,
        Sender, //
    },
    thread::JoinHandle, //
};

enum News {
    Stopped,
    Over(std::thread::Result<()>),
}

/// The point at which a call in flight stops.
pub(super) struct Pause {
    news: Sender<News>,
    go: Receiver<()>,
}

impl Pause {
    /// Stops here until the test lets it go on.
    pub(super) fn stop(&self) {
        let told = self.news.send(News::Stopped).is_ok();
        if !told || self.go.recv().is_err() {
            // The test is over, and failed.
            resume_unwind(Box::new(()));
        }
    }
}

/// A call that stands still somewhere.
pub(super) struct Flight {
    news: Receiver<News>,
    go: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Flight {
    /// Runs `call` to its first stop; `None`: it went through.
    pub(super) fn start(call: impl FnOnce(&Pause) + Send + 'static) -> Option<Self> {
        let (news, theirs) = channel();
        let (go, gone) = channel();
        let pause = Pause { news, go: gone };
        let thread = std::thread::spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| call(&pause)));
            // Nobody listens any more where the test has failed.
            let _ = pause.news.send(News::Over(result));
        });
        let flight = Self {
            news: theirs,
            go: Some(go),
            thread: Some(thread),
        };
        flight.listen()
    }

    /// Lets it go on to its next stop; `None`: it is over.
    pub(super) fn go_on(self) -> Option<Self> {
        let go = self.go.as_ref().expect("taken in drop alone");
        go.send(()).expect("a call in flight listens");
        self.listen()
    }

    fn listen(self) -> Option<Self> {
        match self.news.recv().expect("a call in flight says how it goes") {
            News::Stopped => Some(self),
            News::Over(Ok(())) => None,
            News::Over(Err(panic)) => resume_unwind(panic),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        drop(self.go.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
