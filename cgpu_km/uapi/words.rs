// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Values that have a number in the records and a name for people. Each list stands here once: the
//! module, the tools, their help texts and their JSON take numbers, names and meanings from it.
//!
//! To add a value: one line here. Numbers never change.

/// Declares enums of `Variant = number, "name", "meaning";`. The meaning is also the doc comment.
macro_rules! words {
    ($($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$extra:meta])* $variant:ident = $number:literal, $word:literal, $about:literal;)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$extra])* #[doc = $about] $variant = $number,)*
        }

        impl $name {
            /// All values, by number.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$variant),*];

            /// The number in the records.
            pub const fn number(self) -> u32 {
                // CAST: the discriminant of a repr(u32) enum.
                self as u32
            }

            /// The name in text, JSON and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The number as text.
            pub const fn digits(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($number),)*
                }
            }

            /// The meaning, for help texts.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $about,)*
                }
            }

            /// The value with this number.
            pub fn from_number(number: u32) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.number() == number)
            }

            /// The value with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }

            /// The name of a number; `unknown` for a number without a value.
            pub fn name_of(number: u32) -> &'static str {
                Self::from_number(number).map_or("unknown", Self::name)
            }
        }
    )*};
}

words! {
    /// A compute policy: how the compute time of a GPU is shared. The numbers are cGPU's, the
    /// names say the effect.
    pub enum Policy {
        FixedEqual = 0, "fixed-equal", "Every instance has one part in max_instances, and never more.";
        Equal = 1, "equal", "Instances that have work share equally.";
        Weight = 2, "weight", "Instances that have work share by weight.";
        Fixed = 3, "fixed", "Every instance has its weight in percent, and never more.";
        WeightLazy = 4, "weight-lazy", "By weight, in longer turns; what was left unused may be taken later.";
        Native = 5, "native", "The NVIDIA driver decides.";
    }

    /// The base period: how long a turn of all competing instances is.
    pub enum Period {
        Latency = 0, "latency", "Short turns, from 32 ms: instances wait less.";
        Throughput = 1, "throughput", "Turns of 100 ms: less is lost by switching.";
        Interactive = 2, "interactive", "The shortest turns, from 6 ms: waits are shorter still.";
    }

    /// How the compute time of a GPU is shared at the moment.
    pub enum Mode {
        Native = 0, "native", "As the driver likes: by policy, or because no mechanism works here.";
        Free = 1, "free", "No instance is held back: at most one has work.";
        Slices = 2, "slices", "By the time slices of the channel groups.";
        Windows = 3, "windows", "By windows, one instance at a time.";
    }

    /// The mode of managed memory (`cudaMallocManaged`) that does not fit.
    #[derive(Default)]
    pub enum ManagedMode {
        #[default]
        Spill = 0, "spill",
            "What does not fit lives in host memory, where the GPU uses it, until there is room.";
        Charge = 1, "charge", "What does not fit is refused.";
        Deny = 2, "deny", "All of it is refused.";
    }

    /// How an instance stands to the others on its GPU.
    pub enum Priority {
        Normal = 0, "normal", "As the others.";
        High = 1, "high", "Served before the others.";
    }

    /// The kind of a noted call.
    pub enum CallKind {
        Escape = 0, "escape", "An `ioctl` of `/dev/nvidiactl` or `/dev/nvidiaN`.";
        Class = 1, "class", "A class of an object to be made.";
        Control = 2, "control", "A control of an object.";
        Uvm = 3, "uvm", "A command of `/dev/nvidia-uvm`.";
    }

    /// Why a call was noted.
    pub enum RefusalReason {
        Unlisted = 0, "unlisted", "No table has it.";
        Capability = 1, "capability", "The instance has none of the capabilities that allow it.";
        Foreign = 2, "foreign", "It names a client, GPU or process of another tenant.";
        Forbidden = 3, "forbidden", "It is kept from every container.";
        Parameters = 4, "parameters", "Its parameters say what no container may say.";
        PassedUnseen = 5, "passed_unseen", "It was not refused: it went to the GPU's firmware unseen.";
    }

    /// A thing of which an instance may have only so much.
    pub enum Limited {
        Clients = 0, "clients", "RM clients of the tenant, on all its GPUs.";
        Objects = 1, "objects", "RM objects on the GPU, and on no GPU.";
        Events = 2, "events", "RM objects that are events.";
        Bar1 = 3, "bar1", "Bytes of the GPU's BAR1 that show memory to programs.";
        HostMemory = 4, "host_mem", "Bytes of the host's memory that the driver holds.";
        Files = 5, "files", "Open files of the GPU's node and the tenant's other nodes, and keys of events.";
        Mappings = 6, "mappings", "Mappings of the GPU's registers, children of fork included.";
        Exports = 7, "exports", "Objects behind descriptors, for other processes to take.";
    }
}

impl Policy {
    /// The name that cGPU has for it, where that does not say the effect.
    pub const fn cgpu_name(self) -> Option<&'static str> {
        match self {
            Self::FixedEqual => Some("fair"),
            Self::Equal => Some("preemptive"),
            Self::WeightLazy => Some("soft"),
            Self::Weight | Self::Fixed | Self::Native => None,
        }
    }

    /// Whether an instance is held to its share also when the GPU is otherwise free.
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::FixedEqual | Self::Fixed)
    }
}
