# SPDX-License-Identifier: GPL-2.0
KDIR ?= /lib/modules/$(shell uname -r)/build

.PHONY: modules
modules:
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules
