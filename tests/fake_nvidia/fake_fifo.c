// SPDX-License-Identifier: GPL-2.0
/*
 * Groups of channels and channels: their ids and what they take of a GPU
 * (kernel_fifo.c, kernel_channel_group_api.c, kernel_channel.c,
 * uvm_channel_retainer.c).
 *
 * Ids come from one row for all runlists, as the tokens of the recordings have
 * them: a GPU whose driver gives each runlist its own says so in FIFO_GET_INFO.
 * Programs can have 2,044 of each (measured on an H200).
 *
 * A group and a channel last as long as anything refers to them: the object,
 * its duplicates, and what UVM retains. A channel takes a chunk of 64 KiB of
 * its group's pool, which the group keeps until its end.
 */
#include <linux/bitmap.h>
#include "fake.h"

#define CHUNK		0x10000ull
#define OWN_IDS		4	/* the driver's own */

struct fake_group {
	u32 refs;
	struct fake_gpu *gpu;
	u32 id, runlist;
	bool compute;
	u32 model, objects;	/* of the engine, or GM_NONE; with a context */
	u64 held;
	u32 chunks, used;	/* of the pool; with a channel in it */
};

struct fake_channel {
	u32 refs;
	struct fake_group *group;
	u32 id;
};

/* the runlists that the recordings' tokens name */
static u32 runlist_of(u32 engine)
{
	switch (engine) {
	case 11:			/* COPY2 */
		return 1;
	case 12:
		return 3;
	case 13:
		return 10;
	default:
		return engine > 13 ? engine : 0;
	}
}

/* The first id of a program as the recordings have it, then those before. */
static u32 take_id(unsigned long *ids)
{
	u32 id = find_next_zero_bit(ids, FAKE_CHANNELS, FAKE_FIRST_CHANNEL);

	if (id == FAKE_CHANNELS) {
		id = find_next_zero_bit(ids, FAKE_FIRST_CHANNEL, OWN_IDS);
		if (id == FAKE_FIRST_CHANNEL)
			return FAKE_CHANNELS;
	}
	__set_bit(id, ids);
	return id;
}

/* kchangrpapiConstruct_IMPL(), kfifoChidMgrAllocChannelGroupHwID_IMPL() */
u32 fake_group_new(struct fake_gpu *gpu, u32 engine, pid_t pid,
		   struct fake_group **out)
{
	struct fake_group *group;
	u32 id;

	lockdep_assert_held(&rm_lock);
	group = fake_zalloc(sizeof(*group));
	if (!group)
		return NV_ERR_NO_MEMORY;
	id = take_id(gpu->groups);
	if (id == FAKE_CHANNELS) {
		fake_free(group);
		return NV_ERR_NO_FREE_FIFOS;
	}
	group->refs = 1;
	group->gpu = gpu;
	group->id = id;
	group->runlist = runlist_of(engine);
	group->compute = engine == NV2080_ENGINE_TYPE_GRAPHICS;
	group->model = GM_NONE;
	if (group->compute) {
		fake_context(gpu, &group->held, true);
		group->model = fake_engine_group(gpu, FAKE_SLICE_US, pid);
	}
	*out = group;
	return NV_OK;
}

struct fake_group *fake_group_get(struct fake_group *group)
{
	lockdep_assert_held(&rm_lock);
	group->refs++;
	return group;
}

void fake_group_put(struct fake_group *group)
{
	lockdep_assert_held(&rm_lock);
	if (!group || --group->refs)
		return;
	if (group->compute) {
		fake_context(group->gpu, &group->held, false);
		fake_engine_group_free(group->gpu, group->model);
	}
	fake_pool(group->gpu, -(s64)(group->chunks * CHUNK));
	__clear_bit(group->id, group->gpu->groups);
	fake_free(group);
}

/* The engine's group; GM_NONE in the engine of a GPU that is not the group's. */
u32 fake_group_model(const struct fake_group *group, const struct fake_gpu *gpu)
{
	return group->gpu == gpu ? group->model : GM_NONE;
}

/*
 * How many objects there are of the class KernelGraphicsObject in its context.
 * The driver makes the context with the first (kernel_graphics_object.c,
 * kgrobjConstruct_IMPL()) and sets no mode then: taken to be WFI, the first of
 * ctrl2080gr.h, in which a kernel runs to its end.
 */
u32 *fake_group_objects(struct fake_group *group)
{
	return &group->objects;
}

/*
 * kchannelConstruct_IMPL(): memory is reserved in the pool first, where it
 * stays if there is no id then (kfifoChidMgrAllocChid_IMPL()).
 */
u32 fake_channel_new(struct fake_group *group, struct fake_channel **out)
{
	struct fake_channel *channel;
	u32 id;

	lockdep_assert_held(&rm_lock);
	if (group->used == group->chunks) {
		if (!fake_pool(group->gpu, CHUNK))
			return NV_ERR_NO_MEMORY;
		group->chunks++;
	}
	channel = fake_zalloc(sizeof(*channel));
	if (!channel)
		return NV_ERR_NO_MEMORY;
	id = take_id(group->gpu->channels);
	if (id == FAKE_CHANNELS) {
		fake_free(channel);
		return NV_ERR_NO_MEMORY;
	}
	channel->refs = 1;
	channel->id = id;
	channel->group = fake_group_get(group);
	group->used++;
	*out = channel;
	return NV_OK;
}

/* uvmchanrtnrConstruct_IMPL() */
struct fake_channel *fake_channel_get(struct fake_channel *channel)
{
	lockdep_assert_held(&rm_lock);
	channel->refs++;
	return channel;
}

void fake_channel_put(struct fake_channel *channel)
{
	lockdep_assert_held(&rm_lock);
	if (!channel || --channel->refs)
		return;
	__clear_bit(channel->id, channel->group->gpu->channels);
	channel->group->used--;
	fake_group_put(channel->group);
	fake_free(channel);
}

struct fake_group *fake_channel_group(const struct fake_channel *channel)
{
	return channel->group;
}

u32 fake_channel_id(const struct fake_channel *channel)
{
	return channel->id;
}

u32 fake_channel_runlist(const struct fake_channel *channel)
{
	return channel->group->runlist;
}
