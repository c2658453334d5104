/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A model of how a GPU shares its compute engine, in virtual time.
 *
 * Freestanding, integers only, no allocation, no clock: tests/gpu_model (Rust, on the host) runs it
 * as fast as it can, and a stand-in driver can run the very same file on a clock of its own. The
 * same calls at the same times give the same results, always.
 *
 * These are modelled, as they were measured on a real GPU (docs/compute.md has the tables):
 *  - a runlist of channel groups, round robin, each with a time slice; a switch costs time;
 *  - a group that runs dry loses the rest of its slice, and its turn comes a whole round later;
 *  - a group alone on the runlist runs on, and goes on without a switch after a pause;
 *  - a group with a time slice of 0 is still visited: two switches, and it runs nothing;
 *  - channels switched off are preempted, with what is left of their kernel, and go on from there,
 *    unless their group waits: then the kernel runs to its end, as under the modes WFI and CTA
 *    (docs/measurements/2026-11-23-latency.md);
 *  - calls into the driver take time, and take effect at some moment within it (gm_call).
 *
 * All times are nanoseconds.
 */
#ifndef GPU_MODEL_H
#define GPU_MODEL_H

#ifdef __KERNEL__
#include <linux/types.h>
typedef u64 gm_time;
typedef u32 gm_u32;
#else
#include <stdint.h>
typedef uint64_t gm_time;
typedef uint32_t gm_u32;
#endif

#define GM_NEVER (~(gm_time)0)
#define GM_GROUPS 64
#define GM_CHANNELS 256
/* Kernels that a channel can hold. CUDA's GPFIFO has 1024 entries; no program here needs them. */
#define GM_QUEUE 16
/* The driver's ring of samples, and how often it takes one: 72 in a little more than 10 seconds. */
#define GM_SAMPLES 72
#define GM_SAMPLE_PERIOD (gm_time)(1000000000 / 6)
/* No group, no channel. */
#define GM_NONE (~(gm_u32)0)

struct gm_channel {
	gm_u32 used, group;
	gm_u32 off;
	/* Kernels: the first one may be under way, and has its remaining time here. */
	gm_time queue[GM_QUEUE];
	gm_u32 head, queued;
	/* Accounts: kernels submitted and finished, and when the last one did. */
	gm_time submitted, finished, finished_at;
};

struct gm_group {
	gm_u32 used;
	/* Channels of it that are on and have work. */
	gm_u32 ready;
	/* A kernel of it that runs is not taken off. */
	gm_u32 waits;
	gm_time slice;
	/* Accounts: time on the GPU, and how often it was switched to. */
	gm_time ran, visits;
};

struct gm_sample {
	gm_time at;
	/* The group that ran, or GM_NONE; the engine's load since the last sample, 1/100 %. */
	gm_u32 group, busy;
};

/* Costs; gm_init sets what was measured. */
struct gm_costs {
	gm_time switch_groups;
	/* From a group whose channels were switched off: that call saved its context. */
	gm_time switch_saved;
	/* To a group that has a time slice of 0. */
	gm_time switch_empty;
	/* From the beginning of a call to its effect, and the range of its whole length. */
	gm_time disable_effect, disable_least, disable_most;
	gm_time enable_effect, enable_least, enable_most;
	gm_time timeslice_effect, timeslice_least, timeslice_most;
	gm_time preempt_effect, preempt_least, preempt_most;
	gm_time samples_least, samples_most;
};

enum gm_driver_call { GM_DISABLE, GM_ENABLE, GM_TIMESLICE, GM_PREEMPT, GM_SAMPLES_READ };

/* How long a call takes, and after how much of it it takes effect. */
struct gm_call_times {
	gm_time effect, length;
};

struct gm_gpu {
	gm_time now;
	struct gm_costs costs;
	/* The group whose context is on the GPU, and the channel that runs; or GM_NONE. */
	gm_u32 context, running;
	/* That context was saved when its channels were switched off. */
	int saved;
	/* A switch to `context` is under way until then; 0: none. */
	gm_time switching_until;
	/* The channel whose kernel ended when gm_advance stopped, or GM_NONE. */
	gm_u32 finished;
	/* When the current slice ends. */
	gm_time slice_until;
	/* Accounts: time in kernels, and in switches. */
	gm_time busy, switched;
	gm_time sampled_busy, next_sample;
	struct gm_sample samples[GM_SAMPLES];
	gm_u32 sample_count;
	gm_time random;
	/* One more than the highest number in use so far. */
	gm_u32 top_group, top_channel;
	struct gm_group groups[GM_GROUPS];
	struct gm_channel channels[GM_CHANNELS];
};

/* An idle GPU at time 0, with measured costs. */
void gm_init(struct gm_gpu *gpu);
/* A channel group with this time slice; GM_NONE when there are GM_GROUPS. */
gm_u32 gm_group_add(struct gm_gpu *gpu, gm_time slice);
/* A channel in a group; GM_NONE when there are GM_CHANNELS. */
gm_u32 gm_channel_add(struct gm_gpu *gpu, gm_u32 group);
/* Removes a channel and what it holds. */
void gm_channel_remove(struct gm_gpu *gpu, gm_u32 channel);
/* Removes a group and its channels. */
void gm_group_remove(struct gm_gpu *gpu, gm_u32 group);
/* A kernel of this length was queued, and the doorbell rung. 0: the queue was full. */
int gm_submit(struct gm_gpu *gpu, gm_u32 channel, gm_time length);
/* The effects of calls, at this moment. */
void gm_set_timeslice(struct gm_gpu *gpu, gm_u32 group, gm_time slice);
void gm_switch(struct gm_gpu *gpu, gm_u32 channel, int off);
void gm_preempt(struct gm_gpu *gpu, gm_u32 group);
void gm_set_waits(struct gm_gpu *gpu, gm_u32 group, int waits);
/* How long a call will take; different each time, within what was measured. */
struct gm_call_times gm_call(struct gm_gpu *gpu, enum gm_driver_call what);
/* When a kernel, a slice or a switch ends by itself. GM_NEVER: none will. */
gm_time gm_next(const struct gm_gpu *gpu);
/*
 * Lets time pass up to `to`, and at most up to the first kernel's end (gm_gpu.finished has its
 * channel). Returns where it stopped.
 */
gm_time gm_advance(struct gm_gpu *gpu, gm_time to);

#endif
