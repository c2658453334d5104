# SPDX-License-Identifier: GPL-2.0
# What the kernel has, for the C of os_interface: asked of its headers and of the symbols that it
# exports, never of its version, because distributions carry such things back to old ones.

# $(call cgpu-has,WORD,HEADER): HAS_WORD, if that header of include/linux names it.
cgpu-has = $(if $(shell grep -sw '$(1)' $(srctree)/include/linux/$(2)),$(call cgpu-use,HAS,$(1)))
# $(call cgpu-says,WORD,HEADER,PATTERN): HAS_WORD, if a line of that header matches the pattern.
cgpu-says = $(if $(shell grep -s '$(3)' $(srctree)/include/linux/$(2)),$(call cgpu-use,HAS,$(1)))
# $(call cgpu-operation,WORD,HEADER): HAS_WORD, if a table of operations there has it.
cgpu-operation = $(call cgpu-says,$(1),$(2),(\*$(1)))
# $(call cgpu-exports,FUNCTION): EXPORTS_FUNCTION, if modules may call it.
cgpu-exports = $(if $(shell grep -sw '$(1)' $(objtree)/Module.symvers),$(call cgpu-use,EXPORTS,$(1)))
# CGPU_WITHOUT="WORD ...": what is not used although the kernel has it, for the tests of what
# stands in for it.
cgpu-use = $(if $(filter $(2),$(CGPU_WITHOUT)),,-D$(1)_$(2))

# Mappings: a mapping's own lock for modules; an operation for a mapping that was entered.
ccflags-y += $(call cgpu-exports,lock_vma_under_rcu)
ccflags-y += $(call cgpu-operation,mapped,mm.h)
ccflags-y += $(call cgpu-has,zap_special_vma_range,mm.h)
ccflags-y += $(call cgpu-has,VM_SEALED,mm.h)
ccflags-y += $(call cgpu-has,vm_flags_set,mm.h)
ccflags-y += $(call cgpu-has,release_fault_lock,mm.h)
ccflags-y += $(call cgpu-has,pmdp_get_lockless,pgtable.h)
ccflags-y += $(call cgpu-has,pte_mkwrite_novma,pgtable.h)
ccflags-y += $(call cgpu-exports,zap_page_range_single)
ccflags-y += $(call cgpu-has,is_shared_maywrite,mm.h)
# Places for mappings where there are no huge pages, as in kernels with PREEMPT_RT: of the current
# address space, or of one that is named.
ccflags-y += $(call cgpu-has,mm_get_unmapped_area,sched/mm.h)
ccflags-y += $(call cgpu-says,unmapped_area_of_mm,sched/mm.h,mm_get_unmapped_area.struct mm_struct)
# Filesystems.
ccflags-y += $(call cgpu-has,inode_just_drop,fs.h)
ccflags-y += $(call cgpu-has,d_make_persistent,dcache.h)
ccflags-y += $(call cgpu-has,get_file_active,fs.h)
ccflags-y += $(call cgpu-has,file_lock,filelock.h)
ccflags-y += $(call cgpu-has,lock_is_unlock,filelock.h)
ccflags-y += $(call cgpu-says,mnt_idmap,fs.h,generic_fillattr.struct mnt_idmap)
ccflags-y += $(call cgpu-has,simple_inode_init_ts,fs.h)
ccflags-y += $(call cgpu-has,inode_set_ctime_current,fs.h)
ccflags-y += $(call cgpu-says,attributes_by_mask,fs.h,generic_fillattr.struct mnt_idmap.*u32)
# Devices: a class without an owner; a device that its class does not change.
ccflags-y += $(call cgpu-says,class_without_owner,device/class.h,class_create.const char)
ccflags-y += $(call cgpu-says,constant_device,device/class.h,devnode..const)
# Others.
ccflags-y += $(call cgpu-exports,errname)
