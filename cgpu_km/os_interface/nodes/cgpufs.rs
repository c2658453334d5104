// SPDX-License-Identifier: GPL-2.0
//! The proxy nodes: a small filesystem whose device files show the numbers of NVIDIA's devices.
//!
//! CUDA refuses a device whose number is not the real one, but a node in `/dev` that shows a false
//! number would be a hole: every tool that copies nodes by number would hand out the real GPU. So
//! the false numbers are shown only here, by `getattr`; the file is handed to a container as a bind
//! mount. What opens it, and what a device cgroup sees (`i_rdev`), is our own number.
//!
//! * There is one superblock. The host's root mounts it (`mount -t cgpufs`), user namespaces
//!   cannot; the root directory lets only root in. A mount, also a bind mount of a single file,
//!   holds the module.
//! * No user can make, remove, rename or change anything, not even a mode: all who have it mounted
//!   share it. A proxy node's mode is 0666, as that of NVIDIA's devices. The mounts decide who can
//!   reach it.
//! * The files exist whether it is mounted or not. An inode holds its endpoint, not a number: a
//!   bind mount that outlives the file opens what it always stood for, and that then says `ENODEV`.
//!
//! Lock order: `s_umount` of the superblock, then [`Cgpufs::tree`], then the inode locks of the
//! directories. Dropping an endpoint happens under `tree` (with its inode), so an endpoint's drop
//! must not come back here.

mod dentry;

use super::devices::encoded;
use crate::os_interface::{
    base::extra,
    driver::backing_file::DeviceNumber,
    files::{
        file_operations::open_endpoint,
        session::Endpoint, //
    }, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use dentry::{
    make,
    unmake, //
};
use kernel::{
    bindings,
    error::to_result,
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    types::ForeignOwnable, //
};

/// Mode of a proxy node.
const PROXY_NODE_MODE: bindings::umode_t = 0o666;
/// Mode of the root directory, which no container gets to see.
const ROOT_MODE: bindings::umode_t = 0o700;
/// Mode of a tenant's directory.
const DIRECTORY_MODE: bindings::umode_t = 0o755;

/// A proxy node: the object behind it, and its numbers.
pub struct ProxyNode<E: Endpoint> {
    /// The endpoint that an `open` opens.
    pub endpoint: Arc<E>,
    /// Its number for the device cgroup: that of the host node.
    pub number: DeviceNumber,
    /// The number that `stat` shows.
    pub stat_number: DeviceNumber,
}

impl<E: Endpoint> Clone for ProxyNode<E> {
    fn clone(&self) -> Self {
        Self {
            endpoint: self.endpoint.clone(),
            number: self.number,
            stat_number: self.stat_number,
        }
    }
}

/// The registered filesystem; the type is removed when this is dropped.
///
/// # Invariants
///
/// It is the one that [`REGISTERED`] names, from the end of `register` on.
#[pin_data(PinnedDrop)]
pub struct Cgpufs<E: Endpoint> {
    #[pin]
    tree: Mutex<CgpufsTree<E>>,
}

// SAFETY: It is a lock that may be used by any task.
unsafe impl<E: Endpoint> Send for Cgpufs<E> {}
// SAFETY: The tree is behind its lock.
unsafe impl<E: Endpoint> Sync for Cgpufs<E> {}

/// Everything that is to be seen.
///
/// # Invariants
///
/// While `mounted` is not null it is our superblock, alive, and the dentries of the directories and
/// files are in it; otherwise they are null.
struct CgpufsTree<E: Endpoint> {
    mounted: *mut bindings::super_block,
    directories: KVec<CgpufsDirectory<E>>,
    next_id: u64,
}

// SAFETY: The pointers are used only under the tree's lock, as its invariant says.
unsafe impl<E: Endpoint> Send for CgpufsTree<E> {}

struct CgpufsDirectory<E: Endpoint> {
    name: CString,
    dentry: *mut bindings::dentry,
    files: KVec<CgpufsFile<E>>,
}

struct CgpufsFile<E: Endpoint> {
    id: u64,
    name: CString,
    node: ProxyNode<E>,
    dentry: *mut bindings::dentry,
}

/// A file, removed when this is dropped, and its directory with the last one. Bind mounts of it
/// stay.
pub struct ProxyNodeFile<E: Endpoint> {
    fs: Arc<Cgpufs<E>>,
    id: u64,
}

/// The `Cgpufs` that is registered, null while there is none.
static REGISTERED: Atomic<*mut c_void> = Atomic::new(null_mut());

impl<E: Endpoint> Cgpufs<E> {
    const CALLBACKS: extra::cgpu_fs_callbacks = extra::cgpu_fs_callbacks {
        fill: Some(Self::fill),
        kill: Some(Self::kill),
        evict: Some(Self::evict),
        stat_number: Some(Self::stat_number),
        open: Some(Self::open),
    };

    /// Registers the type, under `name`. There can be one at a time; `EBUSY` if one is registered.
    pub fn register(name: &'static CStr) -> Result<Arc<Self>> {
        let this: Arc<Self> = Arc::pin_init(
            pin_init!(Self {
                tree <- new_mutex!(CgpufsTree {
                    mounted: null_mut(),
                    directories: KVec::new(),
                    next_id: 0,
                }),
            }),
            GFP_KERNEL,
        )?;
        let state = Arc::as_ptr(&this).cast_mut().cast::<c_void>();
        if REGISTERED.cmpxchg(null_mut(), state, Full).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: Nothing is registered, and nobody else can register anything before
        // `REGISTERED` is empty again. On failure the drop of `this` empties it.
        to_result(unsafe {
            extra::cgpu_shim_register_filesystem(name.as_char_ptr(), &Self::CALLBACKS)
        })?;
        Ok(this)
    }

    /// Makes the file `name` in `directory`, which is made with its first file.
    ///
    /// `EEXIST` where there is one of this name.
    pub fn add(
        self: &Arc<Self>,
        directory: &CStr,
        name: &CStr,
        node: ProxyNode<E>,
    ) -> Result<ProxyNodeFile<E>> {
        let mut guard = self.tree.lock();
        let tree = &mut *guard;
        let id = tree.next_id;
        tree.next_id += 1;
        let file = CgpufsFile {
            id,
            name: name.to_cstring()?,
            node,
            dentry: null_mut(),
        };
        if !tree.directories.iter().any(|f| *f.name == *directory) {
            let directory = CgpufsDirectory {
                name: directory.to_cstring()?,
                dentry: null_mut(),
                files: KVec::new(),
            };
            tree.directories.push(directory, GFP_KERNEL)?;
        }
        let place = tree.directories.iter_mut().find(|f| *f.name == *directory);
        let place = place.ok_or(ENOENT)?;
        let result = if place.files.iter().any(|f| *f.name == *name) {
            Err(EEXIST)
        } else {
            place.files.push(file, GFP_KERNEL).map_err(Error::from)
        };
        let result = result.and_then(|()| match NonNull::new(tree.mounted) {
            Some(mounted) => self.make_missing(mounted, place),
            None => Ok(()),
        });
        if let Err(e) = result {
            tree.remove(id);
            return Err(e);
        }
        drop(guard);
        Ok(ProxyNodeFile {
            fs: self.clone(),
            id,
        })
    }

    /// Makes the dentries that a directory and its files lack.
    ///
    /// The tree is locked, and `mounted` is the superblock in it.
    fn make_missing(
        &self,
        mounted: NonNull<bindings::super_block>,
        directory: &mut CgpufsDirectory<E>,
    ) -> Result {
        // SAFETY: The tree is locked, so the superblock in it is alive, and `fill` made its root.
        let root = unsafe { extra::cgpu_shim_root(mounted.as_ptr()) };
        if directory.dentry.is_null() {
            // SAFETY: The tree is locked, so the superblock in it is alive.
            let inode = unsafe { extra::cgpu_shim_new_directory(mounted.as_ptr(), DIRECTORY_MODE) };
            let inode = NonNull::new(inode).ok_or(ENOMEM)?;
            // SAFETY: `root` is a directory of this superblock, the inode is a new one of it.
            directory.dentry = unsafe { make(root, &directory.name, inode) }?;
            // SAFETY: A directory's inode; only this and the removal change its count, under the
            // lock of the tree.
            unsafe { extra::cgpu_shim_one_directory_more(root) };
        }
        for file in &mut directory.files {
            if file.dentry.is_null() {
                let inode = self.device(mounted, &file.node)?;
                // SAFETY: The directory is one of this superblock, the inode is a new one of it.
                file.dentry = unsafe { make(directory.dentry, &file.name, inode) }?;
            }
        }
        Ok(())
    }

    /// A new inode that stands for the proxy node.
    fn device(
        &self,
        mounted: NonNull<bindings::super_block>,
        node: &ProxyNode<E>,
    ) -> Result<NonNull<bindings::inode>> {
        let private = KBox::new(node.clone(), GFP_KERNEL)?.into_foreign();
        // SAFETY: The superblock is alive; `evict` takes `private` back.
        let inode = unsafe {
            extra::cgpu_shim_new_device(
                mounted.as_ptr(),
                PROXY_NODE_MODE,
                encoded(node.number),
                private,
            )
        };
        NonNull::new(inode).ok_or_else(|| {
            // SAFETY: No inode took it.
            drop(unsafe { KBox::<ProxyNode<E>>::from_foreign(private) });
            ENOMEM
        })
    }

    /// The `Cgpufs` that is registered.
    ///
    /// # Safety
    ///
    /// Only in a call of the registered type's operations, and where that was registered by a
    /// `Cgpufs<E>`.
    unsafe fn registered<'a>() -> &'a Self {
        // SAFETY: `register` put it there before the type was registered; it stays until after the
        // last superblock, which holds the module.
        unsafe { &*REGISTERED.load(Acquire).cast::<Self>() }
    }

    /// Fills a new superblock; `s_umount` is held.
    ///
    /// # Safety
    ///
    /// `sb` is a new superblock of the registered type.
    unsafe extern "C" fn fill(sb: *mut bindings::super_block) -> c_int {
        // SAFETY: A call of the registered type.
        let this = unsafe { Self::registered() };
        // SAFETY: The superblock is valid, and nobody else's yet.
        let result = unsafe { extra::cgpu_shim_fill_super(sb, ROOT_MODE) };
        if result != 0 {
            return result;
        }
        let Some(mounted) = NonNull::new(sb) else {
            return EINVAL.to_errno();
        };
        let mut guard = this.tree.lock();
        let tree = &mut *guard;
        // INVARIANT: It is alive until `kill`, which empties this; that is called too where what
        // follows fails.
        tree.mounted = sb;
        for directory in &mut tree.directories {
            if let Err(e) = this.make_missing(mounted, directory) {
                return e.to_errno();
            }
        }
        0
    }

    /// A superblock that has no mount any more is going to be removed; `s_umount` is held.
    ///
    /// # Safety
    ///
    /// `sb` is a superblock of the registered type.
    unsafe extern "C" fn kill(sb: *mut bindings::super_block) {
        // SAFETY: A call of the registered type.
        let this = unsafe { Self::registered() };
        let mut tree = this.tree.lock();
        if tree.mounted == sb {
            // INVARIANT: All pointers into it are forgotten before it goes.
            tree.mounted = null_mut();
            for directory in &mut tree.directories {
                directory.dentry = null_mut();
                for file in &mut directory.files {
                    file.dentry = null_mut();
                }
            }
        }
    }

    /// An inode goes.
    ///
    /// # Safety
    ///
    /// `private` is what an inode of this filesystem has, which nobody uses any more.
    unsafe extern "C" fn evict(private: *mut c_void) {
        // SAFETY: Only proxy nodes have such data, which are taken back here alone.
        drop(unsafe { KBox::<ProxyNode<E>>::from_foreign(private) });
    }

    /// The device number in `stat` of a proxy node: the number of NVIDIA's device.
    ///
    /// # Safety
    ///
    /// `private` is what a proxy node's inode has.
    unsafe extern "C" fn stat_number(private: *mut c_void) -> bindings::dev_t {
        // SAFETY: The inode has these data until it is evicted.
        encoded(unsafe { (*private.cast::<ProxyNode<E>>()).stat_number })
    }

    /// `open` of a proxy node. It leaves the file to the session, which installs its operations.
    ///
    /// # Safety
    ///
    /// `file` is being opened on `inode`, which is a proxy node's.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: A proxy node's inode has these data until it is evicted, and `file` holds it.
        let endpoint = unsafe {
            (*extra::cgpu_shim_inode_data(inode).cast::<ProxyNode<E>>())
                .endpoint
                .clone()
        };
        // SAFETY: The arguments are those of this `open`; its operations are those of the inode,
        // which stay as long as the module.
        match unsafe { open_endpoint(inode, file, &endpoint) } {
            Ok(()) => 0,
            Err(e) => e.to_errno(),
        }
    }
}

#[pinned_drop]
impl<E: Endpoint> PinnedDrop for Cgpufs<E> {
    fn drop(self: Pin<&mut Self>) {
        let me: *const Self = &*self;
        if REGISTERED.load(Relaxed) == me.cast_mut().cast() {
            // SAFETY: `register` registered it; where that failed, this does nothing.
            unsafe { extra::cgpu_shim_unregister_filesystem() };
            REGISTERED.store(null_mut(), Release);
        }
    }
}

impl<E: Endpoint> CgpufsTree<E> {
    /// Removes a file, and its directory with the last one.
    fn remove(&mut self, id: u64) {
        let Some(place) = self
            .directories
            .iter()
            .position(|directory| directory.files.iter().any(|f| f.id == id))
        else {
            return self.remove_empty();
        };
        if let Some(directory) = self.directories.get_mut(place) {
            if let Some(at) = directory.files.iter().position(|f| f.id == id) {
                if let Ok(file) = directory.files.remove(at) {
                    // SAFETY: A dentry that is not null is alive, by the tree's invariant.
                    unsafe { unmake(file.dentry) };
                }
            }
        }
        self.remove_empty();
    }

    fn remove_empty(&mut self) {
        while let Some(place) = self.directories.iter().position(|f| f.files.is_empty()) {
            if let Ok(directory) = self.directories.remove(place) {
                // SAFETY: A dentry that is not null is alive, by the tree's invariant.
                unsafe { unmake(directory.dentry) };
            }
        }
    }
}

impl<E: Endpoint> Drop for ProxyNodeFile<E> {
    fn drop(&mut self) {
        self.fs.tree.lock().remove(self.id);
    }
}
