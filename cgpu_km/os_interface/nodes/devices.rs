// SPDX-License-Identifier: GPL-2.0
//! The host nodes: character devices with numbers of our own in devtmpfs.
//!
//! One region of minors, one `cdev` and one class (`/sys/class/cgpu`) serve them all. A number
//! stands for one endpoint and is never given to another while the module is loaded: a copy of a
//! node that somebody made finds nothing once its endpoint is gone, never a stranger's. Numbers are
//! the caller's to choose, below [`MINORS`].
//!
//! These are the numbers for a device cgroup. What a container sees is the proxy node in
//! [`cgpufs`](super::cgpufs): inside it has the same number, and `stat` shows the driver's.

use crate::os_interface::{
    base::extra,
    driver::backing_file::DeviceNumber,
    files::{
        file_operations::open_endpoint,
        session::Endpoint, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    container_of,
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::Arc,
    types::Opaque,
    xarray::{
        AllocKind,
        XArray, //
    }, //
};

/// Minors of the region: all that one major number has.
pub const MINORS: u32 = 1 << bindings::MINORBITS;

/// The region, and which endpoint each number stands for.
///
/// # Invariants
///
/// `cdev` is registered for all of `region`.
#[pin_data(PinnedDrop)]
pub struct HostNodes<E: Endpoint> {
    #[pin]
    cdev: Opaque<extra::cgpu_device>,
    #[pin]
    endpoints: XArray<Arc<E>>,
    class: DeviceClass,
    region: Region,
}

// SAFETY: The kernel locks what it changes in `cdev` and the class after the registration; any task
// may use the endpoints.
unsafe impl<E: Endpoint> Send for HostNodes<E> {}
// SAFETY: The `XArray` locks itself, and the kernel locks what it changes in the other fields.
unsafe impl<E: Endpoint> Sync for HostNodes<E> {}

impl<E: Endpoint> HostNodes<E> {
    /// Takes a major number and makes the class. No node exists yet.
    pub fn register() -> Result<Arc<Self>> {
        let region = Region::new()?;
        let class = DeviceClass::new()?;
        let first = region.0;
        // INVARIANT: `cdev` is the last field that is initialized.
        Arc::pin_init(
            try_pin_init!(Self {
                endpoints <- XArray::new(AllocKind::Alloc),
                class,
                region,
                cdev <- Opaque::try_ffi_init(|place: *mut extra::cgpu_device| {
                    // SAFETY: `place` is pinned, and `first` was reserved above.
                    to_result(unsafe {
                        extra::cgpu_shim_add_device(place, Some(Self::open), first, MINORS)
                    })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The number of the node with this minor.
    pub fn number(&self, minor: u32) -> DeviceNumber {
        DeviceNumber {
            major: self.region.0 >> bindings::MINORBITS,
            minor,
        }
    }

    /// Makes `/dev/<name>` with this minor, standing for `endpoint`.
    ///
    /// `EINVAL` where the minor is not below [`MINORS`], `EEXIST` where it or the name is in use.
    pub fn add(self: &Arc<Self>, minor: u32, name: &CStr, endpoint: Arc<E>) -> Result<HostNode<E>> {
        if minor >= MINORS {
            return Err(EINVAL);
        }
        // The table is filled first: udev may open the node at once.
        {
            let mut endpoints = self.endpoints.lock();
            if endpoints.get(index(minor)).is_some() {
                return Err(EEXIST);
            }
            endpoints.store(index(minor), endpoint, GFP_KERNEL)?;
        }
        // Its drop undoes what was done so far.
        let mut node = HostNode {
            nodes: self.clone(),
            minor,
            is_shown: false,
        };
        let (class, number) = (self.class.0.as_ptr(), self.region.0 | minor);
        // SAFETY: The class is registered; `name` is a string.
        from_err_ptr(unsafe { extra::cgpu_shim_show_device(class, number, name.as_char_ptr()) })?;
        node.is_shown = true;
        Ok(node)
    }

    fn endpoint(&self, minor: u32) -> Option<Arc<E>> {
        self.endpoints.lock().get(index(minor)).map(Into::into)
    }

    /// `open` of every node. It leaves the file to the session, which installs its own operations.
    ///
    /// # Safety
    ///
    /// Only for the `cdev` of a `HostNodes<E>`: `file` is being opened on `inode`, which is of it.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: The inode is valid during its `open`; `chrdev_open` put the device there and
        // holds it.
        let cdev = unsafe { extra::cgpu_shim_node_cdev(inode) };
        // SAFETY: This is for the `cdev` of a `HostNodes<E>` alone, so the device lies in a
        // `HostNodes<E>`; that goes only with the module, which `chrdev_open` holds.
        let this = unsafe { &*container_of!(Opaque::cast_from(cdev.cast()), Self, cdev) };
        // SAFETY: The inode is valid during its `open`.
        let minor = unsafe { extra::cgpu_shim_device_number(inode) } & (MINORS - 1);
        let Some(endpoint) = this.endpoint(minor) else {
            return ENODEV.to_errno();
        };
        // SAFETY: The arguments are those of this `open`; its operations are those of the device.
        match unsafe { open_endpoint(inode, file, &endpoint) } {
            Ok(()) => 0,
            Err(e) => e.to_errno(),
        }
    }
}

#[pinned_drop]
impl<E: Endpoint> PinnedDrop for HostNodes<E> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: It is registered by the type's invariant. No file is open: such a file holds the
        // module, and the nodes go with the module only.
        unsafe { bindings::cdev_del(self.cdev.get().cast()) };
    }
}

/// A node, removed when this is dropped. A copy that somebody made then has no device behind it.
pub struct HostNode<E: Endpoint> {
    nodes: Arc<HostNodes<E>>,
    minor: u32,
    is_shown: bool,
}

impl<E: Endpoint> HostNode<E> {
    /// Its number.
    pub fn number(&self) -> DeviceNumber {
        self.nodes.number(self.minor)
    }
}

impl<E: Endpoint> Drop for HostNode<E> {
    fn drop(&mut self) {
        if self.is_shown {
            let nodes = &self.nodes;
            let (class, number) = (nodes.class.0.as_ptr(), nodes.region.0 | self.minor);
            // SAFETY: `HostNodes::add` made the device, and only this removes it.
            unsafe { extra::cgpu_shim_hide_device(class, number) };
        }
        // The endpoint is dropped when the lock, under which nothing may sleep, is not held.
        let endpoint = self.nodes.endpoints.lock().remove(index(self.minor));
        drop(endpoint);
    }
}

/// A number as the kernel writes it.
pub(super) const fn encoded(number: DeviceNumber) -> bindings::dev_t {
    number.major << bindings::MINORBITS | number.minor
}

/// The place of a minor in the table.
fn index(minor: u32) -> usize {
    // CAST: `usize` has at least 32 bits on every architecture that has Rust in the kernel.
    minor as usize
}

/// A range of device numbers that was reserved, by its first.
struct Region(bindings::dev_t);

impl Region {
    fn new() -> Result<Self> {
        let mut first = 0;
        // SAFETY: `first` is a valid place, the name a static string.
        to_result(unsafe {
            bindings::alloc_chrdev_region(&mut first, 0, MINORS, c"cgpu".as_char_ptr())
        })?;
        Ok(Self(first))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `new` reserved these numbers.
        unsafe { bindings::unregister_chrdev_region(self.0, MINORS) };
    }
}

/// The class of the nodes.
struct DeviceClass(NonNull<bindings::class>);

impl DeviceClass {
    fn new() -> Result<Self> {
        // SAFETY: The name is a static string.
        let class = from_err_ptr(unsafe { extra::cgpu_shim_new_class(c"cgpu".as_char_ptr()) })?;
        let class = NonNull::new(class).ok_or(ENOMEM)?;
        Ok(Self(class))
    }
}

impl Drop for DeviceClass {
    fn drop(&mut self) {
        // SAFETY: `new` made it; its devices are gone, since each of them holds the `HostNodes`.
        unsafe { extra::cgpu_shim_drop_class(self.0.as_ptr()) };
    }
}
