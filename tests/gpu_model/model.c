// SPDX-License-Identifier: GPL-2.0
/* The model of a GPU; model.h says what it is. */
#include "model.h"

#define US (gm_time)1000
/*
 * Measured on one H200 under load, driver 580.159.04. The moment in a call at which it takes effect
 * follows from how much two programs lost in windows made by such calls.
 */
static const struct gm_costs measured = {
	.switch_groups = 180 * US,
	.switch_saved = 60 * US,
	.switch_empty = 140 * US,
	.disable_effect = 200 * US,
	.disable_least = 430 * US,
	.disable_most = 700 * US,
	.enable_effect = 200 * US,
	.enable_least = 260 * US,
	.enable_most = 320 * US,
	.timeslice_effect = 150 * US,
	.timeslice_least = 270 * US,
	.timeslice_most = 330 * US,
	.preempt_effect = 200 * US,
	.preempt_least = 290 * US,
	.preempt_most = 350 * US,
	.samples_least = 1500 * US,
	.samples_most = 1700 * US,
};

void gm_init(struct gm_gpu *gpu)
{
	unsigned char *byte = (unsigned char *)gpu;
	unsigned long i;

	for (i = 0; i < sizeof(*gpu); i++)
		byte[i] = 0;
	gpu->costs = measured;
	gpu->context = GM_NONE;
	gpu->running = GM_NONE;
	gpu->finished = GM_NONE;
	gpu->next_sample = GM_SAMPLE_PERIOD;
	gpu->random = 0x9E3779B97F4A7C15u;
}

gm_u32 gm_group_add(struct gm_gpu *gpu, gm_time slice)
{
	gm_u32 i;

	for (i = 0; i < GM_GROUPS; i++) {
		if (gpu->groups[i].used)
			continue;
		gpu->groups[i] = (struct gm_group){ .used = 1, .slice = slice };
		if (i >= gpu->top_group)
			gpu->top_group = i + 1;
		return i;
	}
	return GM_NONE;
}

gm_u32 gm_channel_add(struct gm_gpu *gpu, gm_u32 group)
{
	gm_u32 i;

	if (group >= GM_GROUPS || !gpu->groups[group].used)
		return GM_NONE;
	for (i = 0; i < GM_CHANNELS; i++) {
		if (gpu->channels[i].used)
			continue;
		gpu->channels[i] = (struct gm_channel){ .used = 1, .group = group };
		if (i >= gpu->top_channel)
			gpu->top_channel = i + 1;
		return i;
	}
	return GM_NONE;
}

static int is_ready(const struct gm_channel *c)
{
	return c->used && !c->off && c->queued;
}

/* Keeps the groups' counts right over a change of a channel. */
static void was_ready(struct gm_gpu *gpu, const struct gm_channel *c, int before)
{
	gpu->groups[c->group].ready += (gm_u32)is_ready(c) - (gm_u32)before;
}

/* The channel that a group would run next: the one that runs already, else the first with work. */
static gm_u32 ready_channel(const struct gm_gpu *gpu, gm_u32 group)
{
	const struct gm_channel *c;
	gm_u32 i;

	if (!gpu->groups[group].ready)
		return GM_NONE;
	if (gpu->running != GM_NONE) {
		c = &gpu->channels[gpu->running];
		if (c->group == group && is_ready(c))
			return gpu->running;
	}
	for (i = 0; i < gpu->top_channel; i++) {
		c = &gpu->channels[i];
		if (c->group == group && is_ready(c))
			return i;
	}
	return GM_NONE;
}

/* The next group after `from` that has work, `from` itself last; GM_NONE: there is none. */
static gm_u32 ready_group(const struct gm_gpu *gpu, gm_u32 from)
{
	gm_u32 step, i;

	for (step = 1; step <= gpu->top_group; step++) {
		i = (from == GM_NONE ? step - 1 : from + step) % gpu->top_group;
		if (gpu->groups[i].used && gpu->groups[i].ready)
			return i;
	}
	return GM_NONE;
}

/* Whether a group has work and a time slice: one with a slice of 0 is no reason to go round. */
static int anybody_runs(const struct gm_gpu *gpu)
{
	gm_u32 i;

	for (i = 0; i < gpu->top_group; i++)
		if (gpu->groups[i].used && gpu->groups[i].slice && gpu->groups[i].ready)
			return 1;
	return 0;
}

/* The current group goes on, if it may: picks its channel and gives a new visit its slice. */
static void go_on(struct gm_gpu *gpu, int new_slice)
{
	gpu->running = ready_channel(gpu, gpu->context);
	if (new_slice)
		gpu->slice_until = gpu->now + gpu->groups[gpu->context].slice;
}

/* Leaves the current group for the next that has work; stays idle where none has. */
static void pass_on(struct gm_gpu *gpu)
{
	gm_time cost;
	gm_u32 next;

	gpu->running = GM_NONE;
	gpu->switching_until = 0;
	if (!anybody_runs(gpu))
		return;
	next = ready_group(gpu, gpu->context);
	if (next == GM_NONE)
		return;
	if (next == gpu->context) {
		/* Alone: no switch, a new slice. A group with one of 0 is not alone here. */
		go_on(gpu, 1);
		return;
	}
	gpu->context = next;
	gpu->groups[next].visits++;
	if (!gpu->groups[next].slice)
		cost = gpu->costs.switch_empty;
	else
		cost = gpu->saved ? gpu->costs.switch_saved : gpu->costs.switch_groups;
	gpu->saved = 0;
	gpu->switching_until = gpu->now + cost;
	gpu->switched += cost;
}

/* Whether somebody else has work and a time slice, so that the end of a slice means something. */
static int contended(const struct gm_gpu *gpu)
{
	gm_u32 next = ready_group(gpu, gpu->context);

	return next != GM_NONE && next != gpu->context;
}

/* A group wants the GPU now: the one that ran alone so far has a whole slice from now on. */
static void arrived(struct gm_gpu *gpu, gm_u32 group)
{
	gm_u32 i;

	if (gpu->running == GM_NONE || gpu->context == group || !gpu->groups[group].slice)
		return;
	for (i = 0; i < gpu->top_group; i++)
		if (i != group && i != gpu->context && gpu->groups[i].used &&
		    gpu->groups[i].slice && gpu->groups[i].ready)
			return;
	gpu->slice_until = gpu->now + gpu->groups[gpu->context].slice;
}

/* Something changed that may let an idle GPU run, or stop what runs. */
static void settle(struct gm_gpu *gpu)
{
	const struct gm_channel *c;

	if (gpu->switching_until)
		return;
	if (gpu->running == GM_NONE) {
		pass_on(gpu);
		return;
	}
	c = &gpu->channels[gpu->running];
	if (is_ready(c) && gpu->groups[gpu->context].slice)
		return;
	if (c->used && gpu->groups[gpu->context].waits)
		return;
	if (gpu->groups[gpu->context].slice && gpu->groups[gpu->context].ready)
		go_on(gpu, 0);
	else
		pass_on(gpu);
}

static void remove(struct gm_gpu *gpu, struct gm_channel *c)
{
	int before = is_ready(c);

	c->used = 0;
	was_ready(gpu, c, before);
}

void gm_channel_remove(struct gm_gpu *gpu, gm_u32 channel)
{
	if (channel >= GM_CHANNELS)
		return;
	remove(gpu, &gpu->channels[channel]);
	settle(gpu);
}

void gm_group_remove(struct gm_gpu *gpu, gm_u32 group)
{
	gm_u32 i;

	if (group >= GM_GROUPS)
		return;
	for (i = 0; i < GM_CHANNELS; i++)
		if (gpu->channels[i].used && gpu->channels[i].group == group)
			remove(gpu, &gpu->channels[i]);
	gpu->groups[group].used = 0;
	gpu->groups[group].slice = 0;
	settle(gpu);
}

int gm_submit(struct gm_gpu *gpu, gm_u32 channel, gm_time length)
{
	struct gm_channel *c;
	int before;

	if (channel >= GM_CHANNELS || !length)
		return 0;
	c = &gpu->channels[channel];
	if (!c->used || c->queued == GM_QUEUE)
		return 0;
	before = is_ready(c);
	c->queue[(c->head + c->queued) % GM_QUEUE] = length;
	c->queued++;
	c->submitted++;
	was_ready(gpu, c, before);
	if (!before && is_ready(c) && gpu->groups[c->group].ready == 1)
		arrived(gpu, c->group);
	settle(gpu);
	return 1;
}

void gm_set_timeslice(struct gm_gpu *gpu, gm_u32 group, gm_time slice)
{
	gm_time used, old;

	if (group >= GM_GROUPS)
		return;
	old = gpu->groups[group].slice;
	gpu->groups[group].slice = slice;
	if (!old && gpu->groups[group].ready)
		arrived(gpu, group);
	if (group == gpu->context && gpu->running != GM_NONE) {
		/* At once: what the visit has had of its old slice counts. */
		used = gpu->now + old - gpu->slice_until;
		gpu->slice_until = used < slice ? gpu->now + slice - used : gpu->now;
	}
	settle(gpu);
}

void gm_switch(struct gm_gpu *gpu, gm_u32 channel, int off)
{
	struct gm_channel *c;
	int before;

	if (channel >= GM_CHANNELS)
		return;
	c = &gpu->channels[channel];
	before = is_ready(c);
	c->off = off != 0;
	if (c->group == gpu->context)
		gpu->saved = c->off;
	was_ready(gpu, c, before);
	if (!before && is_ready(c) && gpu->groups[c->group].ready == 1)
		arrived(gpu, c->group);
	settle(gpu);
}

void gm_preempt(struct gm_gpu *gpu, gm_u32 group)
{
	if (group != gpu->context || gpu->running == GM_NONE)
		return;
	if (gpu->groups[group].waits)
		gpu->slice_until = gpu->now;
	else
		pass_on(gpu);
}

void gm_set_waits(struct gm_gpu *gpu, gm_u32 group, int waits)
{
	if (group >= GM_GROUPS)
		return;
	gpu->groups[group].waits = waits != 0;
	settle(gpu);
}

static gm_time between(struct gm_gpu *gpu, gm_time least, gm_time most)
{
	/* xorshift64: the same sequence in every run. */
	gpu->random ^= gpu->random << 13;
	gpu->random ^= gpu->random >> 7;
	gpu->random ^= gpu->random << 17;
	return least + (gpu->random >> 11) % (most - least + 1);
}

static struct gm_call_times call(struct gm_gpu *gpu, gm_time effect, gm_time least, gm_time most)
{
	return (struct gm_call_times){ effect, between(gpu, least, most) };
}

struct gm_call_times gm_call(struct gm_gpu *gpu, enum gm_driver_call what)
{
	const struct gm_costs *c = &gpu->costs;

	switch (what) {
	case GM_DISABLE:
		return call(gpu, c->disable_effect, c->disable_least, c->disable_most);
	case GM_ENABLE:
		return call(gpu, c->enable_effect, c->enable_least, c->enable_most);
	case GM_TIMESLICE:
		return call(gpu, c->timeslice_effect, c->timeslice_least, c->timeslice_most);
	case GM_SAMPLES_READ:
		return call(gpu, 0, c->samples_least, c->samples_most);
	default:
		return call(gpu, c->preempt_effect, c->preempt_least, c->preempt_most);
	}
}

gm_time gm_next(const struct gm_gpu *gpu)
{
	const struct gm_channel *c;
	gm_time end;

	if (gpu->switching_until)
		return gpu->switching_until;
	if (gpu->running == GM_NONE)
		return GM_NEVER;
	c = &gpu->channels[gpu->running];
	end = gpu->now + c->queue[c->head];
	if (gpu->groups[gpu->context].waits)
		return end;
	return end < gpu->slice_until ? end : gpu->slice_until;
}

static void take_samples(struct gm_gpu *gpu, gm_time to)
{
	struct gm_sample *s;

	while (gpu->next_sample <= to) {
		s = &gpu->samples[gpu->sample_count % GM_SAMPLES];
		s->at = gpu->next_sample;
		s->group = gpu->running == GM_NONE ? GM_NONE : gpu->context;
		/* To a sample's own moment; close enough for a figure of a whole period. */
		s->busy = (gm_u32)((gpu->busy - gpu->sampled_busy) * 10000 / GM_SAMPLE_PERIOD);
		if (s->busy > 10000)
			s->busy = 10000;
		gpu->sampled_busy = gpu->busy;
		gpu->sample_count++;
		gpu->next_sample += GM_SAMPLE_PERIOD;
	}
}

/* The current group's slice is over, if its time is. */
static void end_slice(struct gm_gpu *gpu)
{
	if (gpu->now < gpu->slice_until)
		return;
	if (contended(gpu))
		pass_on(gpu);
	else
		go_on(gpu, 1);
}

gm_time gm_advance(struct gm_gpu *gpu, gm_time to)
{
	struct gm_channel *c;
	gm_time at, step;
	int before;

	gpu->finished = GM_NONE;
	while (gpu->now < to) {
		at = gm_next(gpu);
		if (at > to)
			at = to;
		take_samples(gpu, at);
		step = at - gpu->now;
		gpu->now = at;
		if (gpu->switching_until) {
			if (at < gpu->switching_until)
				continue;
			gpu->switching_until = 0;
			go_on(gpu, 1);
			if (gpu->running == GM_NONE || !gpu->groups[gpu->context].slice)
				pass_on(gpu);
			continue;
		}
		if (gpu->running == GM_NONE)
			continue;
		c = &gpu->channels[gpu->running];
		c->queue[c->head] -= step;
		gpu->busy += step;
		gpu->groups[gpu->context].ran += step;
		if (!c->queue[c->head]) {
			before = is_ready(c);
			c->head = (c->head + 1) % GM_QUEUE;
			c->queued--;
			was_ready(gpu, c, before);
			c->finished++;
			c->finished_at = at;
			gpu->finished = gpu->running;
			if (!gpu->groups[gpu->context].ready || !gpu->groups[gpu->context].slice)
				pass_on(gpu);
			else
				go_on(gpu, 0);
			if (gpu->running != GM_NONE && !gpu->switching_until)
				end_slice(gpu);
			return at;
		}
		if (!gpu->groups[gpu->context].waits)
			end_slice(gpu);
	}
	return gpu->now;
}
