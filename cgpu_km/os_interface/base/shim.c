// SPDX-License-Identifier: GPL-2.0
/* Inline functions and macros of the kernel that Rust cannot call. No logic. */
#define pr_fmt(text) "cgpu_km: " text
#include "shim.h"
#include "older.h"

#include <linux/fdtable.h>
#include <linux/huge_mm.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>
#ifdef CONFIG_X86_KERNEL_IBT
#include <asm/ibt.h>
#endif

/* Calls that are not checked would land where FineIBT has taken the mark away. */
#ifdef CONFIG_FINEIBT
#error "cgpu_km: this kernel checks indirect calls where they land (CONFIG_FINEIBT)"
#endif

const struct cred *cgpu_shim_get_cred(const struct cred *cred)
{
	return get_cred(cred);
}

const struct cred *cgpu_shim_override_creds(const struct cred *cred)
{
	return override_creds(cred);
}

void cgpu_shim_revert_creds(const struct cred *cred)
{
	revert_creds(cred);
}

static u64 bits_of(kernel_cap_t capabilities)
{
	u64 bits;

	static_assert(sizeof(bits) == sizeof(capabilities));
	memcpy(&bits, &capabilities, sizeof(bits));
	return bits;
}

static void withhold(kernel_cap_t *capabilities, u64 withheld)
{
	u64 bits = bits_of(*capabilities) & ~withheld;

	memcpy(capabilities, &bits, sizeof(bits));
}

/* Takes capabilities (bits) from new credentials, of which nobody else has a pointer. */
void cgpu_shim_withhold(struct cred *cred, u64 capabilities)
{
	withhold(&cred->cap_effective, capabilities);
	withhold(&cred->cap_permitted, capabilities);
}

/* The calling task's credentials, if they have one of these capabilities; NULL if not. */
const struct cred *cgpu_shim_creds_with(u64 capabilities)
{
	const struct cred *now = current_cred();
	u64 had = bits_of(now->cap_effective) | bits_of(now->cap_permitted);

	return had & capabilities ? now : NULL;
}

pid_t cgpu_shim_process(void)
{
	return current->tgid;
}

u64 cgpu_shim_host_memory(void)
{
	return (u64)totalram_pages() << PAGE_SHIFT;
}

struct mm_struct *cgpu_shim_memory(void)
{
	return current->mm;
}

/* Keeps the struct of an address space, and not what is in it. */
void cgpu_shim_keep_memory(struct mm_struct *mm)
{
	mmgrab(mm);
}

void cgpu_shim_drop_memory(struct mm_struct *mm)
{
	mmdrop(mm);
}

struct file *cgpu_shim_get_file_active(struct file *file)
{
	return get_file_active(&file);
}

struct inode *cgpu_shim_inode(const struct file *file)
{
	return file_inode(file);
}

struct address_space *cgpu_shim_mappings(const struct file *file)
{
	return file->f_mapping;
}

/* Whether the lock of a file's mappings can be shared at this moment without a wait. */
bool cgpu_shim_are_at_hand(struct address_space *mappings)
{
	if (!down_read_trylock(&mappings->i_mmap_rwsem))
		return false;
	up_read(&mappings->i_mmap_rwsem);
	return true;
}

void *cgpu_shim_file_data(const struct file *file)
{
	return file->private_data;
}

void cgpu_shim_set_file_data(struct file *file, void *data)
{
	file->private_data = data;
}

dev_t cgpu_shim_device_number(const struct inode *inode)
{
	return inode->i_rdev;
}

CGPU_FITS(struct completion, cgpu_completion);
void cgpu_shim_init_completion(struct completion *done)
{
	init_completion(done);
}

void cgpu_shim_vma(const struct vm_area_struct *vma, struct cgpu_vma *seen)
{
	seen->start = vma->vm_start;
	seen->end = vma->vm_end;
	seen->flags = vma->vm_flags;
	seen->page = vma->vm_pgoff;
	seen->memory = vma->vm_mm;
	seen->file = vma->vm_file;
	seen->operations = vma->vm_ops;
}

void cgpu_shim_fault(const struct vm_fault *vmf, struct cgpu_fault *seen)
{
	seen->vma = vmf->vma;
	seen->memory = vmf->vma->vm_mm;
	seen->private = vmf->vma->vm_private_data;
	seen->address = vmf->address;
	seen->page = vmf->pgoff;
	seen->flags = vmf->flags;
}

/* Whether userfaultfd leaves marks in empty entries of its page table, where no page can go. */
bool cgpu_shim_is_marked(const struct vm_fault *vmf)
{
	return vmf->vma->vm_flags & VM_UFFD_WP;
}

void cgpu_shim_set_operations(struct vm_area_struct *vma,
			      const struct vm_operations_struct *operations)
{
	vma->vm_ops = operations;
}

#ifdef HAS_zap_special_vma_range
#define zap_frames zap_special_vma_range
#define zap_pages zap_vma_range
#elif defined(EXPORTS_zap_page_range_single)
#define zap_frames zap_vma_ptes
#define zap_pages(vma, start, length) zap_page_range_single(vma, start, length, NULL)
#else
#define zap_frames zap_vma_ptes
#define zap_pages zap_page_range
#endif

/* Takes the pages out of a part of a mapping of page frames. */
void cgpu_shim_zap_frames(struct vm_area_struct *vma, unsigned long start, unsigned long length)
{
	zap_frames(vma, start, length);
}

/* Takes all pages out of a mapping, whatever they are. */
void cgpu_shim_zap_pages(struct vm_area_struct *vma)
{
	zap_pages(vma, vma->vm_start, vma->vm_end - vma->vm_start);
}

/*
 * A copy of a mapping of page frames that fork has just made, and that nobody is to use. Its
 * original is not copied again. fork has locked both address spaces for writing.
 */
void cgpu_shim_spoil_copy(struct vm_area_struct *copy)
{
	struct vm_area_struct *original = find_vma(current->mm, copy->vm_start);

	/* The kernel's fork may have copied the pages before it tells of the copy. If it copies
	 * them afterwards, it leaves out what is to be wiped. */
	zap_frames(copy, copy->vm_start, copy->vm_end - copy->vm_start);
	vm_flags_set(copy, VM_WIPEONFORK | VM_DONTCOPY);
	if (original && original->vm_start == copy->vm_start &&
	    original->vm_file == copy->vm_file)
		vm_flags_set(original, VM_DONTCOPY);
}

/*
 * Puts a page in the place of all that is in a new mapping, for reading. What made the mapping has
 * nothing to do with it any more.
 */
int cgpu_shim_show_page(struct vm_area_struct *vma, struct page *page)
{
	cgpu_shim_zap_pages(vma);
	vma->vm_private_data = NULL;
	vm_flags_clear(vma, VM_WRITE | VM_MAYWRITE);
	vma->vm_page_prot = vm_get_page_prot(VM_READ | VM_SHARED);
	return vm_insert_page(vma, vma->vm_start, page);
}

/* Calls work(data) while the current task's descriptor table has the number 0 alone, which is
 * file. Others look at a task's table under its task_lock (fget_task()), and keep no pointer to it.
 * The caller holds the file. For calls that look a number up alone: one that installed a descriptor
 * would lose it. The table has a reference that nobody puts: a task that dies in the driver drops
 * its own, and must not free what is on its stack. */
CGPU_CALLS_RUST void cgpu_shim_with_file(struct file *file, void (*work)(void *), void *data)
{
	struct files_struct own = { .fdt = &own.fdtab };
	struct files_struct *theirs;

	atomic_set(&own.count, 2);
	spin_lock_init(&own.file_lock);
	init_waitqueue_head(&own.resize_wait);
	own.next_fd = 1;
	own.fdtab.max_fds = NR_OPEN_DEFAULT;
	own.fdtab.close_on_exec = own.close_on_exec_init;
	own.fdtab.open_fds = own.open_fds_init;
	own.fdtab.full_fds_bits = own.full_fds_bits_init;
	own.fdtab.fd = own.fd_array;
	__set_bit(0, own.open_fds_init);
	RCU_INIT_POINTER(own.fd_array[0], file);

	task_lock(current);
	theirs = current->files;
	current->files = &own;
	task_unlock(current);
	work(data);
	task_lock(current);
	current->files = theirs;
	task_unlock(current);
}

void cgpu_shim_log(bool warns, const char *line, size_t length)
{
	if (warns)
		pr_warn("%.*s", (int)length, line);
	else
		pr_info("%.*s", (int)length, line);
}

struct address_space *cgpu_shim_new_mapping(void)
{
	struct address_space *mapping = kzalloc(sizeof(*mapping), GFP_KERNEL_ACCOUNT);

	if (mapping)
		address_space_init_once(mapping);
	return mapping;
}

/* Gives a file that shares its list of mappings with all files of its inode one of its own. */
void cgpu_shim_give_mapping(struct file *file, struct address_space *mapping)
{
	struct inode *inode = file_inode(file);

	if (file->f_mapping != inode->i_mapping)
		return;
	mapping->host = inode;
	mapping->a_ops = inode->i_mapping->a_ops;
	file->f_mapping = mapping;
}

void cgpu_shim_drop_mapping(struct address_space *mapping)
{
	kfree(mapping);
}

void cgpu_shim_become_idle(void)
{
	set_current_state(TASK_IDLE);
}

void cgpu_shim_become_running(void)
{
	__set_current_state(TASK_RUNNING);
}

/*
 * After a signal the system call begins anew, so that a program does not notice the signal, and a
 * task can be frozen, stopped or traced while it waits.
 */
int cgpu_shim_sleep_until_signal(unsigned int milliseconds)
{
	__set_current_state(TASK_INTERRUPTIBLE | TASK_FREEZABLE);
	schedule_timeout(msecs_to_jiffies(milliseconds));
	return signal_pending(current) ? -ERESTARTNOINTR : 0;
}

void cgpu_shim_release_fault_lock(struct vm_fault *vmf)
{
	release_fault_lock(vmf);
}

bool cgpu_shim_frame_is_memory(unsigned long frame)
{
	return pfn_valid(frame);
}

CGPU_FITS(struct semaphore, cgpu_semaphore);
void cgpu_shim_sema_init(struct semaphore *sem, int count)
{
	sema_init(sem, count);
}

/* All of them are of one lock class: none is taken while another is held. */
void cgpu_shim_rt_mutex_init(struct rt_mutex *lock)
{
	rt_mutex_init(lock);
}

void cgpu_shim_rt_mutex_lock(struct rt_mutex *lock)
{
	rt_mutex_lock(lock);
}

bool cgpu_shim_rt_mutex_trylock(struct rt_mutex *lock)
{
	return rt_mutex_trylock(lock);
}

void cgpu_shim_rt_mutex_unlock(struct rt_mutex *lock)
{
	rt_mutex_unlock(lock);
}

/* All of them are of one lock class: no task holds two. */
CGPU_FITS(struct rw_semaphore, cgpu_rw_semaphore);
void cgpu_shim_rwsem_init(struct rw_semaphore *lock)
{
	init_rwsem(lock);
}

int cgpu_shim_rwsem_read(struct rw_semaphore *lock)
{
	return down_read_killable(lock);
}

bool cgpu_shim_rwsem_tryread(struct rw_semaphore *lock)
{
	return down_read_trylock(lock);
}

int cgpu_shim_rwsem_write(struct rw_semaphore *lock)
{
	return down_write_killable(lock);
}

void cgpu_shim_rwsem_read_end(struct rw_semaphore *lock)
{
	up_read(lock);
}

void cgpu_shim_rwsem_write_end(struct rw_semaphore *lock)
{
	up_write(lock);
}

unsigned long cgpu_shim_page_to_pfn(struct page *page)
{
	return page_to_pfn(page);
}

/* The page of a frame that somebody else keeps for now, with a reference of the caller's. */
struct page *cgpu_shim_get_frame(unsigned long frame)
{
	struct page *page;

	if (!pfn_valid(frame))
		return NULL;
	page = pfn_to_page(frame);
	get_page(page);
	return page;
}

void cgpu_shim_put_page(struct page *page)
{
	put_page(page);
}

/* The mapping at an address. If there is one, the lock is held when this returns. */
struct vm_area_struct *cgpu_shim_lock_mapping(struct mm_struct *mm, unsigned long address)
{
	struct vm_area_struct *vma;

	mmap_read_lock(mm);
	vma = vma_lookup(mm, address);
	if (!vma)
		mmap_read_unlock(mm);
	return vma;
}

void cgpu_shim_unlock_memory(struct mm_struct *mm)
{
	mmap_read_unlock(mm);
}

void *cgpu_shim_page_address(struct page *page)
{
	return page_address(page);
}

/* Stores a word in the current task's memory. A copy of so few bytes may be made byte by byte. */
int cgpu_shim_put_word(unsigned long address, u32 word)
{
	return put_user(word, (u32 __user *)address);
}

/* memcpy() of memory that a program may write to meanwhile, which Rust cannot express. */
void cgpu_shim_copy(void *to, const void *from, size_t count)
{
	memcpy(to, from, count);
}

CGPU_CALLS_RUST static int run_thread(void *place)
{
	struct cgpu_thread *thread = place;

	return thread->run(thread);
}

/* A thread NAME/NUMBER, which does not run yet. */
struct task_struct *cgpu_shim_new_thread(struct cgpu_thread *thread, const char *name,
					 unsigned int number)
{
	return kthread_create(run_thread, thread, "%s/%u", name, number);
}

/* pid_by_vnr: the opposite of pid_vnr(); 0 where nobody has the number. */
pid_t cgpu_shim_pid_by_vnr(pid_t nr)
{
	pid_t pid;

	rcu_read_lock();
	pid = pid_nr(find_vpid(nr));
	rcu_read_unlock();
	return pid;
}

/*
 * Locks the page table to which an entry of the level above refers, and gives the entry of an
 * address there. NULL: there is no such table yet.
 * (pte_offset_map_lock() does the same, for the kernel alone.)
 */
static pte_t *lock_table(struct mm_struct *mm, pmd_t *place, unsigned long address,
			 spinlock_t **lock)
{
	pmd_t table;

	/* Until it is unlocked: so long the table is not freed, whoever takes it out. */
	rcu_read_lock();
	for (;;) {
		table = pmdp_get_lockless(place);
		if (!pmd_present(table) || pmd_leaf(table))
			break;
		*lock = pte_lockptr(mm, &table);
		spin_lock(*lock);
		if (pmd_same(table, pmdp_get_lockless(place)))
			return pte_offset_kernel(&table, address);
		/* Maybe only its accessed bit has changed. */
		spin_unlock(*lock);
	}
	rcu_read_unlock();
	return NULL;
}

/* The same for the entry of a fault's address. */
pte_t *cgpu_shim_lock_entry(struct vm_fault *vmf, spinlock_t **lock)
{
	return lock_table(vmf->vma->vm_mm, vmf->pmd, vmf->address, lock);
}

void cgpu_shim_unlock_entry(spinlock_t *lock)
{
	spin_unlock(lock);
	rcu_read_unlock();
}

/* The entry for an address in the lowest level but one of the page tables; NULL: there is none. */
static pmd_t *find_pmd(struct mm_struct *mm, unsigned long address)
{
	pgd_t *pgd = pgd_offset(mm, address);
	p4d_t *p4d;
	pud_t *pud;

	if (!pgd_present(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, address);
	if (!p4d_present(*p4d))
		return NULL;
	pud = pud_offset(p4d, address);
	if (!pud_present(*pud) || pud_leaf(*pud))
		return NULL;
	return pmd_offset(pud, address);
}

/*
 * Calls each for the entries of a range, until that does not return 0. It neither sleeps nor takes
 * memory, as apply_to_page_range() may: where there is no page table, there is no page.
 */
CGPU_CALLS_RUST void cgpu_shim_each_entry(struct mm_struct *mm, unsigned long start,
					  unsigned long end, pte_fn_t each, void *data)
{
	unsigned long next;

	for (; start < end; start = next) {
		pmd_t *pmd = find_pmd(mm, start);
		spinlock_t *lock;
		pte_t *entry;
		int stops = 0;

		next = pmd_addr_end(start, end);
		entry = pmd ? lock_table(mm, pmd, start, &lock) : NULL;
		if (!entry)
			continue;
		for (; start < next && !stops; start += PAGE_SIZE, entry++)
			stops = each(entry, start, data);
		cgpu_shim_unlock_entry(lock);
		if (stops)
			return;
	}
}

/* Has an empty entry of a locked page table refer to a page, as vmf_insert_pfn_prot() does. */
void cgpu_shim_set_page(struct mm_struct *mm, unsigned long address, pte_t *entry,
			struct page *page, pgprot_t protection)
{
	if (pte_none(ptep_get(entry)))
		set_pte_at(mm, address, entry,
			   pte_mkspecial(pfn_pte(page_to_pfn(page), protection)));
}

/* Lets an entry of a locked page table be written through, as finish_mkwrite_fault() does. */
void cgpu_shim_make_writable(pte_t *entry)
{
	pte_t pte = ptep_get(entry);

	if (pte_present(pte))
		set_pte(entry, pte_mkwrite_novma(pte_mkdirty(pte_mkyoung(pte))));
}

/* The frame that an entry of a page table refers to; false where it is empty. */
bool cgpu_shim_pte_frame(const pte_t *entry, unsigned long *frame)
{
	pte_t pte = ptep_get((pte_t *)entry);

	if (!pte_present(pte))
		return false;
	*frame = pte_pfn(pte);
	return true;
}

/* Writes through the mapping reach the device one by one, in their order. */
bool cgpu_shim_is_uncached(const struct vm_area_struct *vma)
{
	unsigned long mode = pgprot_val(vma->vm_page_prot) & _PAGE_CACHE_MASK;

	return mode == cachemode2protval(_PAGE_CACHE_MODE_UC) ||
	       mode == cachemode2protval(_PAGE_CACHE_MODE_UC_MINUS);
}

/*
 * A mapping that counted as writable in its file may no longer be written to. Kernels before 6.7
 * (if it was not carried back to them) count each shared mapping, when it comes and when it goes.
 */
void cgpu_shim_unmap_writable(struct file *file)
{
#ifdef HAS_is_shared_maywrite
	mapping_unmap_writable(file->f_mapping);
#endif
}

/* In a page table's entry: who may do what. The rest is where the page is and how it is cached. */
#define ACCESS_BITS                                                            \
	(_PAGE_PRESENT | _PAGE_RW | _PAGE_USER | _PAGE_PROTNONE | _PAGE_NX |  \
	 _PAGE_ACCESSED | _PAGE_DIRTY)

static pgprot_t with_access(unsigned long bits, pgprot_t access)
{
	return __pgprot((bits & ~ACCESS_BITS) | (pgprot_val(access) & ACCESS_BITS));
}

/* Sets a mapping's protection to what its flags allow. */
void cgpu_shim_restore_protection(struct vm_area_struct *vma)
{
	WRITE_ONCE(vma->vm_page_prot,
		   with_access(pgprot_val(vma->vm_page_prot), vm_get_page_prot(vma->vm_flags)));
}

struct access {
	struct mm_struct *mm;
	pgprot_t protection;
};

static int give(pte_t *entry, unsigned long address, void *data)
{
	const struct access *access = data;
	pte_t pte = ptep_get(entry);

	if (pte_present(pte) && !(pte_flags(pte) & _PAGE_PRESENT))
		set_pte_at(access->mm, address, entry,
			   pfn_pte(pte_pfn(pte), with_access(pte_flags(pte), access->protection)));
	return 0;
}

/* The same for the entries of a range of it that refer to a frame, and that nobody may use. */
void cgpu_shim_give_access(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	struct access access = { vma->vm_mm, vm_get_page_prot(vma->vm_flags) };

	cgpu_shim_each_entry(vma->vm_mm, start, end, give, &access);
}

/*
 * A processor with the L1TF bug looks through entries without access into its caches. So above half
 * of its addresses the kernel lets nobody but an administrator make one (pfn_modify_allowed()).
 * Whether a GPU lies there.
 */
static bool is_above_l1tf_limit(void)
{
	struct pci_dev *gpu = NULL;
	bool is_above = false;
	int bar;

	if (!boot_cpu_has_bug(X86_BUG_L1TF))
		return false;
	while ((gpu = pci_get_device(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID, gpu)))
		for (bar = 0; bar < PCI_STD_NUM_BARS; bar++)
			is_above |= PHYS_PFN(pci_resource_end(gpu, bar)) >= l1tf_pfn_limit();
	return is_above;
}

/*
 * Entries that are made from now on are nobody's to use. Where the kernel makes none of a device's,
 * and a mapping would fail, they have access for the moment until the gate is looked at.
 */
void cgpu_shim_take_access(struct vm_area_struct *vma, bool of_device)
{
	pgprot_t none = vm_get_page_prot(VM_NONE);

	if (of_device && is_above_l1tf_limit())
		return;
	WRITE_ONCE(vma->vm_page_prot, with_access(pgprot_val(vma->vm_page_prot), none));
}

#ifdef VM_PAT
struct kept_entry {
	struct mm_struct *mm;
	pte_t pte;
};

static int keep_entry(pte_t *entry, unsigned long address, void *kept)
{
	((struct kept_entry *)kept)->pte = ptep_get(entry);
	return 0;
}

static int restore_entry(pte_t *entry, unsigned long address, void *data)
{
	struct kept_entry *kept = data;

	set_pte_at(kept->mm, address, entry, kept->pte);
	return 0;
}
#endif

/*
 * Before Linux 6.16 the kernel notes how frames are cached that a driver has mapped in one call
 * (x86: track_pfn_remap(), memtype.c). Whoever takes the first of them out ends that, and asks the
 * first entry which frames they were (untrack_pfn()). If munmap() and unmap_mapping_range() meet
 * there, the second one finds none and warns. So it is ended before the program has the mapping:
 * one page is taken out, and put back as it was.
 */
void cgpu_shim_end_tracking(struct vm_area_struct *vma)
{
#ifdef VM_PAT
	unsigned long last = vma->vm_end - PAGE_SIZE;
	struct kept_entry kept = { .mm = vma->vm_mm };

	if (!(vma->vm_flags & VM_PAT))
		return;
	cgpu_shim_each_entry(vma->vm_mm, last, vma->vm_end, keep_entry, &kept);
	zap_frames(vma, last, PAGE_SIZE);
	cgpu_shim_each_entry(vma->vm_mm, last, vma->vm_end, restore_entry, &kept);
#endif
}

/*
 * Has an entry that refers to a frame refer to another one, for whoever may use the mapping by its
 * flags. One to which somebody has access already, of that frame, stays as the processor has it.
 */
void cgpu_shim_set_frame(struct vm_area_struct *vma, unsigned long address, pte_t *entry,
			 unsigned long frame)
{
	pte_t pte = ptep_get(entry);
	pgprot_t protection = with_access(pte_flags(pte), vm_get_page_prot(vma->vm_flags));

	if (pte_flags(pte) & _PAGE_PRESENT && pte_pfn(pte) == frame)
		return;
	set_pte_at(vma->vm_mm, address, entry, pfn_pte(frame, protection));
}

#ifdef CONFIG_KPROBES
/* The address at which the kernel would put a probe for a function of this name. */
static unsigned long address_of(const char *name)
{
	/* It is never armed: the code stays as it is. */
	struct kprobe probe = { .symbol_name = name, .flags = KPROBE_FLAG_DISABLED };
	unsigned long address;

	if (register_kprobe(&probe))
		return 0;
	address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
#ifdef CONFIG_X86_KERNEL_IBT
	/* Behind the instruction at which an indirect call must arrive. */
	if (*(u32 *)(address - ENDBR_INSN_SIZE) == gen_endbr())
		address -= ENDBR_INSN_SIZE;
#endif
	return address;
}
#else
static unsigned long address_of(const char *name)
{
	return 0;
}
#endif

/* The function of this name in that module, which the caller holds; NULL: there is none. */
void *cgpu_shim_find_function(const char *name, struct module *owner)
{
	unsigned long address = (unsigned long)__symbol_get(name);

	if (address)
		__symbol_put(name);
	else
		address = address_of(name);
	return owner && address && within_module(address, owner) ? (void *)address : NULL;
}
