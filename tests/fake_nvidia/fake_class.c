// SPDX-License-Identifier: GPL-2.0
/*
 * The classes that can be allocated: parent rules, parameter sizes and
 * privilege of src/nvidia/src/kernel/rmapi/resource_list.h (580), sizes by
 * compiling NVIDIA's headers. `controls` are the interfaces whose controls
 * the object's C++-like class exports (its g_*_nvoc.c), as upper halves of
 * control numbers.
 */
#include "fake.h"

#define CTRL(name, ...) static const u16 name[] = { __VA_ARGS__, 0xffff }
CTRL(root_ctrl, 0x0000);
CTRL(device_ctrl, 0x0080);
CTRL(subdevice_ctrl, 0x2080);
CTRL(binapi_ctrl, 0x2081);
CTRL(diag_ctrl, 0x208f);
CTRL(memory_ctrl, 0x0041, 0x003e);
CTRL(vaspace_ctrl, 0x90f1);
CTRL(tsg_ctrl, 0xa06c);
CTRL(channel_ctrl, 0x906f, 0xa06f, 0xb06f, 0xc06f, 0xc36f, 0xc46f, 0xc56f,
     0xc86f, 0x506f);
CTRL(ctxshare_ctrl, 0x9067);
CTRL(master_ctrl, 0x90e6);
CTRL(inforom_ctrl, 0x90e7);
CTRL(rusd_ctrl, 0x00de);
CTRL(debugger_ctrl, 0x83de);
CTRL(thirdparty_ctrl, 0x503c);
CTRL(p2p_ctrl, 0x503b);
CTRL(cc_ctrl, 0xcb33);
CTRL(profiler_ctrl, 0x90cc, 0xb0cc);
CTRL(zbc_ctrl, 0x9096);
CTRL(semsurf_ctrl, 0x00da);
CTRL(none, 0xfffe);

static const struct fake_class classes[] = {
	{ NV01_ROOT_CLIENT, KIND_ROOT, 4, true, false, 0, false, root_ctrl },
	{ NV01_DEVICE_0, KIND_DEVICE, 56, true, false, PARENT_ROOT, false, device_ctrl },
	{ NV20_SUBDEVICE_0, KIND_SUBDEVICE, 4, true, false, PARENT_DEVICE, false, subdevice_ctrl },
	{ 0x2081, KIND_PLAIN, 4, true, false, PARENT_SUBDEVICE, false, binapi_ctrl },
	{ 0x208f, KIND_PLAIN, 0, true, true, PARENT_SUBDEVICE, false, diag_ctrl },
	{ NV01_EVENT, KIND_EVENT, 24, false, false, PARENT_ANY, false, none },
	{ NV01_EVENT_OS_EVENT, KIND_EVENT, 24, false, false, PARENT_ANY, false, none },
	{ NV01_MEMORY_SYSTEM, KIND_MEMORY, 128, false, false, PARENT_DEVICE, false, memory_ctrl },
	{ NV01_MEMORY_LOCAL_USER, KIND_MEMORY, 128, false, false,
	  PARENT_DEVICE | PARENT_SUBDEVICE, false, memory_ctrl },
	{ NV01_MEMORY_LOCAL_PRIVILEGED, KIND_MEMORY, 0, true, false,
	  PARENT_DEVICE, false, memory_ctrl },
	{ NV01_MEMORY_LOCAL_PHYSICAL, KIND_MEMORY, 24, false, false,
	  PARENT_DEVICE, true, memory_ctrl },
	{ NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, KIND_MEMORY, 40, false, false,
	  PARENT_DEVICE, false, memory_ctrl },
	{ NV50_MEMORY_VIRTUAL, KIND_VIRTUAL, 128, false, false, PARENT_DEVICE, false, memory_ctrl },
	{ NV01_MEMORY_VIRTUAL, KIND_VIRTUAL, 24, false, false, PARENT_DEVICE, false, memory_ctrl },
	{ NV_MEMORY_FABRIC, KIND_MEMORY, 48, false, false, PARENT_SUBDEVICE, false, none },
	{ RM_USER_SHARED_DATA, KIND_RUSD, 8, false, false, PARENT_SUBDEVICE, false, rusd_ctrl },
	{ FERMI_VASPACE_A, KIND_VASPACE, 56, false, false,
	  PARENT_DEVICE | PARENT_SUBDEVICE, false, vaspace_ctrl },
	{ KEPLER_CHANNEL_GROUP_A, KIND_TSG, 20, false, false, PARENT_DEVICE, false, tsg_ctrl },
	{ FERMI_CONTEXT_SHARE_A, KIND_CTXSHARE, 12, false, false,
	  PARENT_TSG, false, ctxshare_ctrl },
	{ 0xc56f, KIND_CHANNEL, 368, false, false,
	  PARENT_DEVICE | PARENT_TSG, false, channel_ctrl },
	{ 0xc86f, KIND_CHANNEL, 368, false, false,
	  PARENT_DEVICE | PARENT_TSG, false, channel_ctrl },
	{ 0xcbc0, KIND_ENGINE, 16, true, false, PARENT_CHANNEL, false, none },
	{ 0xcb97, KIND_ENGINE, 16, true, false, PARENT_CHANNEL, false, none },
	{ 0x902d, KIND_ENGINE, 16, true, false, PARENT_CHANNEL, false, none },
	{ 0xa140, KIND_ENGINE, 16, true, false, PARENT_CHANNEL, false, none },
	{ NV01_CONTEXT_DMA, KIND_CONTEXT_DMA, 32, false, false, PARENT_ANY, false, none },
	{ 0xc8b5, KIND_ENGINE, 8, true, false, PARENT_CHANNEL, false, none },
	{ 0xb8b0, KIND_ENGINE, 12, true, false, PARENT_CHANNEL, false, none },
	{ HOPPER_USERMODE_A, KIND_USERMODE, 2, true, false, PARENT_SUBDEVICE, false, none },
	{ 0x90e6, KIND_PLAIN, 0, true, false, PARENT_SUBDEVICE, false, master_ctrl },
	{ 0x90e7, KIND_PLAIN, 0, true, false, PARENT_SUBDEVICE, false, inforom_ctrl },
	{ 0x9096, KIND_PLAIN, 0, true, false, PARENT_SUBDEVICE, false, zbc_ctrl },
	{ 0x503c, KIND_P2P, 4, true, true, PARENT_SUBDEVICE, false, thirdparty_ctrl },
	{ 0x503b, KIND_PEERS, 72, false, false, PARENT_ROOT, false, p2p_ctrl },
	{ GT200_DEBUGGER, KIND_DEBUGGER, 12, false, false, PARENT_DEVICE, false, debugger_ctrl },
	{ 0xcb33, KIND_PLAIN, 4, true, false, PARENT_ROOT, false, cc_ctrl },
	{ NV_SEMAPHORE_SURFACE, KIND_SURFACE, 16, false, false,
	  PARENT_SUBDEVICE, false, semsurf_ctrl },
	{ 0xa0bc, KIND_SESSION, 20, false, false, PARENT_SUBDEVICE, false, none },
	{ 0x00fe, KIND_MAPPER, 24, false, false, PARENT_SUBDEVICE, false, none },
	{ 0x90cc, KIND_PLAIN, 0, true, false,
	  PARENT_SUBDEVICE | PARENT_CHANNEL | PARENT_TSG, false, profiler_ctrl },
	{ 0xb2cc, KIND_PLAIN, 8, true, false, PARENT_SUBDEVICE, false, profiler_ctrl },
	/* no display on this GPU: NV_ERR_NOT_SUPPORTED, as recorded */
	{ 0x0073, KIND_REFUSED, 0, true, true, PARENT_DEVICE, false, none },
};

const struct fake_class *fake_class(u32 class)
{
	u32 i;

	if (class == NV01_ROOT || class == NV01_ROOT_NON_PRIV)
		class = NV01_ROOT_CLIENT;
	for (i = 0; i < ARRAY_SIZE(classes); i++)
		if (classes[i].class == class)
			return &classes[i];
	return NULL;
}
