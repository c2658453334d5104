// SPDX-License-Identifier: GPL-2.0
/*
 * Controls that any client may issue and that act on the whole GPU, or on
 * channels of anybody: what they set is only counted, for a test to see
 * (debugfs `settings`).
 *
 * With a GSP most of them have no handler in the open driver: the control's
 * flags are NON_PRIVILEGED and ROUTE_TO_PHYSICAL, and resource.c:
 * rmresControl_Prologue_IMPL() hands them to the firmware as they come.
 * Sizes by compiling NVIDIA's headers (580).
 */
#include <linux/capability.h>
#include "fake.h"

enum right { ANYBODY, NICE, ADMIN };

static u32 set(struct fake_ctrl *c);

static const struct wide {
	struct fake_ctrl_entry entry;
	enum right right;
	const char *name;
} wide[] = {
	{ { 0x00000281, 32, NULL, set }, ANYBODY, "disable_nvlink_init" },
	{ { 0x0080170f, 16, NULL, set }, ANYBODY, "set_channel_properties" },
	{ { 0x00801714, 16396, NULL, set }, ANYBODY, "fifo_idle_channels" },
	{ { 0x0080180a, 184, NULL, set }, ANYBODY, "dma_set_pte_info" },
	{ { 0x20800112, 12, NULL, set }, ANYBODY, "set_power" },
	{ { 0x20800174, 392, NULL, set }, ADMIN, "set_partitions" },
	{ { 0x20800602, 276, NULL, set }, ANYBODY, "i2c_write_buffer" },
	{ { 0x20801115, 8, NULL, set }, NICE, "runlist_set_sched_policy" },
	{ { 0x20801116, 32, NULL, set }, ADMIN, "update_channel_info" },
	{ { 0x20801209, 40, NULL, set }, ANYBODY, "ctxsw_pm_bind" },
	{ { 0x2080205b, 4, NULL, set }, ANYBODY, "perf_set_powerstate" },
	{ { 0x2080206f, 12, NULL, set }, ANYBODY, "perf_rated_tdp" },
	{ { 0x20802092, 4, NULL, set }, ANYBODY, "perf_set_aux_power_state" },
	{ { 0x2080220a, 0, NULL, set }, ANYBODY, "rc_disable_watchdog" },
	{ { 0x2080220b, 0, NULL, set }, ANYBODY, "rc_enable_watchdog" },
	{ { 0x20803005, 32, NULL, set }, ADMIN, "nvlink_clear_counters" },
	{ { 0x208f0703, 8, NULL, set }, ANYBODY, "bif_config_reg_write" },
	{ { 0x208f050e, 24, NULL, set }, ANYBODY, "ecc_set_kill_ptr" },
	{ { 0x208f0511, 16, NULL, set }, ANYBODY, "ecc_set_write_kill" },
	{ { 0x83de0307, 4, NULL, set }, ANYBODY, "debug_mmu_mode" },
	{ { 0x83de031f, 4, NULL, set }, ANYBODY, "debug_errbar_mode" },
	{ { 0xa06c0107, 4, NULL, set }, NICE, "set_interleave_level" },
	{ { 0xa06c0110, 1, NULL, set }, ANYBODY, "make_realtime" },
	{ { 0xa06f0109, 4, NULL, set }, NICE, "set_channel_interleave_level" },
	{ { 0xb0cc0101, 1, NULL, set }, ANYBODY, "reserve_hwpm" },
};
static atomic_t counts[ARRAY_SIZE(wide)];
static atomic_t gss_calls, registry_reads;
static const char * const harm_names[] = {
	[HARM_REGISTERS] = "registers",
	[HARM_NULL] = "null_pointers",
	[HARM_ADMINISTRATOR] = "administrators_maps",
	[HARM_FIRMWARE] = "firmware_told",
	[HARM_INDEX] = "unchecked_indices",
	[HARM_STACK] = "recursions",
	[HARM_SPACE] = "spaces_of_all",
	[HARM_PLACE] = "places_of_others",
	[HARM_STALE] = "stale_translations",
	[HARM_WAIT] = "waits_with_all_locked",
	[HARM_FREED] = "freed_memory_used",
	[HARM_LOST] = "memory_lost",
	[HARM_HOST] = "settings_of_the_host",
};
static atomic_t harms[ARRAY_SIZE(harm_names)];
/* boosts that programs, and the kernel, asked for; subdevices with one now */
static atomic_t boosts, kernel_boosts, boosted;

/* what a client may do that is no administrator: rs_access_rights.c and
 * control.c, RMCTRL_FLAGS_PRIVILEGED */
static u32 allowed(enum right right, const struct fake_sec *sec)
{
	switch (right) {
	case NICE:
		return capable(CAP_SYS_NICE) ? NV_OK :
			NV_ERR_INSUFFICIENT_PERMISSIONS;
	case ADMIN:
		return sec->admin ? NV_OK : NV_ERR_INSUFFICIENT_PERMISSIONS;
	default:
		return NV_OK;
	}
}

static u32 set(struct fake_ctrl *c)
{
	u32 i, status;

	for (i = 0; i < ARRAY_SIZE(wide); i++) {
		if (wide[i].entry.cmd != c->cmd)
			continue;
		status = allowed(wide[i].right, c->sec);
		if (status == NV_OK)
			atomic_inc(&counts[i]);
		return status;
	}
	return NV_ERR_NOT_SUPPORTED;
}

struct perf_boost {			/* 0x2080200a */
	u32 flags, duration;
};
static_assert(sizeof(struct perf_boost) == 8);

/*
 * kern_perf_boost.c: hands it to the firmware, which keeps it for the
 * subdevice. What it refuses is what ctrl2080perf.h says.
 */
static u32 perf_boost(struct fake_ctrl *c)
{
	struct perf_boost *p = c->params;
	bool on = (p->flags & 3) != 0;

	if ((p->flags & 3) == 3 ||
	    (p->duration > 3600 && p->duration != ~0u))
		return NV_ERR_INVALID_ARGUMENT;
	atomic_inc(c->sec->kernel ? &kernel_boosts : &boosts);
	if (c->object->subdevice.boosted != on)
		atomic_add(on ? 1 : -1, &boosted);
	c->object->subdevice.boosted = on;
	return NV_OK;
}

/* subdevice.c:subdeviceDestruct_IMPL(): the firmware's copy goes as well */
void fake_boost_end(struct fake_object *o)
{
	if (o->subdevice.boosted)
		atomic_dec(&boosted);
}

/*
 * NV_ESC_RM_ACCESS_REGISTRY: osapi.c:RmAccessRegistry() takes any client that
 * exists; it lets everybody read, and administrators write, what has a name.
 * Names and values are not kept: an unknown one reads as 0.
 */
u32 fake_registry(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos38 *p = arg;
	bool known;

	mutex_lock(&rm_lock);
	known = fake_client(p->client);
	mutex_unlock(&rm_lock);
	if (!known)
		return NV_ERR_INVALID_CLIENT;
	if (p->type != 1 && p->type != 2 && p->type != 6 && p->type != 7)
		return NV_ERR_INVALID_ACCESS_TYPE;
	if (!p->name_length)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->type == 1)		/* NVOS38_ACCESS_TYPE_READ_DWORD */
		p->data = 0;
	else if (!sec->admin)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	atomic_inc(&registry_reads);
	return NV_OK;
}

/* A GSS legacy control reaches the firmware: on which client, is counted. */
void fake_gss(struct fake_client *client)
{
	client->gss++;
	atomic_inc(&gss_calls);
}

static const struct fake_ctrl_entry boost = { 0x2080200a, 8, NULL, perf_boost };

const struct fake_ctrl_entry *fake_ctrl_wide(u32 cmd)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(wide); i++)
		if (wide[i].entry.cmd == cmd)
			return &wide[i].entry;
	return cmd == boost.cmd ? &boost : NULL;
}

void fake_harm(enum fake_harm what)
{
	atomic_inc(&harms[what]);
}

/* debugfs `settings`: how often each was set since the driver was loaded */
int fake_settings_show(struct seq_file *m, void *v)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(wide); i++)
		seq_printf(m, "%s: %d\n", wide[i].name,
			   atomic_read(&counts[i]));
	for (i = 0; i < ARRAY_SIZE(harms); i++)
		seq_printf(m, "%s: %d\n", harm_names[i],
			   atomic_read(&harms[i]));
	seq_printf(m, "perf_boost: %d\ngss: %d\nregistry: %d\n",
		   atomic_read(&boosts), atomic_read(&gss_calls), atomic_read(&registry_reads));
	return 0;
}

/* debugfs `boosts` */
int fake_boosts_show(struct seq_file *m, void *v)
{
	seq_printf(m, "programs: %d\nkernel: %d\nboosted: %d\n",
		   atomic_read(&boosts), atomic_read(&kernel_boosts),
		   atomic_read(&boosted));
	return 0;
}

/* debugfs `clients`: all that a test can see of a client, a line for each */
int fake_clients_show(struct seq_file *m, void *v)
{
	struct fake_client *client;
	struct fake_object *o;
	struct fake_cpu_map *map;
	unsigned long i, j;

	mutex_lock(&rm_lock);
	xa_for_each(&fake_clients, i, client) {
		u32 objects = 0, channels = 0, disabled = 0;
		u64 bytes = 0, slices = 0, maps = 0, shared = 0;

		xa_for_each(&client->objects, j, o) {
			objects++;
			if (o->class->kind == KIND_CHANNEL) {
				channels++;
				disabled += o->channel.disabled;
			} else if (o->class->kind == KIND_TSG) {
				slices += o->tsg.timeslice;
			} else if (o->class->kind == KIND_DEVICE &&
				   o->device.share) {
				shared += o->device.share;
			}
			if (o->mem && o->mem->place == PLACE_VIDMEM)
				bytes += o->mem->size;
			list_for_each_entry(map, &o->maps, list)
				maps += map->address;
		}
		seq_printf(m, "0x%08x: objects %u bytes %llu channels %u disabled %u timeslices %llu events %u maps %llx gss %u shares_with %llx\n",
			   client->handle, objects, bytes, channels, disabled,
			   slices, fake_os_events_count(client->handle),
			   maps, client->gss, shared);
	}
	mutex_unlock(&rm_lock);
	return 0;
}
