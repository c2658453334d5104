# SPDX-License-Identifier: GPL-2.0
# How bindgen is called for a kernel's headers: for the module, and for its object (dist/object).

# Bindings for what the kernel's own `bindings` crate lacks: headers that its bindings_helper.h does
# not include, and the functions of the shims, so that no prototype is written twice. Types that
# both know are taken from `kernel::bindings`.
cgpu-extra-types := cgpu_.*
cgpu-extra-types += nvidia_.*
cgpu-extra-functions := cgpu_shim_.*
cgpu-extra-functions += kthread_use_mm
cgpu-extra-functions += kthread_unuse_mm
cgpu-extra-functions += proc_mkdir
cgpu-extra-functions += proc_remove
cgpu-extra-vars := PROT_READ PROT_WRITE MAP_SHARED

# Flags that gcc knows and libclang does not; the same list as bindgen_skip_c_flags in the kernel's
# rust/Makefile, which a module cannot read.
cgpu-bindgen-skip := -mno-fp-ret-in-387 -mpreferred-stack-boundary=% \
	-mskip-rax-setup -mgeneral-regs-only -mindirect-branch=thunk-extern \
	-mindirect-branch-register -mfunction-return=thunk-extern -mrecord-mcount \
	-mindirect-branch-cs-prefix -mstack-protector-guard% -fconserve-stack \
	-falign-jumps=% -falign-loops=% -femit-struct-debug-baseonly \
	-fno-ipa-cp-clone -fno-ipa-sra -fno-partial-inlining -fno-reorder-blocks \
	-fno-allow-store-data-races -fasan-shadow-offset=% -fzero-call-used-regs=% \
	-fno-stack-clash-protection -fno-inline-functions-called-once \
	-fsanitize=bounds-strict -fstrict-flex-arrays=% -fmin-function-alignment=% \
	-fzero-init-padding-bits=% -fdiagnostics-show-context \
	-fdiagnostics-show-context=% --param=% --param asan-% \
	-fno-isolate-erroneous-paths-dereference
cgpu-bindgen-cflags = $(filter-out $(cgpu-bindgen-skip),$(c_flags)) -w \
	--target=x86_64-linux-gnu -fno-builtin -D__BINDGEN__ -DMODULE
cgpu-empty :=
cgpu-alternatives = $(subst $(cgpu-empty) $(cgpu-empty),|,$(strip $(1)))

quiet_cmd_cgpu_bindgen = BINDGEN $@
      cmd_cgpu_bindgen = $(BINDGEN) $< --rust-target 1.85 --use-core --ctypes-prefix ffi \
	--no-layout-tests --no-debug '.*' --enable-function-attribute-detection \
	--no-recursive-allowlist --no-doc-comments \
	--allowlist-type '$(call cgpu-alternatives,$(cgpu-extra-types))' \
	--allowlist-function '$(call cgpu-alternatives,$(cgpu-extra-functions))' \
	--allowlist-var '$(call cgpu-alternatives,$(cgpu-extra-vars))' \
	--with-derive-custom-struct '.*=MaybeZeroable' \
	--raw-line 'use kernel::{bindings::*, ffi};' \
	--raw-line 'use pin_init::MaybeZeroable;' \
	-o $@ -- $(cgpu-bindgen-cflags)
