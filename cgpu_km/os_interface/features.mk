# SPDX-License-Identifier: GPL-2.0
# What the kernel has, for the C of os_interface: asked of its headers and of the symbols that it
# exports, never of its version, because distributions carry such things back to old ones.

# $(call cgpu-has,WORD,HEADER): HAS_WORD, if that header of include/linux names it.
cgpu-has = $(if $(shell grep -sw '$(1)' $(srctree)/include/linux/$(2)),$(call cgpu-use,HAS,$(1)))
# $(call cgpu-operation,WORD,HEADER): HAS_WORD, if a table of operations there has it.
cgpu-operation = $(if $(shell grep -s '(\*$(1))' $(srctree)/include/linux/$(2)),$(call cgpu-use,HAS,$(1)))
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
# Filesystems.
ccflags-y += $(call cgpu-has,inode_just_drop,fs.h)
ccflags-y += $(call cgpu-has,d_make_persistent,dcache.h)
