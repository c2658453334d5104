// SPDX-License-Identifier: GPL-2.0
//! Kernel threads, and sleeping in one until a moment or until somebody wakes it.

use super::extra;
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    bindings,
    error::from_err_ptr,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

/// The work of a thread.
pub trait ThreadTask: Send + Sync + 'static {
    /// Runs on the thread, until [`ThreadTask::stop`] was called.
    fn run(&self);

    /// Makes [`ThreadTask::run`] return soon, or at once if it is not there yet.
    fn stop(&self);
}

/// A kernel thread, which ends when this is dropped.
///
/// # Invariants
///
/// The pointer is a thread that runs [`main`] with `given`, and we hold a reference of its
/// `task_struct`.
pub struct Thread<T: ThreadTask> {
    task: Arc<T>,
    thread: NonNull<bindings::task_struct>,
    /// Left to the thread, which takes it when it runs.
    given: *mut ThreadStart<T>,
}

/// The start of a thread, which is given to it.
#[repr(C)]
struct ThreadStart<T: ThreadTask> {
    /// First, so that a pointer to it is one to the whole.
    head: extra::cgpu_thread,
    task: Arc<T>,
}

// SAFETY: The thread is only stopped and put through this pointer, by the one who drops this.
unsafe impl<T: ThreadTask> Send for Thread<T> {}
// SAFETY: A shared reference gives the task alone, and a [`ThreadTask`] is `Sync`.
unsafe impl<T: ThreadTask> Sync for Thread<T> {}

unsafe extern "C" fn main<T: ThreadTask>(given: *mut extra::cgpu_thread) -> c_int {
    // SAFETY: `Thread::start` left the thread the box that this is the first field of.
    let given = unsafe { KBox::from_raw(given.cast::<ThreadStart<T>>()) };
    given.task.run();
    0
}

/// How a thread is served among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPriority {
    /// As any other.
    Normal,
    /// Before all that is not realtime: it works for some microseconds, and being late has a price.
    Prompt,
}

impl<T: ThreadTask> Thread<T> {
    /// Starts the thread `NAME/NUMBER`.
    pub fn start(name: &CStr, number: u32, priority: ThreadPriority, task: Arc<T>) -> Result<Self> {
        let head = extra::cgpu_thread {
            run: Some(main::<T>),
        };
        let given = ThreadStart {
            head,
            task: task.clone(),
        };
        let given = KBox::into_raw(KBox::new(given, GFP_KERNEL)?);
        // SAFETY: `main` takes what it is given; the name is a string.
        let thread = from_err_ptr(unsafe {
            extra::cgpu_shim_new_thread(given.cast(), name.as_char_ptr(), number)
        })
        .and_then(|thread| NonNull::new(thread).ok_or(ENOMEM))
        .inspect_err(|_| {
            // SAFETY: No thread was made that could have taken the box.
            drop(unsafe { KBox::from_raw(given) })
        })?;
        // The thread ends by itself when it is told to; our own reference keeps `kthread_stop`
        // valid after that.
        // SAFETY: A new thread does not run, let alone end, before it is woken.
        unsafe { bindings::get_task_struct(thread.as_ptr()) };
        if priority == ThreadPriority::Prompt {
            // SAFETY: The reference keeps the task valid.
            unsafe { bindings::sched_set_fifo_low(thread.as_ptr()) };
        }
        // SAFETY: The reference keeps the task valid.
        unsafe { bindings::wake_up_process(thread.as_ptr()) };
        // INVARIANT: The reference was taken above.
        Ok(Self {
            task,
            thread,
            given,
        })
    }

    /// Its work.
    pub fn task(&self) -> &T {
        &self.task
    }
}

impl<T: ThreadTask> Drop for Thread<T> {
    fn drop(&mut self) {
        self.task.stop();
        // SAFETY: By the invariant our reference keeps the task valid, running or ended.
        let exit = unsafe { bindings::kthread_stop(self.thread.as_ptr()) };
        if exit != 0 {
            // `main` returns 0, so this is the kernel's `EINTR` for a thread that was stopped
            // before it ran at all: it never took the box that `start` left to it.
            // SAFETY: That box came from `KBox::into_raw`, and nobody else has it.
            drop(unsafe { KBox::from_raw(self.given) });
        }
        // SAFETY: The reference was ours.
        unsafe { bindings::put_task_struct(self.thread.as_ptr()) };
    }
}

/// A place at which one thread sleeps until others wake it.
#[pin_data]
pub struct Alarm {
    #[pin]
    state: SpinLock<AlarmState>,
}

struct AlarmState {
    /// Somebody woke it since it slept last.
    woken: bool,
    /// The task that sleeps. It is valid while it stands here, because it takes itself out.
    sleeper: *mut bindings::task_struct,
}

// SAFETY: The task is only woken through the pointer, which any task may do.
unsafe impl Send for AlarmState {}

/// How much later than asked for the thread may be woken, so that timers can be put together.
const SLACK_NS: u64 = 20_000;

impl Alarm {
    /// Nobody sleeps.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock!(AlarmState {
                woken: false,
                sleeper: null_mut(),
            }),
        })
    }

    /// Wakes the thread that sleeps, or else the one that will do so next.
    pub fn ring(&self) {
        let mut state = self.state.lock();
        state.woken = true;
        if !state.sleeper.is_null() {
            // SAFETY: The thread is still asleep, or about to be: it takes itself out under this
            // lock.
            unsafe { bindings::wake_up_process(state.sleeper) };
        }
    }

    /// Sleeps until [`Alarm::ring`], or until [`now`](super::clock::now) is `deadline`. For one
    /// kernel thread.
    pub fn sleep(&self, deadline: Option<u64>) {
        // SAFETY: There is no precondition.
        self.state.lock().sleeper = unsafe { bindings::get_current() };
        let mut until = deadline.map(|deadline| i64::try_from(deadline).unwrap_or(i64::MAX));
        let until = until.as_mut().map_or(null_mut(), |until| until);
        loop {
            // SAFETY: The current task's own state. It is not asleep before it is looked whether it
            // was woken, so no ring is missed.
            unsafe { extra::cgpu_shim_become_idle() };
            if self.state.lock().woken {
                break;
            }
            let mode = bindings::hrtimer_mode_HRTIMER_MODE_ABS;
            // SAFETY: Null, or a time in a place of our own.
            let left = unsafe { bindings::schedule_hrtimeout_range(until, SLACK_NS, mode) };
            if left == 0 && !until.is_null() {
                break;
            }
        }
        // SAFETY: The current task's own state.
        unsafe { extra::cgpu_shim_become_running() };
        let mut state = self.state.lock();
        state.sleeper = null_mut();
        state.woken = false;
    }
}
