// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Makes the instances of claims and removes them again. Everything can be done twice, and can be
//! stopped in the middle: the journal knows a claim before its first instance is there, and until
//! its last one and its CDI file are gone.

use crate::{
    claims::{Plan, PlanError, Share},
    gpus::Inventory,
    journal::Journal,
    names::{self, Uid, CDI_KIND},
    node::{Node, Places},
    status::Resize,
    turns::{Turn, Turns},
};
use cgpu_client::{
    cdi::{self, Surroundings, Tenant},
    control::Control,
    files,
    path_error::PathError,
    pods,
    size::Bytes,
    text::enumerate,
};
use cgpu_uapi::{
    set, text, Cause, Instance, InstanceCompute, InstanceCreate, InstanceKey,
    InstanceSetCapabilities, InstanceSetCompute, InstanceSetManaged, InstanceSetMemory,
    InstanceSetWeight, Name, BURST_OF_GPU, FLAG_OVERCOMMIT,
};
use nix::errno::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use zerocopy::FromZeros;

/// Why instances could not be made or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    /// The claim itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The control device cannot be used.
    #[error("cannot use /dev/cgpuctl on this node: {}; is the module cgpu_km loaded?", said(*.0))]
    Control(Errno),
    /// The module made no instance.
    #[error(
        "cannot make the instance {name} on {device} with {} and weight {weight}: {}",
        Bytes(*.memory_bytes), said(*.errno)
    )]
    Make {
        /// Its name.
        name: String,
        /// The GPU.
        device: String,
        /// Limit.
        memory_bytes: u64,
        /// Weight.
        weight: u32,
        /// Why.
        errno: Errno,
    },
    /// Programs still run.
    #[error(
        "cannot remove the instance {name} yet: {} still open; `lsof /dev/cgpu*` shows whose",
        files_are(*.files)
    )]
    InUse {
        /// Its name.
        name: String,
        /// Open files of its nodes.
        files: u32,
    },
    /// The module kept it.
    #[error("cannot remove the instance {name}: {}", said(*.errno))]
    Remove {
        /// Its name.
        name: String,
        /// Why.
        errno: Errno,
    },
    /// Somebody removed it meanwhile.
    #[error("the instance {0} vanished while it was prepared; did an operator destroy it?")]
    Vanished(String),
    /// Another change has not ended.
    #[error(
        "the instance {0} is being changed, which waits for the NVIDIA driver or for a program of \
         the claim's pods; the kubelet tries again"
    )]
    Busy(String),
    /// A file.
    #[error(transparent)]
    Path(#[from] PathError),
}

fn files_are(count: u32) -> String {
    match count {
        1 => "one file is".to_owned(),
        n => format!("{n} files are"),
    }
}

/// The meaning of an errno of the control device.
pub fn said(errno: Errno) -> String {
    // CAST: errno values are small.
    let words = match Cause::from_errno(errno as i32) {
        Some(Cause::LimitsAboveGpu) => {
            "the limits of the GPU's instances would be above its memory; were instances made by \
             hand just now?"
        }
        Some(Cause::LimitAboveGpu) => "the limit is above the GPU's memory",
        Some(Cause::TooMany) => "the GPU has as many instances as it can have",
        Some(Cause::TooManyForPolicy) => {
            "the GPU's policy fixed-equal has no part left; raise it with `cgpuctl gpu set \
             --max-instances`"
        }
        Some(Cause::WeightsAboveWhole) => "the weights would be above 100 under the policy fixed",
        Some(Cause::DriverMissing) => "the NVIDIA driver does not answer",
        Some(Cause::UnknownDriver) => "the module does not know the running NVIDIA driver",
        Some(Cause::NoSuchGpu) => "the GPU is not there",
        Some(Cause::NoKernelInterface) => {
            "the driver's interface for other kernel modules cannot be used; `dmesg | grep \
             cgpu_km` says why"
        }
        Some(Cause::Malformed | Cause::UnknownCommand) => {
            "the loaded module does not understand this version of cgpu-dra; install both from \
             the same release"
        }
        Some(Cause::NotPermitted) => "this takes the node's root",
        _ => return format!("{errno:?} ({})", errno.desc()),
    };
    words.to_owned()
}

/// Whether an errno of the control device says that the driver or the module is not there. Any
/// other, such as that of too many open files, says nothing about them.
pub fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENODEV | Errno::ENXIO)
}

/// The outcome of a look at the GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// There is no instance, and nobody asked the driver.
    Rested,
    /// The GPUs as they are now.
    Found {
        /// The GPUs.
        inventory: Inventory,
        /// Whether there was no instance.
        is_idle: bool,
    },
}

/// The instances of the claims of this node.
pub struct Tenants {
    node: Arc<dyn Node>,
    places: Places,
    overcommit: u32,
    journal: Journal,
    turns: Turns,
    /// Claims that are deleted or allocated elsewhere, and whose instances are still there.
    gone: Mutex<BTreeSet<Uid>>,
}

impl Tenants {
    /// Opens the journal.
    pub fn open(node: Arc<dyn Node>, places: Places, overcommit: u32) -> Result<Self, PathError> {
        let journal = Journal::open(places.state.join(pods::CLAIMS))?;
        Ok(Self {
            node,
            places,
            overcommit,
            journal,
            turns: Turns::default(),
            gone: Mutex::default(),
        })
    }

    fn control(&self) -> Result<Box<dyn Control>, TenantError> {
        self.node.control().map_err(TenantError::Control)
    }

    /// Of each command that sets a limit.
    fn flags(&self) -> u32 {
        if self.overcommit > 100 {
            FLAG_OVERCOMMIT
        } else {
            0
        }
    }

    /// The turn at changing a claim.
    fn turn(&self, uid: &Uid) -> Result<Turn<'_>, TenantError> {
        let turn = self.turns.take(uid);
        turn.ok_or_else(|| TenantError::Busy(uid.instance()))
    }

    /// The GPUs as they are now. The scheduler knows of the claims that are there, and of no other
    /// instance.
    pub fn inventory(&self) -> Result<Inventory, Errno> {
        let gone = self.gone_claims();
        Inventory::read(&*self.node.control()?, self.overcommit, |uid| {
            self.journal.knows(uid) && !gone.contains(uid)
        })
    }

    /// Looks at the GPUs. Where there is no instance, the module asks the driver each time, which
    /// initialises each GPU that nothing keeps open. `may_rest` spares it that.
    pub fn look(&self, may_rest: bool) -> Result<Look, Errno> {
        let is_idle = self.node.control()?.instances()?.is_empty();
        if may_rest && is_idle {
            return Ok(Look::Rested);
        }
        let inventory = self.inventory()?;
        Ok(Look::Found { inventory, is_idle })
    }

    /// Which load of the NVIDIA driver is there.
    pub fn driver_load(&self) -> Option<u64> {
        self.node.driver_load()
    }

    fn gone(&self) -> MutexGuard<'_, BTreeSet<Uid>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the apiserver has a claim no more, or elsewhere.
    pub fn note_gone(&self, uid: &Uid, is_gone: bool) {
        let mut gone = self.gone();
        if is_gone {
            gone.insert(uid.clone());
        } else {
            gone.remove(uid);
        }
    }

    /// The claims that were noted so.
    pub fn gone_claims(&self) -> BTreeSet<Uid> {
        self.gone().clone()
    }

    /// Whether the module has found the NVIDIA driver.
    pub fn has_driver(&self) -> Result<bool, Errno> {
        self.node.has_driver()
    }

    /// All claims that are prepared, or were being prepared.
    pub fn plans(&self) -> BTreeMap<Uid, Plan> {
        self.journal.plans()
    }

    /// The plan of a claim that is prepared, or was being prepared.
    pub fn plan(&self, uid: &Uid) -> Option<Plan> {
        self.journal.plan(uid)
    }

    /// The instances of a claim.
    pub fn instances(&self, uid: &Uid) -> Result<Vec<Instance>, TenantError> {
        of_claim(&*self.control()?, uid).map_err(TenantError::Control)
    }

    /// The GPU time of all instances.
    pub fn compute(&self) -> Result<Vec<InstanceCompute>, Errno> {
        self.node.control()?.instance_compute()
    }

    /// Makes the instances of a claim and its CDI file, no larger than the claim's `wish`. Those
    /// that are there stay as they are; but if the journal does not say that they were complete,
    /// they get what the plan says.
    pub fn prepare(&self, uid: &Uid, plan: &Plan, wish: &Resize) -> Result<(), TenantError> {
        let _turn = self.turn(uid)?;
        self.prepare_in_turn(uid, plan, wish)
    }

    /// Makes those of a claim's instances again that are not there any more, unless it was
    /// unprepared or prepared anew since it had this plan. Says whether it has made any.
    pub fn restore(&self, uid: &Uid, plan: &Plan, wish: &Resize) -> Result<bool, TenantError> {
        let _turn = self.turn(uid)?;
        // A removal that has begun took the file first, and is tried again.
        let is_same = self.journal.plan(uid).as_ref() == Some(plan) && self.cdi_file(uid).is_file();
        let there = self.instances(uid)?;
        let is_whole = plan.shares.iter().all(|share| is_there(&there, share));
        let is_lost = is_same && !(is_whole && self.journal.is_complete(uid));
        if is_lost {
            self.prepare_in_turn(uid, plan, wish)?;
        }
        Ok(is_lost)
    }

    fn prepare_in_turn(&self, uid: &Uid, plan: &Plan, wish: &Resize) -> Result<(), TenantError> {
        let control = self.control()?;
        let was_known = self.journal.knows(uid);
        let before = self.journal.plan(uid);
        let anew = before.is_some_and(|before| !before.is_same_allocation(plan));
        let there = of_claim(&*control, uid).map_err(TenantError::Control)?;
        if anew {
            let has_share = |i: &&Instance| plan.shares.iter().any(|s| s.minor == i.key.gpu_minor);
            let mut left = there.iter().filter(|i| !has_share(i));
            left.try_for_each(|i| destroy(&*control, i))?;
        }
        let complete = !anew && self.journal.is_complete(uid);
        // Somebody may have made one of the claim's name on a GPU that it has no share of.
        if !complete || plan.shares.iter().any(|share| !is_there(&there, share)) {
            self.journal.add(uid, plan)?;
        }
        // The journal has what was set aside: an instance may grow up to that later.
        let shares: Vec<_> = plan.shares.iter().map(|share| wish.within(share)).collect();
        let made = self.make_all(&*control, uid, &shares, &there, complete);
        let made = made.and_then(|()| {
            self.journal.complete(uid)?;
            self.node.mount_cgpufs()?;
            self.write_cdi(&*control, uid)
        });
        if made.is_err() && !was_known {
            // The failure to report is the one above; the kubelet tries again, and unprepares.
            let _ = self.remove_all(&*control, uid);
        }
        made
    }

    fn make_all(
        &self,
        control: &dyn Control,
        uid: &Uid,
        shares: &[Share],
        there: &[Instance],
        complete: bool,
    ) -> Result<(), TenantError> {
        for share in shares {
            let failed = |errno| TenantError::Make {
                name: uid.instance(),
                device: share.device.clone(),
                memory_bytes: share.memory_bytes,
                weight: share.weight,
                errno,
            };
            let name = Name::new(&uid.instance()).ok_or(failed(Errno::EILSEQ))?;
            let key = InstanceKey::new(name, share.minor);
            let flags = self.flags();
            match (is_there(there, share), complete) {
                (false, _) => make(control, key, share, flags).map_err(failed)?,
                (true, false) => adjust(control, key, share, flags).map_err(failed)?,
                (true, true) => {}
            }
        }
        Ok(())
    }

    fn cdi_file(&self, uid: &Uid) -> PathBuf {
        let name = format!("cgpu.io-claim-{}.json", uid.as_str());
        self.places.cdi.join(name)
    }

    fn write_cdi(&self, control: &dyn Control, uid: &Uid) -> Result<(), TenantError> {
        let version = control.version().map_err(TenantError::Control)?;
        let gpus = control.gpus().map_err(TenantError::Control)?;
        let instances = of_claim(control, uid).map_err(TenantError::Control)?;
        let around = Surroundings {
            libraries: self.node.libraries(text(&version.driver))?,
            hook: self.node.hook(),
        };
        let tenants = cdi::tenants(instances);
        let spec = tenants.first().and_then(|tenant: &Tenant| {
            cdi::make_by_gpu(CDI_KIND, tenant, &gpus, &around, |instance| {
                uid.cdi_device(instance.key.gpu_minor)
            })
        });
        let spec = spec.ok_or_else(|| TenantError::Vanished(uid.instance()))?;
        let text = serde_json::to_vec_pretty(&spec).unwrap_or_default();
        files::make_folder(&self.places.cdi)?;
        Ok(files::write_whole(&self.cdi_file(uid), &text)?)
    }

    /// Removes the instances of a claim and its CDI file. A claim that nobody knows is removed
    /// already.
    pub fn unprepare(&self, uid: &Uid) -> Result<(), TenantError> {
        let _turn = self.turn(uid)?;
        self.remove(uid)
    }

    /// The same, unless the claim was prepared anew since it had this plan. Says whether.
    pub fn unprepare_as(&self, uid: &Uid, plan: &Plan) -> Result<bool, TenantError> {
        let _turn = self.turn(uid)?;
        let is_same = self.journal.plan(uid).as_ref() == Some(plan);
        if is_same {
            self.remove(uid)?;
        }
        Ok(is_same)
    }

    fn remove(&self, uid: &Uid) -> Result<(), TenantError> {
        match self.node.control() {
            Ok(control) => self.remove_all(&*control, uid),
            // The module has gone, and with it all instances.
            Err(Errno::ENOENT) => self.forget(uid),
            Err(errno) => Err(TenantError::Control(errno)),
        }
    }

    fn remove_all(&self, control: &dyn Control, uid: &Uid) -> Result<(), TenantError> {
        // First, so that no new container gets what is being removed.
        files::remove(&self.cdi_file(uid))?;
        for instance in of_claim(control, uid).map_err(TenantError::Control)? {
            destroy(control, &instance)?;
        }
        self.forget(uid)
    }

    fn forget(&self, uid: &Uid) -> Result<(), TenantError> {
        files::remove(&self.cdi_file(uid))?;
        self.journal.strike(uid)?;
        self.note_gone(uid, false);
        Ok(())
    }

    /// Removes instances of claims that the journal does not know, and those of slots, which an
    /// earlier device plugin has left: this driver gives out none. Gives back the names of those
    /// that are in use and stay.
    pub fn remove_strays(&self) -> Result<Vec<String>, TenantError> {
        let control = self.control()?;
        let instances = control.instances().map_err(TenantError::Control)?;
        let (mut kept, mut has_slots) = (Vec::new(), false);
        for instance in instances {
            let name = instance.key.name.as_str().unwrap_or_default();
            let (uid, is_slot) = (names::uid_of(name), name.starts_with(pods::SLOT));
            if uid.is_none() && !is_slot {
                continue;
            }
            // A claim that is being changed is known to the journal, or is being removed.
            let turn = uid.as_ref().map(|uid| self.turns.take_now(uid));
            if matches!(turn, Some(None)) || uid.is_some_and(|uid| self.journal.knows(&uid)) {
                continue;
            }
            if destroy(&*control, &instance).is_err() {
                kept.push(name.to_owned());
                has_slots |= is_slot;
            }
        }
        // By this file other programs know that the slots are some.
        if !has_slots {
            files::remove(&self.places.cdi.join(pods::SLOTS_FILE))?;
        }
        Ok(kept)
    }

    /// Changes limit and weight of a claim's instances, within what the scheduler has set aside.
    /// Says what could not be done.
    pub fn resize(
        &self,
        uid: &Uid,
        memory_bytes: Option<u64>,
        weight: Option<u32>,
    ) -> Result<(), String> {
        let _turn = self.turn(uid).map_err(|busy| busy.to_string())?;
        let plan = self.journal.plan(uid).ok_or("the claim is not prepared")?;
        let control = self.node.control().map_err(said)?;
        let mut refused = Vec::new();
        for share in &plan.shares {
            let memory_bytes = memory_bytes.unwrap_or(share.memory_bytes);
            let weight = weight.unwrap_or(share.weight);
            if memory_bytes > share.memory_bytes || weight > share.weight || weight == 0 {
                refused.push(format!(
                    "{} has {} and weight {} set aside by the scheduler, and no instance can grow \
                     beyond that: Kubernetes cannot change an allocation",
                    share.device,
                    Bytes(share.memory_bytes),
                    share.weight
                ));
                continue;
            }
            let wanted = Share {
                memory_bytes,
                weight,
                ..share.clone()
            };
            let name = Name::new(&uid.instance()).ok_or("the name cannot be used")?;
            let key = InstanceKey::new(name, share.minor);
            if let Err(errno) = set_sizes(&*control, key, &wanted, self.flags()) {
                refused.push(format!("{}: {}", share.device, said(errno)));
            }
        }
        if refused.is_empty() {
            Ok(())
        } else {
            Err(enumerate(&refused, "and"))
        }
    }
}

/// Removes an instance, if it is there.
fn destroy(control: &dyn Control, instance: &Instance) -> Result<(), TenantError> {
    let name = instance.key.name.as_str().unwrap_or_default().to_owned();
    match control.destroy(&instance.key) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(Errno::EBUSY) => {
            let files = instance.open_files + instance.tenant_open_files;
            Err(TenantError::InUse { name, files })
        }
        Err(errno) => Err(TenantError::Remove { name, errno }),
    }
}

/// The instances of a claim, by GPU.
fn of_claim(control: &dyn Control, uid: &Uid) -> Result<Vec<Instance>, Errno> {
    let name = uid.instance();
    let mut instances = control.instances()?;
    instances.retain(|i| i.key.name.as_str() == Some(&name));
    instances.sort_by_key(|i| i.key.gpu_minor);
    Ok(instances)
}

/// Whether one of a claim's instances is on the GPU of a share.
fn is_there(instances: &[Instance], share: &Share) -> bool {
    let mut minors = instances.iter().map(|i| i.key.gpu_minor);
    minors.any(|minor| minor == share.minor)
}

/// Makes an instance of a share.
pub(crate) fn make(
    control: &dyn Control,
    key: InstanceKey,
    share: &Share,
    flags: u32,
) -> Result<(), Errno> {
    let mut request = InstanceCreate::new_zeroed();
    request.key = key;
    request.memory_limit_bytes = share.memory_bytes;
    request.weight = share.weight;
    request.flags = flags;
    request.managed_mode = share.managed;
    request.capabilities = share.capabilities;
    control.create(&mut request)?;
    set_compute(control, key, share)
}

/// Sets its priority and its burst.
fn set_compute(control: &dyn Control, key: InstanceKey, share: &Share) -> Result<(), Errno> {
    let mut request = InstanceSetCompute::new_zeroed();
    request.key = key;
    request.set = set::HIGH_PRIORITY | set::INSTANCE_BURST;
    request.high_priority = share.priority;
    request.burst_ms = share.burst_ms.unwrap_or(BURST_OF_GPU);
    control.set_instance_compute(&request)
}

/// Has an instance be what a share says.
pub(crate) fn adjust(
    control: &dyn Control,
    key: InstanceKey,
    share: &Share,
    flags: u32,
) -> Result<(), Errno> {
    set_sizes(control, key, share, flags)?;
    let mut managed = InstanceSetManaged::new_zeroed();
    managed.key = key;
    managed.managed_mode = share.managed;
    control.set_managed(&managed)?;
    let mut capabilities = InstanceSetCapabilities::new_zeroed();
    capabilities.key = key;
    capabilities.capabilities = share.capabilities;
    control.set_capabilities(&capabilities)?;
    set_compute(control, key, share)
}

/// Sets its limit and its weight.
pub(crate) fn set_sizes(
    control: &dyn Control,
    key: InstanceKey,
    share: &Share,
    flags: u32,
) -> Result<(), Errno> {
    let mut memory = InstanceSetMemory::new_zeroed();
    memory.key = key;
    memory.memory_limit_bytes = share.memory_bytes;
    memory.flags = flags;
    control.set_memory(&memory)?;
    let mut weight = InstanceSetWeight::new_zeroed();
    weight.key = key;
    weight.weight = share.weight;
    control.set_weight(&weight)
}
