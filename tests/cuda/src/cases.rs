// SPDX-License-Identifier: GPL-2.0
//! The cases, in the order in which they run. Each says what a program may rely on; its name is
//! what is reported.

mod execution;
mod memory;
mod sharing;

use crate::{api::Cuda, device::Context, verdict::Verdict};

/// One case.
pub(crate) struct Case {
    /// Its name in the report and on the command line.
    pub(crate) name: &'static str,
    /// Runs it. The context, if it asks for one, is its own and current.
    pub(crate) run: Run,
}

/// The needs of a case.
pub(crate) enum Run {
    /// libcuda and the GPU's number.
    Bare(fn(&Cuda, i32) -> Verdict),
    /// A context besides.
    InContext(fn(&Cuda, i32) -> Verdict),
}

use Run::{Bare, InContext};

/// Every case.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "device",
        run: Bare(execution::device),
    },
    Case {
        name: "contexts",
        run: Bare(execution::contexts),
    },
    Case {
        name: "primary-context",
        run: Bare(execution::primary_context),
    },
    Case {
        name: "contexts-leave-nothing",
        run: InContext(execution::contexts_leave_nothing),
    },
    Case {
        name: "memory",
        run: InContext(memory::allocations),
    },
    Case {
        name: "copies",
        run: InContext(memory::copies),
    },
    Case {
        name: "small-copies",
        run: InContext(memory::small_copies),
    },
    Case {
        name: "rows",
        run: InContext(memory::rows),
    },
    Case {
        name: "async-copies",
        run: InContext(memory::async_copies),
    },
    Case {
        name: "device-copies",
        run: InContext(memory::device_copies),
    },
    Case {
        name: "memset",
        run: InContext(memory::set),
    },
    Case {
        name: "managed",
        run: InContext(memory::managed),
    },
    Case {
        name: "streams",
        run: InContext(execution::streams),
    },
    Case {
        name: "events",
        run: InContext(execution::events),
    },
    Case {
        name: "graph",
        run: InContext(execution::graph),
    },
    Case {
        name: "virtual-memory",
        run: InContext(sharing::virtual_memory),
    },
    Case {
        name: "pools",
        run: InContext(sharing::pools),
    },
    Case {
        name: "pool-export",
        run: InContext(sharing::pool_export),
    },
    Case {
        name: "ipc",
        run: InContext(sharing::ipc),
    },
    Case {
        name: "out-of-memory",
        run: InContext(memory::out_of_memory),
    },
    Case {
        name: "launch",
        run: InContext(execution::launch),
    },
];

impl Case {
    /// Runs the case, in a context of its own if it wants one.
    pub(crate) fn verdict(&self, cuda: &Cuda, device: i32) -> Verdict {
        match self.run {
            Bare(run) => run(cuda, device),
            InContext(run) => {
                let context = Context::new(cuda, device)?;
                run(cuda, device)?;
                Ok(context.end()?)
            }
        }
    }
}
