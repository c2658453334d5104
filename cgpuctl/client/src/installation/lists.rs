// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The libraries and programs of NVIDIA's user space, grouped by driver capability
//! (`NVIDIA_DRIVER_CAPABILITIES`). The names are those of libnvidia-container (`src/nvc_info.c`,
//! 1.17), without those that only Tegra has.

/// A driver capability: a group of the driver's files. (An instance's capabilities are sets of
/// calls: see [`crate::capabilities`].)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Capability {
    /// CUDA and OpenCL.
    Compute,
    /// nvidia-smi and the management library.
    Utility,
    /// Video encoder and decoder.
    Video,
    /// OpenGL, EGL and Vulkan.
    Graphics,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Compute, Self::Utility, Self::Video, Self::Graphics];

    /// Its libraries, without their versions.
    pub fn libraries(self) -> &'static [&'static str] {
        match self {
            Self::Compute => &[
                "libcuda.so",
                "libcudadebugger.so",
                "libnvidia-opencl.so",
                "libnvidia-gpucomp.so",
                "libnvidia-ptxjitcompiler.so",
                "libnvidia-fatbinaryloader.so",
                "libnvidia-allocator.so",
                "libnvidia-compiler.so",
                "libnvidia-pkcs11.so",
                "libnvidia-pkcs11-openssl3.so",
                "libnvidia-nvvm.so",
                "libnvidia-nvvm70.so",
                "libnvidia-tileiras.so",
            ],
            Self::Utility => &["libnvidia-ml.so", "libnvidia-cfg.so", "libnvidia-nscq.so"],
            Self::Video => &[
                "libvdpau_nvidia.so",
                "libnvidia-encode.so",
                "libnvidia-opticalflow.so",
                "libnvcuvid.so",
            ],
            Self::Graphics => &[
                "libnvidia-eglcore.so",
                "libnvidia-glcore.so",
                "libnvidia-tls.so",
                "libnvidia-glsi.so",
                "libnvidia-fbc.so",
                "libnvidia-ifr.so",
                "libnvidia-rtcore.so",
                "libnvoptix.so",
                "libGLX_nvidia.so",
                "libEGL_nvidia.so",
                "libGLESv2_nvidia.so",
                "libGLESv1_CM_nvidia.so",
                "libnvidia-glvkspirv.so",
                "libnvidia-cbl.so",
            ],
        }
    }

    /// Its programs. Those of MPS are left out, because the MPS server uses the GPU for all its
    /// clients, outside every instance.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Utility => &["nvidia-smi", "nvidia-debugdump"],
            Self::Compute | Self::Video | Self::Graphics => &[],
        }
    }
}

/// The folders in which programs are looked for.
pub const PROGRAM_FOLDERS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The folders in which libraries are looked for if the host has no `ld.so.cache`.
pub const LIBRARY_FOLDERS: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Sockets of NVIDIA's daemons that a container with an instance does not get, each with the
/// reason.
pub const SOCKETS: [(&str, &str); 3] = [
    (
        "/run/nvidia-persistenced/socket",
        "changes the persistence mode of whole GPUs",
    ),
    (
        "/run/nvidia-fabricmanager/socket",
        "manages the NVLink fabric of all GPUs",
    ),
    (
        "/tmp/nvidia-mps",
        "MPS works on the GPU outside every instance",
    ),
];
