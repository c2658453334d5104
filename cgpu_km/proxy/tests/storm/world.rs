// SPDX-License-Identifier: GPL-2.0
//! Tenants with their accounting, processes with their files, and the driver behind them.

use super::{
    super::*,
    machine::{
        Fate,
        Machine,
        Task,
        EXPORT, //
    },
    scale::{
        Rng,
        GPUS,
        TENANTS, //
    }, //
};
use crate::policy::{
    channel_limit::Engines,
    ShareView, //
};

/// The limit of a share, unless a step says otherwise.
pub(super) const LIMIT: u64 = 192 * MIB;
/// GPUs of each tenant.
const SHARES: [&[usize]; TENANTS] = [&[0, 1], &[0]];

/// How much of the world can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StormKind {
    /// One call at a time, to a driver that refuses now and then: the accounting equals what there
    /// is.
    Exact,
    /// Calls in flight, kills, mappings in parts: the accounting may say more, never less.
    Loose,
    /// And other threads write whatever they like where the driver has written: the same.
    Hostile,
}

pub(super) struct WorldTenant {
    pub(super) accounting: Accounting,
    pub(super) limit: [u64; GPUS],
    /// The limit, or what was taken when it was lowered, as long as that is more.
    allowance: [u64; GPUS],
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) tenant: usize,
    pub(super) uvm: bool,
    /// Of a file that is there to be mapped: its GPU.
    pub(super) gpu: Option<usize>,
    /// Processes that have it open.
    holders: usize,
    /// Calls on it that are not over.
    flights: usize,
    /// Mappings of it, of all processes.
    mapped: usize,
}

#[derive(Debug)]
pub(super) struct WorldProcess {
    pub(super) tenant: usize,
    pub(super) files: Vec<u64>,
    /// The file of each of its mappings.
    pub(super) mapped: Vec<u64>,
    pub(super) alive: bool,
    flights: usize,
}

pub(super) struct World {
    pub(super) kind: StormKind,
    pub(super) machine: Machine,
    pub(super) tenants: Vec<WorldTenant>,
    pub(super) files: BTreeMap<u64, File>,
    pub(super) processes: BTreeMap<i32, WorldProcess>,
    next_file: u64,
    next_process: i32,
}

/// The sum of what is charged. Forged sizes add up to more than fits.
fn total_of(share: &ShareView) -> u64 {
    let taken = share.used.saturating_add(share.reserved);
    taken.saturating_add(share.overhead)
}

fn id(gpu: usize) -> GpuId {
    GpuId(u32::try_from(gpu).expect("few"))
}

impl World {
    pub(super) fn new(kind: StormKind) -> Self {
        let tenant = |gpus: &&[usize]| {
            let mut accounting = Accounting::new(7);
            for &gpu in *gpus {
                accounting.add_share(id(gpu), LIMIT).expect("memory");
                let engines = Engines::of(0x180, true);
                accounting.set_engines(id(gpu), engines).expect("a share");
            }
            WorldTenant {
                accounting,
                limit: [LIMIT; GPUS],
                allowance: [LIMIT; GPUS],
            }
        };
        Self {
            kind,
            machine: Machine::default(),
            tenants: SHARES.iter().map(tenant).collect(),
            files: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_file: 1,
            next_process: 1000,
        }
    }

    pub(super) fn has_share(tenant: usize, gpu: usize) -> bool {
        SHARES[tenant].contains(&gpu)
    }

    /// A new process, with the files and mappings of its parent.
    pub(super) fn spawn(&mut self, tenant: usize, files: Vec<u64>, mapped: Vec<u64>) {
        for file in &files {
            self.files.get_mut(file).expect("open").holders += 1;
        }
        for file in &mapped {
            self.files.get_mut(file).expect("mapped").mapped += 1;
            self.machine.met.note("a mapping is inherited");
        }
        self.next_process += 1;
        let process = WorldProcess {
            tenant,
            files,
            mapped,
            alive: true,
            flights: 0,
        };
        self.processes.insert(self.next_process, process);
    }

    pub(super) fn open(&mut self, process: i32, uvm: bool, gpu: Option<usize>) {
        let file = self.next_file;
        self.next_file += 1;
        let process = self.processes.get_mut(&process).expect("alive");
        process.files.push(file);
        let tenant = process.tenant;
        let file_ = File {
            tenant,
            uvm,
            gpu,
            holders: 1,
            flights: 0,
            mapped: 0,
        };
        self.files.insert(file, file_);
    }

    /// A process gets a file of another one, of another tenant maybe. It stays what it is.
    pub(super) fn pass(&mut self, file: u64, to: i32) {
        let process = self.processes.get_mut(&to).expect("alive");
        if !process.files.contains(&file) {
            process.files.push(file);
            self.files.get_mut(&file).expect("open").holders += 1;
        }
    }

    pub(super) fn close(&mut self, process: i32, file: u64) {
        let process = self.processes.get_mut(&process).expect("there");
        process.files.retain(|&has| has != file);
        self.files.get_mut(&file).expect("open").holders -= 1;
        self.release(file);
    }

    /// A process maps a file, which stays as long as that is mapped.
    pub(super) fn map(&mut self, process: i32, file: u64) {
        match self.machine.can_be_mapped(file) {
            Some(true) => {
                self.files.get_mut(&file).expect("open").mapped += 1;
                let process = self.processes.get_mut(&process).expect("alive");
                process.mapped.push(file);
                self.machine.met.note("mapped");
            }
            Some(false) => self.machine.met.note("mapped too late"),
            None => {}
        }
    }

    /// The last mapping of a process goes.
    pub(super) fn unmap(&mut self, process: i32) {
        let process = self.processes.get_mut(&process).expect("there");
        if let Some(file) = process.mapped.pop() {
            self.files.get_mut(&file).expect("mapped").mapped -= 1;
            self.release(file);
        }
    }

    /// The process calls no more. Its files go when its calls in flight are over.
    pub(super) fn kill(&mut self, process: i32) {
        let killed = self.processes.get_mut(&process).expect("alive");
        killed.alive = false;
        if killed.flights > 0 {
            self.machine.met.note("killed in a call");
        }
        self.bury(process);
    }

    fn bury(&mut self, id: i32) {
        let process = &self.processes[&id];
        if !process.alive && process.flights == 0 {
            for file in process.files.clone() {
                self.close(id, file);
            }
            while !self.processes[&id].mapped.is_empty() {
                self.unmap(id);
            }
            self.processes.remove(&id);
        }
    }

    fn release(&mut self, id: u64) {
        let file = &self.files[&id];
        if file.holders == 0 && file.flights == 0 && file.mapped > 0 {
            self.machine.met.note("mapped and open no more");
        } else if file.holders == 0 && file.flights == 0 {
            let tenant = file.tenant;
            self.files.remove(&id);
            let accounting = &mut self.tenants[tenant].accounting;
            let mut at = 0;
            while let Some(shown) = accounting.shown_by_clients_of(FileId(id), &mut at) {
                self.machine.end_mappings(shown.0);
                accounting.end_shown(shown);
            }
            self.machine.close(id);
            self.tenants[tenant].accounting.close_file(FileId(id));
        }
    }

    /// A call takes hold of a file that is the tenant's: it stays open until that lets it go.
    pub(super) fn hold(&mut self, number: u64, tenant: usize) -> Option<Session> {
        let file = self
            .files
            .get_mut(&number)
            .filter(|file| file.tenant == tenant)?;
        file.flights += 1;
        let role = match file.gpu {
            Some(gpu) => Role::Gpu(id(gpu)),
            None if file.uvm => Role::Uvm,
            None => Role::Control,
        };
        let file = FileId(number);
        Some(Session { file, role })
    }

    pub(super) fn let_go(&mut self, held: &[u64]) {
        for number in held {
            self.files.get_mut(number).expect("held").flights -= 1;
            self.release(*number);
        }
    }

    /// A call begins on a file.
    pub(super) fn enter(&mut self, task: &Task) {
        self.files.get_mut(&task.file).expect("open").flights += 1;
        let process = self.processes.get_mut(&task.process);
        process.expect("alive").flights += 1;
    }

    /// It is over.
    pub(super) fn leave(&mut self, task: &Task) {
        self.files.get_mut(&task.file).expect("open").flights -= 1;
        let process = self.processes.get_mut(&task.process);
        process.expect("there").flights -= 1;
        self.release(task.file);
        self.bury(task.process);
    }

    pub(super) fn set_limit(&mut self, tenant: usize, gpu: usize, limit: u64) {
        if Self::has_share(tenant, gpu) {
            let tenant = &mut self.tenants[tenant];
            tenant.accounting.set_limit(id(gpu), limit).unwrap();
            tenant.limit[gpu] = limit;
            let taken = Self::total(&tenant.accounting, gpu);
            tenant.allowance[gpu] = limit.max(taken);
            if taken > limit {
                self.machine.met.note("limit below what is taken");
            }
        }
    }

    fn total(accounting: &Accounting, gpu: usize) -> u64 {
        let share = accounting.share(id(gpu)).expect("a share");
        total_of(&share)
    }

    /// The free part of a share.
    pub(super) fn left(&self, tenant: usize, gpu: usize) -> u64 {
        let view = self.tenants[tenant].accounting.fb_view(id(gpu));
        view.expect("a share").free
    }

    /// A call comes to the driver, the first of a proxied one or one of the module's own.
    pub(super) fn forward(
        &mut self,
        task: &Task,
        request: u32,
        parts: &mut [Part<'_>],
        route: Route,
        first: bool,
        rng: &mut Rng,
    ) -> Returned {
        let alive = self.processes[&task.process].alive;
        // Out of memory, or killed on the way.
        if rng.below(if alive { 64 } else { 2 }) == 0 && (first || self.kind != StormKind::Exact) {
            self.machine.met.note("does not reach the driver");
            // The accounting cannot know how far a call got that makes a channel.
            self.machine.fill_pool(task, request, parts[0].bytes);
            return Err(Errno::ENOMEM);
        }
        if let Route::Worker(GpuId(gpu)) | Route::Kernel(GpuId(gpu)) = route {
            let gpu = usize::try_from(gpu).expect("small");
            assert!(Self::has_share(task.tenant, gpu), "another tenant's GPU");
        }
        // The driver has no reason to refuse a call of the module's own. Its status of an export is
        // not believed, so the accounting may have more than the driver then.
        let exports = request & 0xff == 0x2a && get32(parts[0].bytes, 8) == EXPORT;
        let fate = match rng.below(32) {
            _ if exports && self.kind == StormKind::Exact => Fate::Done,
            _ if !alive && rng.below(2) == 0 => Fate::Untold,
            0..=1 if first => Fate::Refused,
            2 if first || self.kind == StormKind::Hostile => Fate::Errno,
            _ => Fate::Done,
        };
        let pointers: Vec<(PointerAt, u64)> = parts
            .iter()
            .filter_map(|part| part.pointer)
            .map(|at| (at, get64(parts[at.part].bytes, at.offset)))
            .collect();
        let hostile = self.kind == StormKind::Hostile;
        let machine = &mut self.machine;
        let returned = machine.execute(task, request, parts, fate, hostile);
        if hostile && rng.below(3) == 0 {
            self.machine.met.note("results are forged");
            self.forge(parts, rng);
        }
        for (at, pointer) in pointers {
            put64(parts[at.part].bytes, at.offset, pointer);
        }
        Ok(returned)
    }

    /// Writes what another thread leaves in the place of the driver's results.
    fn forge(&self, parts: &mut [Part<'_>], rng: &mut Rng) {
        for _ in 0..=rng.below(3) {
            let which = rng.index(parts.len());
            let bytes = &mut parts[which].bytes;
            let words = bytes.len() / 4;
            if words == 0 {
                continue;
            }
            // Mostly where a status, a handle or a size stands.
            let at = match rng.below(4) {
                0 => rng.index(words),
                1 => words - 1 - rng.index(words.min(4)),
                _ => rng.index(words.min(24)),
            };
            let clients = &self.machine.clients;
            let value = match rng.below(8) {
                0..=2 => 0,
                3 => NvStatus::NV_ERR_NO_MEMORY.0,
                4 => NvStatus::NV_ERR_INSERT_DUPLICATE_NAME.0,
                5 if !clients.is_empty() => {
                    let number = rng.index(clients.len());
                    *clients.keys().nth(number).expect("below")
                }
                6 => u32::try_from(rng.below(16)).expect("small"),
                _ => u32::MAX,
            };
            put32(bytes, 4 * at, value);
        }
    }

    /// Checks what must hold at every moment.
    pub(super) fn compare(&mut self) {
        self.machine.count_tables();
        self.machine
            .expect_own_pages(|file| self.files[&file].tenant);
        self.machine.expect_own_control_pages();
        for (number, tenant) in self.tenants.iter_mut().enumerate() {
            for &gpu in SHARES[number] {
                let share = tenant.accounting.share(id(gpu)).expect("a share");
                let taken = self.machine.taken[number][gpu];
                let total = total_of(&share);
                let there = taken.bytes + taken.overhead();
                let where_ = format!("tenant {number}, GPU {gpu}: {share:?}, {taken:?}");
                assert!(total >= there, "less charged than there is: {where_}");
                let allowance = &mut tenant.allowance[gpu];
                assert!(there <= *allowance, "more than {allowance}: {where_}");
                // A forged output can raise a charge beyond the limit, to nobody's profit.
                assert!(
                    total <= *allowance || self.kind == StormKind::Hostile,
                    "charged more than {allowance}: {where_}"
                );
                *allowance = tenant.limit[gpu].max(total.min(*allowance));
                if self.kind == StormKind::Exact {
                    let accounting = (share.used, share.overhead, share.reserved);
                    let model = (taken.bytes, taken.overhead(), 0);
                    assert_eq!(accounting, model, "not equal: {where_}");
                }
            }
        }
    }

    /// Checks that the processes hold together what is used.
    pub(super) fn compare_processes(&self) {
        for (number, tenant) in self.tenants.iter().enumerate() {
            for &gpu in SHARES[number] {
                let mut sum = 0;
                tenant
                    .accounting
                    .processes(id(gpu), |_, bytes| sum += bytes);
                let used = tenant.accounting.share(id(gpu)).expect("a share").used;
                assert_eq!(sum, used, "tenant {number}, GPU {gpu}");
            }
        }
    }

    /// Every process ends: nothing is left, in the driver or in the accounting.
    pub(super) fn finish(&mut self) {
        let processes: Vec<i32> = self.processes.keys().copied().collect();
        for process in processes {
            self.kill(process);
        }
        self.compare();
        assert!(self.files.is_empty() && self.machine.is_empty());
        for tenant in &self.tenants {
            assert!(tenant.accounting.is_idle(), "left: {:?}", tenant.accounting);
        }
    }
}
