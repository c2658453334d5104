// SPDX-License-Identifier: GPL-2.0
/*
 * The figures of a GPU's model, and its place in the machine.
 *
 * The figures are those of the recordings (FB_GET_INFO, CARD_INFO); they are
 * facts of the hardware and of how much of its memory the driver takes for
 * itself.
 */
#include <linux/module.h>
#include <linux/string.h>
#include "fake.h"

static char *model = "h200";
module_param(model, charp, 0444);
MODULE_PARM_DESC(model, "h200 or h100: whose figures the GPUs have");
static bool neighbours;
module_param(neighbours, bool, 0444);
MODULE_PARM_DESC(neighbours, "GPUs sit side by side, as in the recorded machine of two");

static const struct fake_board boards[] = {
	{
		.word = "h200", .name = "NVIDIA H200", .device_id = 0x2335,
		.fb_mib = 143771, .tax_kib = 629824,
		.aperture = 0x4000000000ull,
		.bar1_kib = 0x10000000, .bar1_free_kib = 0x10000000,
		.bus_width = 0x1780, .l2_bytes = 0x3c00000,
		.ltcs = 0x18, .slices = 0x5e,
	}, {
		.word = "h100", .name = "NVIDIA H100 80GB HBM3",
		.device_id = 0x2330,
		.fb_mib = 81559, .tax_kib = 491520,
		.aperture = 0x2000000000ull,
		.bar1_kib = 0x8000000, .bar1_free_kib = 0x7fff980,
		.bus_width = 0x1400, .l2_bytes = 0x3200000,
		.ltcs = 0x14, .slices = 0x50,
	},
};

const struct fake_board *fake_board;

int fake_board_init(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(boards); i++)
		if (!strcmp(model, boards[i].word))
			fake_board = &boards[i];
	return fake_board ? 0 : -EINVAL;
}

/*
 * The place of a GPU on the bus, and its turn when the driver attached them. The
 * numbers by which a GPU is named are all different, since on a real machine
 * they may be: minor, RM's device instance, gpuId. In the recorded machine of
 * two GPUs they are in the same order, in one slot after the other of bus 0.
 */
void fake_place(struct fake_gpu *gpu)
{
	u32 bus = neighbours ? 0 : 0x29 * gpu->minor, i;

	gpu->device_instance = neighbours ? gpu->minor : gpus - 1 - gpu->minor;
	gpu->interrupt = neighbours ? 0x29 : 0x29 + gpu->minor;
	gpu->pci_domain = bus >> 8;
	gpu->pci_bus = bus;
	gpu->pci_slot = neighbours ? 6 + gpu->minor : 6;
	/* gpu.c:gpuGenerate32BitId() */
	gpu->gpu_id = gpu->pci_domain << 16 | gpu->pci_bus << 8 | gpu->pci_slot;
	/* 00 01 .. 0f and 10 01 .. 0f, which the recordings have instead */
	for (i = 0; i < 16; i++)
		gpu->uuid[i] = i + (i && neighbours ? 0 : gpu->minor * 16);
}
