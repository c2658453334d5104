/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions that NVIDIA's modules call and newer kernels no longer have, or have with other
 * arguments. build.sh puts this header in front of every file of theirs. It goes by CFLAGS_MODULE,
 * because their conftest must see the kernel as it is. adapt.py does what a header cannot do, and
 * says what the kernel has.
 */
#ifndef CGPU_LINUX_COMPAT_H
#define CGPU_LINUX_COMPAT_H

#include <linux/dma-map-ops.h>
#include <linux/hardirq.h>
#include <linux/memremap.h>
#include <linux/pci.h>
#include <linux/string.h>

/* In the kernel it is called in_hardirq() since 5.11. */
#ifndef in_irq
#define in_irq() in_hardirq()
#endif

/* The kernel lost strncpy(). Its rule: at most `room` bytes, the rest filled with zeros. */
static inline char *cgpu_strncpy(char *to, const char *from, size_t room)
{
	size_t length = strnlen(from, room);

	memcpy(to, from, length);
	memset(to + length, 0, room - length);
	return to;
}
#define strncpy cgpu_strncpy

/* The last argument is new: which BARs must stay as they are. */
#ifdef KERNEL_HAS_RESIZE_TAKES_BARS
#define pci_resize_resource(device, bar, size, ...) pci_resize_resource(device, bar, size, 0)
#endif

/* struct dma_map_ops has map_phys, and only whether it is there is asked. */
#ifdef KERNEL_HAS_MAP_PHYS
#define map_resource map_phys
#endif

/* It went with linux/of_gpio.h (adapt.py). This machine has no device tree to look into. */
#define of_get_named_gpio(node, name, index) (-ENODEV)

/* The map and the order are arguments of their own now. */
#ifdef KERNEL_HAS_PAGE_INIT_TAKES_ORDER
#define zone_device_page_init(page, ...) zone_device_page_init(page, page_pgmap(page), 0)
#endif

#endif
