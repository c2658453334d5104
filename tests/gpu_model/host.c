// SPDX-License-Identifier: GPL-2.0
/* For the host's tests, besides model.h: the model's size, and accounts without its layout. */
#include "model.h"

#include <stddef.h>

size_t gm_host_size(void)
{
	return sizeof(struct gm_gpu);
}

gm_time gm_host_now(const struct gm_gpu *gpu)
{
	return gpu->now;
}

gm_u32 gm_host_finished(const struct gm_gpu *gpu)
{
	return gpu->finished;
}

/* The group that runs a kernel, or GM_NONE. */
gm_u32 gm_host_running(const struct gm_gpu *gpu)
{
	return gpu->running == GM_NONE ? GM_NONE : gpu->context;
}

gm_time gm_host_ran(const struct gm_gpu *gpu, gm_u32 group)
{
	return gpu->groups[group].ran;
}

gm_time gm_host_switched(const struct gm_gpu *gpu)
{
	return gpu->switched;
}

/* The newest sample but so many; 0: there is none. */
int gm_host_sample(const struct gm_gpu *gpu, gm_u32 back, struct gm_sample *to)
{
	if (back >= gpu->sample_count || back >= GM_SAMPLES)
		return 0;
	*to = gpu->samples[(gpu->sample_count - 1 - back) % GM_SAMPLES];
	return 1;
}
