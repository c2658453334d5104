# SPDX-License-Identifier: GPL-2.0
# The front door. Kbuild describes the module; what the tests do is in tests/floors.py and tests/vm.
#
#   make                 the module for the running kernel (KDIR: headers of another, with Rust)
#   make object          the module for every kernel: one object of all Rust, and the C around it,
#                        in target/object (root, apt; dist/object)
#   make package         a Debian package with DKMS, in target/package; make rpm: an RPM
#   make install         build and install on this machine (install.sh), make uninstall
#   make test            lint, host tests, tests in the test machine, also with the real driver
#                        (root, apt, cargo, python3); on Kubernetes where Go is there or can be
#                        installed
#   make test-driver     NVIDIA's own driver in the test machine, on an emulated GPU (tests/driver)
#   make test-kubernetes cgpu-dra on real control planes of Kubernetes, built with Go, and pods
#                        with a real kubelet in the test machine (a long one)
#   make test-hosts      the module from the object on the kernels of hosts, also with the real
#                        driver: a table (a long one). KHEADERS=PATH KIMAGE=PATH: on the
#                        kernel that they name
#   make test-debian13   a Debian 13 host with the real driver, from installation to removal (a long
#                        one)
#   make test-debug      the same machine with KASAN, lockdep and kmemleak (a long one)
#   make test-gpu        tests on a real GPU: a table, JSON on stdout; SKIPPED if there is none
#   make bench           the proxy's cost, in the test machine: a table, JSON on stdout (15 minutes)
#   make soak            an hour of mixed load on the debug kernel (SOAK=3600 seconds)
#   make bench-scale     how the accounting's work grows with their objects: JSON lines
#   make bench-weights   how well shares of compute hold, on a model of a GPU: JSON lines,
#                        exit code 1 if over a bound
#   make demo            two containers share a GPU
#   make docs            the documents as a book with a search, in target/book/html
#   make replay TRACE="a.jsonl.xz [b.jsonl.xz]" [MEM=8GiB] [MANAGED=charge]
#        [CAPS=compute,graphics] [DIRECT=1]   JSON on stdout
#
# Files of the test machine are kept under ~/.cache/cgpu; `make clean-cache` removes them.

SOAK ?= 3600
FLOORS ?= lint host vm driver kubernetes
KDIR ?= /lib/modules/$(shell uname -r)/build
CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/cgpu

.PHONY: all modules modules_install object install uninstall package rpm clean clean-cache \
	lint test test-host test-vm test-driver test-kubernetes test-hosts test-debian13 \
	test-debug test-gpu bench soak bench-scale bench-weights demo docs replay

all: modules

modules:
	+@$(MAKE) -C $(KDIR) M=$(CURDIR) modules

modules_install: modules
	+@$(MAKE) -C $(KDIR) M=$(CURDIR) modules_install

object:
	@dist/object/build.sh

install:
	@./install.sh

uninstall:
	@./uninstall.sh

package:
	@dist/package.sh

rpm:
	@dist/package.sh --rpm

# Without the kernel's help, so that it also works where its headers are gone.
clean:
	@find . -type f ! -path './target/*' ! -path './.git/*' \
		\( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' \
		-o -name '.*.cmd' -o -name '*.rmeta' -o -name '*_generated.rs' \
		-o -name Module.symvers -o -name modules.order -o -name '.*.d' \) -delete
	@rm -rf target

clean-cache:
	rm -rf $(CACHE)

lint:
	@tests/floors.py lint

test:
	@tests/floors.py $(FLOORS)

test-host:
	@tests/floors.py lint host

test-vm:
	@tests/floors.py vm

test-driver:
	@tests/floors.py driver

test-kubernetes:
	@tests/floors.py kubernetes

test-hosts:
	@tests/hosts.py

test-debian13:
	@tests/floors.py debian13

test-debug:
	@tests/floors.py debug

test-gpu:
	@tests/gpu.sh

bench:
	@tests/vm/bench.py

soak:
	@tests/vm/build.sh --kernel debug >/dev/null
	@tests/vm/run.sh --no-build --kernel debug --name soak --leaks \
		--limit $$(($(SOAK) * 2 + 1800)) -- cgpu-guest soak --seconds $(SOAK)

bench-scale:
	@cargo bench --quiet --locked -p cgpu_km --bench scale

bench-weights:
	@cargo run --quiet --locked --release -p gpu-model --bin bench-weights -- --check

demo:
	@tests/vm/demo.sh

docs:
	@docs/book.py

replay:
	@tests/vm/replay.sh $(if $(MEM),--mem '$(MEM)') $(if $(MANAGED),--managed '$(MANAGED)') \
		$(if $(CAPS),--caps '$(CAPS)') $(if $(filter-out 0,$(DIRECT)),--direct) \
		$(if $(V),--verbose) $(TRACE)
