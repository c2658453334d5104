// SPDX-License-Identifier: GPL-2.0
//! libcuda's driver API, found at run time: the calls that the cases make, with the types of
//! `cuda.h`.
//!
//! GPU addresses and handles are numbers to us, and libcuda checks them. Host memory is passed as
//! slices, or as the address of a `device::Pinned`, which lives as long as its context.

use std::{
    ffi::{c_char, c_int, c_uint, c_void, CStr, CString},
    fmt,
    mem::transmute,
};

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `RTLD_NOW` of `dlfcn.h`.
const RTLD_NOW: c_int = 2;

/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: c_int = 2;
/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: c_int = 600;

/// A call that libcuda refused: the function and its `CUresult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CudaError {
    /// The function's name as libcuda exports it.
    pub(crate) function: &'static str,
    /// `CUresult`, never 0.
    pub(crate) code: c_int,
}

impl fmt::Display for CudaError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} returned {}", self.function, self.code)
    }
}

impl From<CudaError> for String {
    fn from(error: CudaError) -> String {
        error.to_string()
    }
}

/// The result of a call of libcuda.
pub(crate) type Done = Result<(), CudaError>;

/// An address in a GPU's address space (`CUdeviceptr`).
pub(crate) type Address = u64;
/// A handle of libcuda's: context, stream, event, graph, module, function, pool, allocation.
pub(crate) type Handle = usize;

/// The handle that an export for another process gives (`CUipcMemHandle`, `CUipcEventHandle`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// The place of memory (`CUmemLocation`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct MemoryLocation {
    /// 1: a device.
    pub(crate) kind: c_int,
    /// The device's number.
    pub(crate) device: c_int,
}

/// The wish of `cuMemCreate` (`CUmemAllocationProp`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct AllocationProperties {
    /// 1: pinned, the only kind.
    pub(crate) kind: c_int,
    /// 1: can be exported as a file descriptor.
    pub(crate) handle_types: c_int,
    /// The device that it is on.
    pub(crate) location: MemoryLocation,
    /// Windows' only.
    pub(crate) security: usize,
    /// Compression, remote access, usage: none.
    pub(crate) flags: u64,
}

/// The device that may reach a range, and how (`CUmemAccessDesc`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AccessDescription {
    /// The device that may.
    pub(crate) location: MemoryLocation,
    /// 3: read and write.
    pub(crate) rights: c_int,
}

/// The wish of `cuMemPoolCreate` (`CUmemPoolProps`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolProperties {
    /// 1: pinned.
    pub(crate) kind: c_int,
    /// 1: can be exported as a file descriptor.
    pub(crate) handle_types: c_int,
    /// The device that it is on.
    pub(crate) location: MemoryLocation,
    /// Windows' only.
    pub(crate) security: usize,
    /// 0: as large as the system lets it.
    pub(crate) largest: usize,
    /// Room for later versions, zero.
    pub(crate) reserved: [u64; 7],
}

/// One side of a copy of rows: half of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Rows {
    /// Bytes to leave out in each row.
    pub(crate) x: usize,
    /// Rows to leave out.
    pub(crate) y: usize,
    /// 1: host, 2: device.
    pub(crate) kind: c_int,
    /// The address, if it is the host's.
    pub(crate) host: usize,
    /// The address, if it is a device's.
    pub(crate) device: Address,
    /// No array.
    pub(crate) array: usize,
    /// Bytes from row to row.
    pub(crate) pitch: usize,
}

/// A copy of rows (`CUDA_MEMCPY2D`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RowsCopy {
    /// The source.
    pub(crate) from: Rows,
    /// The destination.
    pub(crate) to: Rows,
    /// Bytes of each row.
    pub(crate) width: usize,
    /// Rows.
    pub(crate) height: usize,
}

/// One side of a graph's copy: half of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Block {
    /// Bytes, rows, slices and mipmap levels to leave out.
    pub(crate) origin: [usize; 4],
    /// 1: host, 2: device.
    pub(crate) kind: c_int,
    /// The address, if it is the host's.
    pub(crate) host: usize,
    /// The address, if it is a device's.
    pub(crate) device: Address,
    /// No array.
    pub(crate) array: usize,
    /// Zero.
    pub(crate) reserved: usize,
    /// Bytes from row to row.
    pub(crate) pitch: usize,
    /// Rows from slice to slice.
    pub(crate) rows: usize,
}

/// A graph's copy (`CUDA_MEMCPY3D`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct BlockCopy {
    /// The source.
    pub(crate) from: Block,
    /// The destination.
    pub(crate) to: Block,
    /// Bytes of a row, rows, slices.
    pub(crate) extent: [usize; 3],
}

/// A host function in a graph (`CUDA_HOST_NODE_PARAMS`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostNode {
    /// The function that is called.
    pub(crate) function: extern "C" fn(usize),
    /// Its argument.
    pub(crate) argument: usize,
}

/// How a kernel is launched (`CUlaunchConfig`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    /// Blocks in three dimensions.
    pub(crate) grid: [c_uint; 3],
    /// Threads of a block in three dimensions.
    pub(crate) block: [c_uint; 3],
    /// Bytes of shared memory besides what the kernel declares.
    pub(crate) shared: c_uint,
    /// The stream.
    pub(crate) stream: Handle,
    /// No attributes.
    pub(crate) attributes: usize,
    /// None of them.
    pub(crate) count: c_uint,
}

/// Declares libcuda's functions: a method for each, that returns its `CUresult` as a `Result`.
macro_rules! functions {
    ($($method:ident = $symbol:literal($($name:ident: $kind:ty),*);)*) => {
        /// libcuda, loaded.
        pub(crate) struct Cuda {
            $($method: unsafe extern "C" fn($($kind),*) -> c_int,)*
        }

        impl Cuda {
            /// Loads libcuda. It is never unloaded: its threads would not survive that.
            pub(crate) fn load() -> Result<Cuda, String> {
                // SAFETY: The name ends in a zero, and libcuda's constructors may be run.
                let library = unsafe { dlopen(c"libcuda.so.1".as_ptr(), RTLD_NOW) };
                if library.is_null() {
                    return Err("there is no libcuda.so.1".into());
                }
                Ok(Cuda { $($method: {
                    let found = symbol(library, $symbol)?;
                    // SAFETY: cuda.h declares this function so; references are pointers there.
                    unsafe {
                        transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> c_int>(found)
                    }
                },)* })
            }

            $(
                #[doc = concat!("Calls `", $symbol, "`.")]
                pub(crate) fn $method(&self, $($name: $kind),*) -> Done {
                    // SAFETY: The signature is cuda.h's. References outlive the call, numbers are
                    // checked by libcuda.
                    match unsafe { (self.$method)($($name),*) } {
                        0 => Ok(()),
                        code => Err(CudaError { function: $symbol, code }),
                    }
                }
            )*
        }
    };
}

/// The address of a function in a library.
fn symbol(library: *mut c_void, name: &str) -> Result<*mut c_void, String> {
    let wanted = CString::new(name).map_err(|error| error.to_string())?;
    // SAFETY: The library is loaded and never unloaded, the name ends in a zero.
    let found = unsafe { dlsym(library, wanted.as_ptr()) };
    if found.is_null() {
        return Err(format!("libcuda has no {name}"));
    }
    Ok(found)
}

functions! {
    init = "cuInit"(flags: c_uint);
    driver_version = "cuDriverGetVersion"(version: &mut c_int);
    device_count = "cuDeviceGetCount"(count: &mut c_int);
    device_get = "cuDeviceGet"(device: &mut c_int, ordinal: c_int);
    device_name = "cuDeviceGetName"(name: &mut [u8; 64], room: c_int, device: c_int);
    device_uuid = "cuDeviceGetUuid_v2"(uuid: &mut [u8; 16], device: c_int);
    device_total = "cuDeviceTotalMem_v2"(bytes: &mut usize, device: c_int);
    device_attribute = "cuDeviceGetAttribute"(value: &mut c_int, attribute: c_int, device: c_int);
    device_bus_id = "cuDeviceGetPCIBusId"(name: &mut [u8; 64], room: c_int, device: c_int);
    device_by_bus_id = "cuDeviceGetByPCIBusId"(device: &mut c_int, name: &[u8; 64]);

    context_create = "cuCtxCreate_v2"(context: &mut Handle, flags: c_uint, device: c_int);
    context_destroy = "cuCtxDestroy_v2"(context: Handle);
    context_push = "cuCtxPushCurrent_v2"(context: Handle);
    context_pop = "cuCtxPopCurrent_v2"(context: &mut Handle);
    context_current = "cuCtxGetCurrent"(context: &mut Handle);
    context_set_current = "cuCtxSetCurrent"(context: Handle);
    context_synchronize = "cuCtxSynchronize"();
    context_api = "cuCtxGetApiVersion"(context: Handle, version: &mut c_uint);
    context_device = "cuCtxGetDevice"(device: &mut c_int);
    primary_retain = "cuDevicePrimaryCtxRetain"(context: &mut Handle, device: c_int);
    primary_release = "cuDevicePrimaryCtxRelease_v2"(device: c_int);
    primary_state = "cuDevicePrimaryCtxGetState"(
        device: c_int, flags: &mut c_uint, active: &mut c_int
    );

    memory_info = "cuMemGetInfo_v2"(free: &mut usize, total: &mut usize);
    memory_allocate = "cuMemAlloc_v2"(address: &mut Address, bytes: usize);
    memory_free = "cuMemFree_v2"(address: Address);
    memory_pitch = "cuMemAllocPitch_v2"(
        address: &mut Address, pitch: &mut usize, width: usize, height: usize, element: c_uint
    );
    memory_range = "cuMemGetAddressRange_v2"(
        base: &mut Address, bytes: &mut usize, address: Address
    );
    host_allocate = "cuMemHostAlloc"(pointer: &mut usize, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost"(pointer: usize);
    host_address = "cuMemHostGetDevicePointer_v2"(
        address: &mut Address, pointer: usize, flags: c_uint
    );
    managed_allocate = "cuMemAllocManaged"(address: &mut Address, bytes: usize, flags: c_uint);
    managed_prefetch = "cuMemPrefetchAsync"(
        address: Address, bytes: usize, device: c_int, stream: Handle
    );
    managed_advise = "cuMemAdvise"(address: Address, bytes: usize, advice: c_int, device: c_int);
    copy_in_raw = "cuMemcpyHtoD_v2"(to: Address, from: usize, bytes: usize);
    copy_out_raw = "cuMemcpyDtoH_v2"(to: usize, from: Address, bytes: usize);
    copy_within = "cuMemcpyDtoD_v2"(to: Address, from: Address, bytes: usize);
    copy_in_async = "cuMemcpyHtoDAsync_v2"(to: Address, from: usize, bytes: usize, stream: Handle);
    copy_out_async = "cuMemcpyDtoHAsync_v2"(to: usize, from: Address, bytes: usize, stream: Handle);
    copy_rows = "cuMemcpy2D_v2"(copy: &RowsCopy);
    set_bytes = "cuMemsetD8_v2"(to: Address, value: u8, bytes: usize);
    set_words = "cuMemsetD32_v2"(to: Address, value: c_uint, words: usize);

    address_reserve = "cuMemAddressReserve"(
        address: &mut Address, bytes: usize, alignment: usize, wanted: Address, flags: u64
    );
    address_free = "cuMemAddressFree"(address: Address, bytes: usize);
    granularity = "cuMemGetAllocationGranularity"(
        bytes: &mut usize, properties: &AllocationProperties, recommended: c_int
    );
    allocation_create = "cuMemCreate"(
        allocation: &mut u64, bytes: usize, properties: &AllocationProperties, flags: u64
    );
    allocation_release = "cuMemRelease"(allocation: u64);
    allocation_map = "cuMemMap"(
        address: Address, bytes: usize, offset: usize, allocation: u64, flags: u64
    );
    allocation_unmap = "cuMemUnmap"(address: Address, bytes: usize);
    set_access = "cuMemSetAccess"(
        address: Address, bytes: usize, who: &AccessDescription, count: usize
    );
    allocation_export = "cuMemExportToShareableHandle"(
        descriptor: &mut c_int, allocation: u64, kind: c_int, flags: u64
    );
    allocation_import = "cuMemImportFromShareableHandle"(
        allocation: &mut u64, descriptor: usize, kind: c_int
    );

    pool_create = "cuMemPoolCreate"(pool: &mut Handle, properties: &PoolProperties);
    pool_destroy = "cuMemPoolDestroy"(pool: Handle);
    pool_default = "cuDeviceGetDefaultMemPool"(pool: &mut Handle, device: c_int);
    pool_trim = "cuMemPoolTrimTo"(pool: Handle, keep: usize);
    pool_allocate = "cuMemAllocFromPoolAsync"(
        address: &mut Address, bytes: usize, pool: Handle, stream: Handle
    );
    pool_export = "cuMemPoolExportToShareableHandle"(
        descriptor: &mut c_int, pool: Handle, kind: c_int, flags: u64
    );
    allocate_async = "cuMemAllocAsync"(address: &mut Address, bytes: usize, stream: Handle);
    free_async = "cuMemFreeAsync"(address: Address, stream: Handle);

    ipc_memory = "cuIpcGetMemHandle"(handle: &mut IpcHandle, address: Address);
    ipc_open_memory = "cuIpcOpenMemHandle_v2"(
        address: &mut Address, handle: IpcHandle, flags: c_uint
    );
    ipc_close_memory = "cuIpcCloseMemHandle"(address: Address);
    ipc_event = "cuIpcGetEventHandle"(handle: &mut IpcHandle, event: Handle);
    ipc_open_event = "cuIpcOpenEventHandle"(event: &mut Handle, handle: IpcHandle);

    stream_create = "cuStreamCreate"(stream: &mut Handle, flags: c_uint);
    stream_create_priority = "cuStreamCreateWithPriority"(
        stream: &mut Handle, flags: c_uint, priority: c_int
    );
    stream_destroy = "cuStreamDestroy_v2"(stream: Handle);
    stream_query = "cuStreamQuery"(stream: Handle);
    stream_synchronize = "cuStreamSynchronize"(stream: Handle);
    stream_wait_event = "cuStreamWaitEvent"(stream: Handle, event: Handle, flags: c_uint);
    stream_priorities = "cuCtxGetStreamPriorityRange"(least: &mut c_int, greatest: &mut c_int);
    launch_host = "cuLaunchHostFunc"(
        stream: Handle, function: extern "C" fn(usize), argument: usize
    );
    event_create = "cuEventCreate"(event: &mut Handle, flags: c_uint);
    event_destroy = "cuEventDestroy_v2"(event: Handle);
    event_record = "cuEventRecord"(event: Handle, stream: Handle);
    event_query = "cuEventQuery"(event: Handle);
    event_synchronize = "cuEventSynchronize"(event: Handle);
    event_elapsed = "cuEventElapsedTime"(milliseconds: &mut f32, from: Handle, to: Handle);

    graph_create = "cuGraphCreate"(graph: &mut Handle, flags: c_uint);
    graph_destroy = "cuGraphDestroy"(graph: Handle);
    graph_add_copy = "cuGraphAddMemcpyNode"(
        node: &mut Handle, graph: Handle, after: &Handle, count: usize,
        copy: &BlockCopy, context: Handle
    );
    graph_add_host = "cuGraphAddHostNode"(
        node: &mut Handle, graph: Handle, after: &Handle, count: usize, host: &HostNode
    );
    graph_nodes = "cuGraphGetNodes"(graph: Handle, nodes: usize, count: &mut usize);
    graph_instantiate = "cuGraphInstantiateWithFlags"(
        instance: &mut Handle, graph: Handle, flags: u64
    );
    graph_instance_destroy = "cuGraphExecDestroy"(instance: Handle);
    graph_upload = "cuGraphUpload"(instance: Handle, stream: Handle);
    graph_launch = "cuGraphLaunch"(instance: Handle, stream: Handle);

    module_load = "cuModuleLoadData"(module: &mut Handle, image: usize);
    module_unload = "cuModuleUnload"(module: Handle);
    module_function = "cuModuleGetFunction"(function: &mut Handle, module: Handle, name: usize);
    launch = "cuLaunchKernelEx"(
        launch: &Launch, function: Handle, parameters: &[usize; 2], extra: usize
    );
}

impl Cuda {
    /// Copies host memory to the GPU, and returns when it is there.
    pub(crate) fn copy_in(&self, to: Address, from: &[u8]) -> Done {
        self.copy_in_raw(to, from.as_ptr() as usize, from.len())
    }

    /// Copies memory of the GPU's to the host.
    pub(crate) fn copy_out(&self, to: &mut [u8], from: Address) -> Done {
        self.copy_out_raw(to.as_mut_ptr() as usize, from, to.len())
    }
}

/// The text before the first zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes)
        .map_or_else(|_| "?".into(), |text| text.to_string_lossy().into_owned())
}
