// SPDX-License-Identifier: GPL-2.0
//! A kernel thread that makes calls for a process, with the real file in its descriptor table.
//!
//! A few calls (UVM_REGISTER_GPU, multicast attach; a device, where the driver's kernel interface
//! cannot make it) walk the calling task's descriptor table for a file whose operations are the
//! driver's own (`nv_match_dev_state` in kernel-open/nvidia/nv.c); a proxied file is none, and a
//! real one must never be within reach of a container. So it does not stand in a table of the
//! caller's either ([`one_file`](crate::os_interface::base::one_file)): another process could take
//! it out of that meanwhile (`pidfd_getfd`). No container reaches that of a kernel thread. All
//! kernel threads share one, in which each would find the files of the others, so the worker has
//! one of its own during a call. The GPU's template file is alone in it, as a decoy. The call is
//! made in the memory and under the (reduced) credentials of the process that asked.
//! Calls that depend on the caller's PID must not go this way.
//!
//! There is one worker per GPU, since a call may be slow: the first client of a GPU can wait for
//! its initialization.
//!
//! # Fair by tenant
//!
//! Jobs are served in the order in which they come, and a tenant has one at a time (`Tenant::jobs`
//! in `registry/tenant.rs`). So a tenant delays another one's next job by one job at most, with
//! any number of threads.
//!
//! # Waiting
//!
//! A job works in its caller's memory and on its caller's file. So a caller waits, unconditionally,
//! while its job runs; while the job is still queued a kill withdraws it.

use super::descriptor::Descriptor;
use crate::os_interface::{
    base::{
        creds::{
            self,
            Reduced, //
        },
        extra,
        file_ref::FileRef,
        one_file,
        thread::{
            Thread,
            ThreadPriority,
            ThreadTask, //
        },
        wait::Completion, //
    },
    driver::backing_file::BackingFile,
    scratch::lease::Lease, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    impl_list_arc_safe,
    impl_list_item,
    list::{
        List,
        ListArc,
        ListLinks, //
    },
    new_condvar,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        SpinLock, //
    }, //
};

/// Which task makes a call into the driver.
#[derive(Clone, Copy)]
pub enum CallRoute<'a> {
    /// The calling task itself.
    Caller,
    /// The worker of a GPU, for the calls that look for a real file of that GPU.
    Worker(&'a Worker),
    /// The calling task, for a call in which a descriptor is to stand for a file that is held.
    Holding(Descriptor<'a>),
}

/// A call that is to be made.
///
/// # Invariants
///
/// Everything behind the pointers stays valid until the job is done or withdrawn, because
/// [`Worker::call`] does not return before.
pub(super) struct DriverCall<'a> {
    /// The file that the call is made on; open during the call.
    pub(super) file: NonNull<bindings::file>,
    /// The driver's side of it.
    pub(super) backing: &'a BackingFile,
    /// DriverCall code.
    pub(super) cmd: u32,
    /// Argument.
    pub(super) arg: u64,
    /// The scratch that holds the parameters, if there are any.
    pub(super) lease: Option<&'a Lease>,
}

impl DriverCall<'_> {
    /// Makes the call in the current task, which owns the scratch meanwhile, with the credentials
    /// that are installed now. The value is the driver's; an error says that the call was not made.
    ///
    /// # Safety
    ///
    /// `self.file` is open and of the driver behind `self.backing`; the current address space is
    /// the one that `self.arg` and `self.lease` belong to.
    unsafe fn execute(&self) -> Result<i32> {
        let _grant = self.lease.map(Lease::grant);
        // SAFETY: The file is open and of this driver, as this function's contract says.
        unsafe { self.backing.ioctl(self.file, self.cmd, self.arg) }
    }

    /// As [`Self::execute`], without the withheld capabilities.
    ///
    /// # Safety
    ///
    /// As for [`Self::execute`].
    pub(super) unsafe fn execute_reduced(&self) -> Result<i32> {
        // SAFETY: The file is open and of this driver, and the address space is the lease's. Other
        // credentials change neither.
        let execute = || unsafe { self.execute() };
        match self.lease {
            Some(lease) => lease.reduced(execute)?,
            None => creds::reduced(execute)?,
        }
    }
}

/// A queued request.
#[pin_data]
struct Job {
    /// The caller's request; valid until `done`.
    request: NonNull<DriverCall<'static>>,
    /// The caller's address space; valid until `done`.
    mm: NonNull<bindings::mm_struct>,
    /// The caller's credentials, reduced.
    creds: Reduced,
    /// The driver's answer. Written before `done`.
    answer: Atomic<i32>,
    /// Or else, not 0, the negative errno for which it was not asked. Written before `done`.
    failure: Atomic<i32>,
    #[pin]
    done: Completion,
    #[pin]
    links: ListLinks,
}

// SAFETY: The pointers are used by the worker only between queueing and `done`, when by the
// invariant of `DriverCall` they are valid, and are not changed.
unsafe impl Send for Job {}
// SAFETY: Nothing changes what the pointers refer to; the other fields are `Sync`.
unsafe impl Sync for Job {}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Job { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Job { using ListLinks { self.links }; }
}

impl Job {
    /// Makes the call, in the worker's task.
    fn run(&self, template: &BackingFile) {
        match self.call(template) {
            Ok(answer) => self.answer.store(answer, Relaxed),
            Err(e) => self.failure.store(e.to_errno(), Relaxed),
        }
        self.done.complete();
    }

    fn call(&self, template: &BackingFile) -> Result<i32> {
        // SAFETY: The job is not done, so by the invariant of `DriverCall` it is still there.
        let request = unsafe { self.request.as_ref() };
        // SAFETY: A backing file is open.
        let decoy = unsafe { FileRef::get(template.as_non_null()) };
        let _mm = BorrowedMm::enter(self.mm);
        let execute = || {
            self.creds.with(|| {
                // SAFETY: `forward` made the request for an open file of its backing file; `_mm`
                // made the caller's address space the current one.
                unsafe { request.execute() }
            })
        };
        one_file::with_only(&decoy, execute)?
    }
}

/// The caller's address space as the worker's own.
struct BorrowedMm(NonNull<bindings::mm_struct>);

impl BorrowedMm {
    fn enter(mm: NonNull<bindings::mm_struct>) -> Self {
        // SAFETY: A kernel thread without an address space; the caller of the job keeps `mm` in
        // use, since it waits inside an ioctl.
        unsafe { extra::kthread_use_mm(mm.as_ptr()) };
        Self(mm)
    }
}

impl Drop for BorrowedMm {
    fn drop(&mut self) {
        // SAFETY: `enter` did the opposite on this same thread.
        unsafe { extra::kthread_unuse_mm(self.0.as_ptr()) };
    }
}

/// Jobs that wait, in the order in which they came.
struct JobQueue {
    jobs: List<Job>,
    stopping: bool,
}

impl JobQueue {
    /// Takes a job out; whether it was still waiting.
    fn withdraw(&mut self, job: &Job) -> bool {
        // SAFETY: A job is put into one queue only, that of the worker that it was made for.
        unsafe { self.jobs.remove(job) }.is_some()
    }
}

#[pin_data]
struct WorkerShared {
    template: Arc<BackingFile>,
    /// Held for list operations only. In a spinlock no task is taken off its processor.
    #[pin]
    queue: SpinLock<JobQueue>,
    /// A job came, or the worker is to stop.
    #[pin]
    wake: CondVar,
}

impl WorkerShared {
    /// The next job; `None` when the worker is to stop.
    fn next(&self) -> Option<Arc<Job>> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job.into_arc());
            }
            if queue.stopping {
                return None;
            }
            // A kernel thread gets no signal; waiting "interruptibly" only keeps it out of the load
            // average.
            let _ = self.wake.wait_interruptible(&mut queue);
        }
    }
}

impl ThreadTask for WorkerShared {
    fn run(&self) {
        while let Some(job) = self.next() {
            job.run(&self.template);
        }
        // A kernel thread's last `fput` of a file is deferred to a work item. It is done before the
        // worker ends, so that the driver can be unloaded right after. Files of tenants may be
        // among those, whose ends are not waited for in a kernel thread alone.
        // SAFETY: May be called from any context that can sleep.
        unsafe { bindings::flush_delayed_fput() };
    }

    fn stop(&self) {
        self.queue.lock().stopping = true;
        self.wake.notify_one();
    }
}

/// The worker of one GPU.
pub struct Worker {
    // No job waits or runs when it is dropped: each one's caller borrows the worker.
    thread: Thread<WorkerShared>,
}

impl Worker {
    /// Starts the worker of the GPU with this minor number; `template` is the GPU's device.
    pub fn start(minor: u32, template: Arc<BackingFile>) -> Result<Self> {
        let shared = Arc::pin_init(
            try_pin_init!(WorkerShared {
                template,
                queue <- new_spinlock!(JobQueue {
                    jobs: List::new(),
                    stopping: false,
                }),
                wake <- new_condvar!(),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            thread: Thread::start(c"cgpu-worker", minor, ThreadPriority::Normal, shared)?,
        })
    }

    /// Has `request` executed by the worker in the calling task's address space, and waits for it.
    ///
    /// The value is the driver's. An error says that the call was not made: `ERESTARTSYS` if the
    /// calling task was killed while it waited, `ENOMEM`, or `EFAULT` for a task without an address
    /// space.
    ///
    /// # Safety
    ///
    /// As for [`DriverCall::execute`], with the calling task's address space.
    pub(super) unsafe fn call(&self, request: &DriverCall<'_>) -> Result<i32> {
        // SAFETY: The current task is valid, and its address space cannot go while it is in here.
        let mm = unsafe { extra::cgpu_shim_memory() };
        let mm = NonNull::new(mm).ok_or(EFAULT)?;
        let creds = Reduced::of_caller()?;
        let job = ListArc::pin_init(
            try_pin_init!(Job {
                request: NonNull::from(request).cast(),
                mm,
                creds,
                answer: Atomic::new(0),
                failure: Atomic::new(0),
                done <- Completion::new(),
                links <- ListLinks::new(),
            }),
            GFP_KERNEL,
        )?;
        let waiter = job.clone_arc();
        self.thread.task().queue.lock().jobs.push_back(job);
        self.thread.task().wake.notify_one();
        if let Err(killed) = waiter.done.wait_killable() {
            if self.thread.task().queue.lock().withdraw(&waiter) {
                return Err(killed);
            }
            waiter.done.wait();
        }
        match waiter.failure.load(Relaxed) {
            0 => Ok(waiter.answer.load(Relaxed)),
            errno => Err(Error::from_errno(errno)),
        }
    }
}
