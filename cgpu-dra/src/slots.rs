// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Slots: shares of GPUs in fixed sizes, for clusters whose scheduler cannot divide a GPU. The
//! operator says how many of which size each GPU has ([`Profile`]). Their instances are there all
//! the time, so a slot is what it is whether this program runs or not, and after a reboot too.

use crate::{
    claims::Share,
    failures::Failure,
    gpus::is_mig,
    names::device,
    node::{Node, Places},
    quantity,
    tenants::{adjust, make, said, set_sizes, TenantError},
};
use cgpu_client::{
    cdi::{self, Spec, Surroundings, Tenant},
    control::Control,
    files, pods,
    size::Bytes,
};
use cgpu_uapi::{
    capability, set, text, Gpu, Instance, InstanceKey, InstanceSetChannels, InstanceSetCompute,
    InstanceSetLimit, Limited, ManagedMode, Name, Priority, CHANNELS_MAX, FLAG_OVERCOMMIT,
    LIMIT_DEFAULT, MAX_INSTANCES_PER_GPU, WEIGHT_MAX,
};
use nix::errno::Errno;
use std::{
    collections::BTreeSet,
    fs,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};
use zerocopy::FromZeros;

/// Vendor and class of the slots' CDI devices.
pub const CDI_KIND: &str = "cgpu.io/slot";
/// In front of a profile's name: the resource in pods.
pub const RESOURCE: &str = "cgpu.io/gpu-";
/// Longest name of a profile: with it a device's name stays below the kubelet's 63 bytes.
const LONGEST: usize = 30;

/// A size of slots: `NAME=MEMORY:WEIGHT:COUNT`, like `8g=8Gi:20:4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Pods ask for `cgpu.io/gpu-NAME`.
    pub name: String,
    /// Limit of each slot.
    pub memory_bytes: u64,
    /// Weight of each slot.
    pub weight: u32,
    /// Slots of each GPU.
    pub count: u32,
}

/// Refuses profiles of which two have one name: each is a resource of its own.
pub fn check_names(profiles: &[Profile]) -> Result<(), ProfileError> {
    let mut names = BTreeSet::new();
    let twice = profiles.iter().find(|profile| !names.insert(&profile.name));
    twice.map_or(Ok(()), |profile| {
        Err(ProfileError::Twice(profile.name.clone()))
    })
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Not of the form.
    #[error("a profile is NAME=MEMORY:WEIGHT:COUNT, like 8g=8Gi:20:4")]
    Form,
    /// Its name.
    #[error(
        "the name of a profile has at most {LONGEST} small letters, digits and hyphens, and none \
         at its ends"
    )]
    Name,
    /// Its size.
    #[error("the memory of a profile is a size like 8Gi, at least 1Mi")]
    Memory,
    /// Its weight.
    #[error("the weight of a profile is 1 to {WEIGHT_MAX}")]
    Weight,
    /// Its name is another one's.
    #[error("the profile {0} is there twice; give each size a name of its own")]
    Twice(String),
    /// How many.
    #[error("the count of a profile is 1 to {MAX_INSTANCES_PER_GPU}")]
    Count,
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let (name, sizes) = text.split_once('=').ok_or(ProfileError::Form)?;
        let sizes: Vec<_> = sizes.split(':').collect();
        let [memory, weight, count] = sizes[..] else {
            return Err(ProfileError::Form);
        };
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty()
            || name.len() > LONGEST
            || !name.bytes().all(plain)
            || name.starts_with('-')
            || name.ends_with('-')
        {
            return Err(ProfileError::Name);
        }
        let most = u32::try_from(MAX_INSTANCES_PER_GPU).unwrap_or(u32::MAX);
        let within = |text: &str, most: u32| {
            let number: u32 = text.parse().ok()?;
            (1..=most).contains(&number).then_some(number)
        };
        Ok(Self {
            name: name.to_owned(),
            memory_bytes: quantity::parse(memory)
                .ok()
                .filter(|bytes| *bytes >= 1 << 20)
                .ok_or(ProfileError::Memory)?,
            weight: within(weight, WEIGHT_MAX).ok_or(ProfileError::Weight)?,
            count: within(count, most).ok_or(ProfileError::Count)?,
        })
    }
}

impl Profile {
    /// The resource's name in pods.
    pub fn resource(&self) -> String {
        format!("{RESOURCE}{}", self.name)
    }

    /// Name of the socket of its service.
    pub fn socket(&self) -> String {
        format!("cgpu.io-{}.sock", self.name)
    }
}

/// A share of a GPU that one container has at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name for the kubelet and in CDI files.
    pub id: String,
    /// Name of its profile.
    pub profile: String,
    /// PCI address of its GPU.
    pub pci: String,
    /// Why its instance could not be made, if it is not there.
    pub missing: Option<SlotError>,
    /// The limit of channels that a new instance of its GPU has.
    channels: u32,
    share: Share,
}

impl Slot {
    fn key(&self) -> Option<InstanceKey> {
        let name = Name::new(&format!("{}{}", pods::SLOT, self.id))?;
        Some(InstanceKey::new(name, self.share.minor))
    }

    /// As engines are asked for it.
    pub fn cdi_id(&self) -> String {
        format!("{CDI_KIND}={}", self.id)
    }
}

/// Why slots cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// The profiles are more than a GPU.
    #[error(
        "the profiles take {} and weights of {weight} of {device}, which has {} and {WEIGHT_MAX}; \
         lower a count or a size",
        Bytes(*.wanted_bytes), Bytes(*.memory_bytes)
    )]
    TooMuch {
        /// The GPU.
        device: String,
        /// Sum of the limits.
        wanted_bytes: u64,
        /// Sum of the weights.
        weight: u64,
        /// Memory of the GPU, bytes.
        memory_bytes: u64,
    },
    /// The kubelet asks for what is not there.
    #[error("there is no slot {0} on this node")]
    Unknown(String),
    /// A container has one `/dev/nvidiactl`.
    #[error("a container can have one slot, and this one asks for {0}; use a larger profile")]
    Several(usize),
    /// An instance or a file.
    #[error(transparent)]
    Tenant(#[from] TenantError),
}

/// The slots of the node's GPUs.
fn plan(profiles: &[Profile], gpus: &[Gpu]) -> Result<Vec<Slot>, SlotError> {
    let mut slots = Vec::new();
    for gpu in gpus.iter().filter(|gpu| !is_mig(gpu)) {
        let (mut wanted_bytes, mut weight) = (0u64, 0u64);
        for profile in profiles {
            let all = profile.memory_bytes.saturating_mul(profile.count.into());
            wanted_bytes = wanted_bytes.saturating_add(all);
            weight += u64::from(profile.weight) * u64::from(profile.count);
            slots.extend((0..profile.count).map(|n| slot(profile, gpu, n)));
        }
        if wanted_bytes > gpu.memory_bytes || weight > WEIGHT_MAX.into() {
            return Err(SlotError::TooMuch {
                device: device(gpu.minor),
                wanted_bytes,
                weight,
                memory_bytes: gpu.memory_bytes,
            });
        }
    }
    Ok(slots)
}

fn slot(profile: &Profile, gpu: &Gpu, n: u32) -> Slot {
    let device = device(gpu.minor);
    Slot {
        id: format!("{}-{device}-{n}", profile.name),
        profile: profile.name.clone(),
        pci: text(&gpu.pci).to_owned(),
        missing: None,
        // As the module does (cgpu_km/policy/channel_limit.rs, `default_limit`).
        channels: (CHANNELS_MAX / gpu.max_instances.max(1)).max(1),
        share: Share {
            request: String::new(),
            device,
            share_id: None,
            minor: gpu.minor,
            memory_bytes: profile.memory_bytes,
            weight: profile.weight,
            priority: Priority::Normal.number(),
            managed: ManagedMode::Spill.number(),
            capabilities: capability::DEFAULT,
            burst_ms: None,
        },
    }
}

/// Keeps the slots of a node.
pub struct Slots {
    node: Arc<dyn Node>,
    places: Places,
    profiles: Vec<Profile>,
    /// One change at a time.
    turn: Mutex<()>,
}

impl Slots {
    /// The slots of these profiles.
    pub fn new(node: Arc<dyn Node>, places: Places, profiles: Vec<Profile>) -> Self {
        Self {
            node,
            places,
            profiles,
            turn: Mutex::new(()),
        }
    }

    /// The profiles.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    fn control(&self) -> Result<Box<dyn Control>, TenantError> {
        self.node.control().map_err(TenantError::Control)
    }

    /// Has all slots be there, and their CDI file say what is true of the node now, and gives them
    /// back. Slots of profiles that are gone are removed once nobody uses them, and those that are
    /// larger than their profile shrink then: others may need the room. Without slots there is no
    /// file. If the node's libraries cannot be read, no slot can be used.
    pub fn keep(&self) -> Result<Vec<Slot>, SlotError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.keep_all()
    }

    fn keep_all(&self) -> Result<Vec<Slot>, SlotError> {
        let control = self.control()?;
        let gpus = control.gpus().map_err(TenantError::Control)?;
        let mut slots = plan(&self.profiles, &gpus)?;
        let there = control.instances().map_err(TenantError::Control)?;
        let wanted: BTreeSet<_> = slots.iter().filter_map(|s| Some(s.key()?.name.0)).collect();
        for instance in &there {
            let name = instance.key.name.as_str().unwrap_or_default();
            if name.starts_with(pods::SLOT) && !wanted.contains(&instance.key.name.0) {
                // One that is in use goes later.
                let _ = control.destroy(&instance.key);
            }
        }
        let of = |slot: &Slot| {
            let name = slot.key()?.name;
            there.iter().find(|i| i.key.name.0 == name.0)
        };
        for slot in &slots {
            if let Some(instance) = of(slot).filter(|i| !is_open(i)) {
                shrink(&*control, instance, &slot.share);
            }
        }
        for slot in &mut slots {
            if of(slot).is_none() {
                let key = slot.key().ok_or(Errno::EILSEQ);
                let made = key.and_then(|key| make(&*control, key, &slot.share, 0));
                slot.missing = made.err().map(|errno| failed(slot, errno));
            }
        }
        let file = self.places.cdi.join(pods::SLOTS_FILE);
        let Some(spec) = self.spec(&*control, &gpus, &slots)? else {
            files::remove(&file).map_err(TenantError::Path)?;
            return Ok(slots);
        };
        // `cgpuctl unload` removes /run/cgpu if nothing is in it, and it is mounted in this
        // program's container: a new one would be another.
        files::make_folder(&self.places.state).map_err(TenantError::Path)?;
        // The file may stay the same while the module is loaded anew, which unmounts.
        self.node.mount_cgpufs().map_err(TenantError::Path)?;
        // Of texts and numbers alone, which cannot fail.
        let written = serde_json::to_vec_pretty(&spec).unwrap_or_default();
        if !fs::read(&file).is_ok_and(|there| there == written) {
            files::make_folder(&self.places.cdi).map_err(TenantError::Path)?;
            files::write_whole(&file, &written).map_err(TenantError::Path)?;
        }
        Ok(slots)
    }

    fn spec(
        &self,
        control: &dyn Control,
        gpus: &[Gpu],
        slots: &[Slot],
    ) -> Result<Option<Spec>, TenantError> {
        let version = control.version().map_err(TenantError::Control)?;
        let mut instances = control.instances().map_err(TenantError::Control)?;
        instances.retain(|i| {
            let own = |s: &Slot| s.key().is_some_and(|key| key.name.0 == i.key.name.0);
            slots.iter().any(own)
        });
        let around = Surroundings {
            libraries: self.node.libraries(text(&version.driver))?,
            hook: self.node.hook(),
        };
        let tenants = cdi::tenants(instances);
        Ok((!tenants.is_empty()).then(|| spec_of(&tenants, gpus, &around)))
    }

    /// Gives a container its slot: its name in CDI files. Whatever an operator changed for the last
    /// container that had it is as at first again.
    pub fn allocate(&self, ids: &[String]) -> Result<String, SlotError> {
        let [id] = ids else {
            return Err(SlotError::Several(ids.len()));
        };
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = self.keep_all()?;
        let slot = slots.iter().find(|slot| slot.id == *id);
        let slot = slot.ok_or_else(|| SlotError::Unknown(id.chars().take(63).collect()))?;
        if let Some(why) = &slot.missing {
            return Err(why.clone());
        }
        let key = slot.key().ok_or_else(|| failed(slot, Errno::EILSEQ))?;
        let control = self.control()?;
        renew(&*control, key, slot).map_err(|e| failed(slot, e))?;
        Ok(slot.cdi_id())
    }

    /// Has those of these slots that no program has open be as at first. Gives back their names.
    pub fn put_back(&self, ids: &BTreeSet<String>) -> Result<Vec<String>, SlotError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let control = self.control()?;
        let gpus = control.gpus().map_err(TenantError::Control)?;
        let there = control.instances().map_err(TenantError::Control)?;
        let mut done = Vec::new();
        for slot in plan(&self.profiles, &gpus)? {
            let key = slot.key().filter(|_| ids.contains(&slot.id));
            let is_free = |key: &InstanceKey| {
                let own = there.iter().find(|i| i.key.name.0 == key.name.0);
                own.is_some_and(|instance| !is_open(instance))
            };
            if let Some(key) = key.filter(is_free) {
                renew(&*control, key, &slot).map_err(|e| failed(&slot, e))?;
                done.push(slot.id);
            }
        }
        Ok(done)
    }
}

/// Has a slot's instance be as a new one, also in what no profile says.
fn renew(control: &dyn Control, key: InstanceKey, slot: &Slot) -> Result<(), Errno> {
    adjust(control, key, &slot.share, 0)?;
    let mut channels = InstanceSetChannels::new_zeroed();
    channels.key = key;
    channels.channel_limit = slot.channels;
    // A new instance gets so many, whatever others have.
    channels.flags = FLAG_OVERCOMMIT;
    control.set_channels(&channels)?;
    for what in Limited::ALL {
        let mut limit = InstanceSetLimit::new_zeroed();
        limit.key = key;
        limit.what = what.number();
        limit.limit = LIMIT_DEFAULT;
        control.set_limit(&limit)?;
    }
    let mut resumed = InstanceSetCompute::new_zeroed();
    resumed.key = key;
    resumed.set = set::SUSPENDED;
    control.set_instance_compute(&resumed)
}

/// Whether a program has the instance open.
fn is_open(instance: &Instance) -> bool {
    instance.open_files + instance.tenant_open_files > 0
}

/// Takes from an instance what it has beyond its share.
fn shrink(control: &dyn Control, instance: &Instance, share: &Share) {
    let (memory_bytes, weight) = (instance.memory_limit_bytes, instance.weight);
    if memory_bytes > share.memory_bytes || weight > share.weight {
        let less = Share {
            memory_bytes: memory_bytes.min(share.memory_bytes),
            weight: weight.min(share.weight),
            ..share.clone()
        };
        // An instance that does not shrink is in the way of others, which say so.
        let _ = set_sizes(control, instance.key, &less, 0);
    }
}

/// The file of these slots. Each is a tenant of its own: its control node, its UVM node and its
/// hook stand in its device, and beside the devices is only what is the same for all.
fn spec_of(tenants: &[Tenant], gpus: &[Gpu], around: &Surroundings) -> Spec {
    let mut spec = cdi::make(tenants, gpus, around);
    spec.kind = CDI_KIND.to_owned();
    for device in &mut spec.devices {
        if let Some(id) = device.name.strip_prefix(pods::SLOT) {
            device.name = id.to_owned();
        }
    }
    spec
}

fn failed(slot: &Slot, errno: Errno) -> SlotError {
    TenantError::Make {
        name: format!("{}{}", pods::SLOT, slot.id),
        device: slot.share.device.clone(),
        memory_bytes: slot.share.memory_bytes,
        weight: slot.share.weight,
        errno,
    }
    .into()
}

/// Whether the NVIDIA driver answers; if not, why, a sentence.
pub fn driver_answers(node: &dyn Node) -> Result<(), String> {
    // The GPUs first: looking for them is what makes the module ask for the version.
    let looked = node.control().and_then(|control| control.gpus());
    if looked.and_then(|_| node.has_driver()).map_err(said)? {
        Ok(())
    } else {
        Err(Failure::DriverGone.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read() {
        assert_eq!(
            "8g=8Gi:20:4".parse(),
            Ok(Profile {
                name: "8g".to_owned(),
                memory_bytes: 8 << 30,
                weight: 20,
                count: 4
            })
        );
        for (text, error) in [
            ("8g", ProfileError::Form),
            ("8g=8Gi:20", ProfileError::Form),
            ("8g=8Gi:20:4:5", ProfileError::Form),
            ("=8Gi:20:4", ProfileError::Name),
            ("../x=8Gi:20:4", ProfileError::Name),
            ("-a=8Gi:20:4", ProfileError::Name),
            ("A=8Gi:20:4", ProfileError::Name),
            ("8g=8gb:20:4", ProfileError::Memory),
            ("8g=1:20:4", ProfileError::Memory),
            ("8g=8Gi:0:4", ProfileError::Weight),
            ("8g=8Gi:101:4", ProfileError::Weight),
            ("8g=8Gi:20:0", ProfileError::Count),
            ("8g=8Gi:20:65", ProfileError::Count),
        ] {
            assert_eq!(text.parse::<Profile>(), Err(error), "{text}");
        }
    }
}
