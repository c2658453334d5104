// SPDX-License-Identifier: GPL-2.0
/*
 * mmap of /dev/nvidiactl and /dev/nvidiaN, after kernel-open/nvidia/nv-mmap.c
 * and nv-usermap.c of 580.
 *
 * A file has one mapping context, made by RM_MAP_MEMORY with its descriptor
 * and never cleared before it is closed; a second one is refused with
 * NV_ERR_STATE_IN_USE. mmap wants that context, offset 0 and, for a GPU, the
 * exact size. GPU mappings are page frames that the fault handler can put
 * back after unmap_mapping_range() on the file's own address_space; system
 * memory is inserted page by page and a fault there is SIGBUS.
 *
 * A mapping stays, and its context stays valid, when the memory is freed or unmapped: the
 * driver takes no page out of a program (os.c, osUnmapPciMemoryUser). What was freed is given to
 * the next one who asks, at the same place of BAR1. (Of host memory the driver keeps a bare
 * pointer; here a context holds it, so that a mapping that is made after the free does no harm.)
 *
 * There is no GPU: BAR1 is 1,024 pages, of which the last 16 are the doorbell region as seen there
 * and the others, one for 2 MiB of memory, repeat; the doorbell region of BAR0 is 16 pages of its
 * own, and BAR0 and BAR1 are told to be where they are. They live as long as the module, because
 * page frames in a VMA are not counted.
 */
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/io.h>
#include <linux/module.h>
#include "fake.h"

static bool hold_faults;
module_param(hold_faults, bool, 0644);
MODULE_PARM_DESC(hold_faults, "faults do not go on to put their pages in");

static bool hold_maps;
module_param(hold_maps, bool, 0644);
MODULE_PARM_DESC(hold_maps, "mmap does not go on when it has put its pages in");

/* The page of video memory that lies at `place`, `at` bytes on. */
struct page *fake_bar_page(const struct fake_gpu *gpu, u64 place, u64 at)
{
	return gpu->bar + ((place >> 21) + (at >> PAGE_SHIFT)) % FAKE_MEMORY_PAGES;
}

static struct page *gpu_page(const struct fake_file *file, u64 index)
{
	struct fake_gpu *gpu = file->gpu;
	u64 page = (file->map.start >> PAGE_SHIFT) + index;

	if (file->map.place == PLACE_REGISTERS)
		return gpu->bell + page % FAKE_BELL_PAGES;
	if (file->map.place == PLACE_BAR1_REGISTERS)
		return gpu->bar + FAKE_MEMORY_PAGES + page % FAKE_BELL_PAGES;
	return gpu->bar + page % FAKE_MEMORY_PAGES;
}

static void vma_open(struct vm_area_struct *vma)
{
	struct fake_mem *mem = vma->vm_private_data;

	if (mem)
		fake_mem_get(mem);
	atomic_inc(&fake_mappings);
}

static void vma_close(struct vm_area_struct *vma)
{
	struct fake_mem *mem = vma->vm_private_data;

	if (mem)
		fake_mem_put(mem);
	atomic_dec(&fake_mappings);
}

/* nv-mmap.c:nvidia_fault() */
static vm_fault_t vma_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct fake_file *file = vma->vm_file->private_data;
	vm_fault_t ret = VM_FAULT_NOPAGE;
	u64 i, n;

	if (vma->vm_pgoff || file->ctl)
		return VM_FAULT_SIGBUS;
	atomic_inc(&fake_faults);
	while (READ_ONCE(hold_faults) && !fatal_signal_pending(current))
		msleep(1);
	mutex_lock(&file->map_lock);
	n = min(file->map.size >> PAGE_SHIFT, vma_pages(vma));
	for (i = 0; i < n && ret == VM_FAULT_NOPAGE; i++)
		ret = vmf_insert_pfn(vma, vma->vm_start + i * PAGE_SIZE,
				     page_to_pfn(gpu_page(file, i)));
	mutex_unlock(&file->map_lock);
	return ret;
}

/* nv-mmap.c:nvidia_vma_access(): reads and writes behind the page tables */
static int vma_access(struct vm_area_struct *vma, unsigned long addr,
		      void *buf, int len, int write)
{
	struct fake_file *file = vma->vm_file->private_data;
	u64 offset = addr - vma->vm_start, index = offset >> PAGE_SHIFT;
	u32 in_page = offset_in_page(offset);
	struct page *page;
	void *at;

	if (len < 0 || !file->map.valid)
		return -EINVAL;
	if (write && !file->map.writeable)
		return -EACCES;
	if (file->ctl) {
		if (!vma->vm_private_data)
			return -EINVAL;
		page = fake_mem_page(vma->vm_private_data, index);
		if (!page)
			return -EINVAL;
	} else {
		if (offset >= file->map.size)
			return -EINVAL;
		page = gpu_page(file, index);
	}
	len = min_t(int, len, PAGE_SIZE - in_page);
	at = page_address(page) + in_page;
	if (write)
		memcpy(at, buf, len);
	else
		memcpy(buf, at, len);
	return len;
}

static const struct vm_operations_struct nv_vm_ops = {
	.open = vma_open,
	.close = vma_close,
	.fault = vma_fault,
	.access = vma_access,
};

static int map_gpu(struct fake_file *file, struct vm_area_struct *vma)
{
	u64 i, run, size = vma->vm_end - vma->vm_start;
	int ret;

	if (size != file->map.size)
		return -ENXIO;
	/* At once what lies together, as the driver does: the kernel then notes
	 * how the frames are cached (before 6.16). */
	for (i = 0; i < size >> PAGE_SHIFT; i += run) {
		struct page *first = gpu_page(file, i);

		run = 1;
		while (i + run < size >> PAGE_SHIFT &&
		       gpu_page(file, i + run) == first + run)
			run++;
		ret = remap_pfn_range(vma, vma->vm_start + i * PAGE_SIZE,
				      page_to_pfn(first), run * PAGE_SIZE,
				      vma->vm_page_prot);
		if (ret)
			return -EAGAIN;
	}
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND);
	vma->vm_private_data = NULL;
	/* nv_encode_caching(), after mapping_cpu.c. What is behind it is memory of
	 * the host's, so the entries that were made stay cached. */
	vma->vm_page_prot = file->map.place == PLACE_VIDMEM ?
		pgprot_writecombine(vma->vm_page_prot) :
		pgprot_noncached(vma->vm_page_prot);
	return 0;
}

static int map_sysmem(struct fake_file *file, struct vm_area_struct *vma)
{
	struct fake_mem *mem = file->map.mem;
	u64 first = file->map.start >> PAGE_SHIFT;
	u64 i, pages = vma_pages(vma);

	if (first + pages > PAGE_ALIGN(mem->size) >> PAGE_SHIFT)
		return -ERANGE;
	for (i = 0; i < pages; i++) {
		struct page *page = fake_mem_page(mem, first + i);

		if (!page || vm_insert_page(vma, vma->vm_start + i * PAGE_SIZE,
					    page))
			return -EAGAIN;
	}
	vma->vm_private_data = mem;
	vm_flags_set(vma, VM_SHARED | VM_DONTEXPAND | VM_DONTDUMP);
	return 0;
}

/* nv-mmap.c:nvidia_mmap() and nvidia_mmap_helper() */
int fake_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct fake_file *file = filp->private_data;
	int ret = -EINVAL;

	/* whom the driver would take for an administrator */
	if (capable(CAP_SYS_ADMIN))
		fake_harm(HARM_ADMINISTRATOR);
	mutex_lock(&file->map_lock);
	if (!file->map.valid)
		pr_err("NVRM: a mapping of a file that shows nothing\n");
	if (file->exports || !file->map.valid || vma->vm_pgoff)
		goto out;
	ret = file->ctl ? map_sysmem(file, vma) : map_gpu(file, vma);
	if (ret)
		goto out;
	atomic_inc(&fake_held_maps);
	while (READ_ONCE(hold_maps) && !fatal_signal_pending(current))
		msleep(1);
	atomic_dec(&fake_held_maps);
	if (!file->map.writeable) {
		vma->vm_page_prot = __pgprot(pgprot_val(vma->vm_page_prot) &
					     ~(pgprotval_t)_PAGE_RW);
		vm_flags_clear(vma, VM_WRITE | VM_MAYWRITE);
	}
	vma->vm_ops = &nv_vm_ops;
	vma_open(vma);
out:
	mutex_unlock(&file->map_lock);
	return ret;
}

/* nv-usermap.c:nv_add_mapping_context_to_file(): the descriptor of a GPU map
 * must be a GPU's and of that GPU, that of a sysmem map a control file's */
u32 fake_map_add(int fd, struct fake_gpu *gpu, enum fake_place place,
		 u64 start, u64 size, struct fake_mem *mem, bool write)
{
	bool ctl = place == PLACE_SYSMEM;
	struct file *filp;
	struct fake_file *file = fake_fget(fd, ctl, &filp);
	u32 status = NV_OK;

	if (!file)
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&file->map_lock);
	if (file->map.valid) {
		status = NV_ERR_STATE_IN_USE;
	} else if (!ctl && file->gpu != gpu) {
		status = NV_ERR_INVALID_ARGUMENT;
	} else {
		file->map.place = place;
		file->map.start = start;
		file->map.size = size;
		file->map.writeable = write;
		file->map.mem = mem ? fake_mem_get(mem) : NULL;
		file->map.valid = true;
	}
	mutex_unlock(&file->map_lock);
	fput(filp);
	return status;
}

void fake_map_reset(struct fake_file *file)
{
	mutex_lock(&file->map_lock);
	if (file->map.mem)
		fake_mem_put(file->map.mem);
	memset(&file->map, 0, sizeof(file->map));
	mutex_unlock(&file->map_lock);
}
