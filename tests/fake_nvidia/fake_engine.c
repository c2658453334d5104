// SPDX-License-Identifier: GPL-2.0
/*
 * A GPU's compute engine: the model of ../gpu_model on the machine's clock.
 *
 * Every channel group for graphics and compute is a group of the model, with
 * its time slice, and so is a channel for it outside of a group. A kernel is
 * nothing but its length. What a channel's ring in memory would hold comes by
 * debugfs (`work`), and counts only if the channel's token is found in the
 * doorbell register then: whoever is kept from the doorbell gets nothing onto
 * the GPU. The register is memory, so a second ring before the look takes the
 * place of the first; a program that finds that its own was lost rings again.
 *
 * Controls that reach the engine take as long as was measured on a real GPU,
 * have their effect within that time, and hold rm_lock over it, as the driver
 * holds the GPU's lock while its firmware works.
 *
 * The model is brought up to date whenever somebody looks. A timer runs only
 * while somebody waits for a kernel.
 */
#include <linux/debugfs.h>
#include <linux/hrtimer.h>
#include "fake.h"

#define DOORBELL		0x90	/* NV_VIRTUAL_FUNCTION_DOORBELL */
#define LONGEST_KERNEL		(10ull * NSEC_PER_SEC)

struct fake_engine {
	spinlock_t lock;		/* all below; also taken by the timer */
	u64 base;			/* the model's time 0 */
	struct hrtimer timer;
	atomic_t waiters;
	wait_queue_head_t wait[GM_CHANNELS];
	u16 by_id[FAKE_CHANNELS];	/* the model's number plus 1 */
	pid_t of_group[GM_GROUPS];
	pid_t sampled[GM_SAMPLES];	/* whose each sample of the model is */
	u32 samples;			/* so many are in it */
	struct gm_gpu model;
};

/* Notes whose the model's new samples are, before a group of it is used again. */
static void name_samples(struct fake_engine *e)
{
	const struct gm_sample *s;

	for (; e->samples < e->model.sample_count; e->samples++) {
		s = &e->model.samples[e->samples % GM_SAMPLES];
		e->sampled[e->samples % GM_SAMPLES] =
			s->group == GM_NONE ? -1 : e->of_group[s->group];
	}
}

/* Lets the model's time pass up to now, and wakes the tasks that wait for a kernel that ended. */
static void advance(struct fake_engine *e)
{
	u64 now = ktime_get_ns() - e->base;

	lockdep_assert_held(&e->lock);
	while (e->model.now < now) {
		gm_advance(&e->model, now);
		if (e->model.finished != GM_NONE)
			wake_up_all(&e->wait[e->model.finished]);
	}
	name_samples(e);
}

/* Has the timer look when the model does something next. */
static void arm(struct fake_engine *e)
{
	gm_time next = gm_next(&e->model);

	lockdep_assert_held(&e->lock);
	if (next != GM_NEVER)
		hrtimer_start(&e->timer, ns_to_ktime(e->base + next),
			      HRTIMER_MODE_ABS);
}

/* Something was changed that moves what happens next. */
static void changed(struct fake_engine *e)
{
	lockdep_assert_held(&e->lock);
	if (atomic_read(&e->waiters))
		arm(e);
}

/* Takes the engine, up to date, to look at its model or to change it. */
static struct fake_engine *enter(struct fake_gpu *gpu)
{
	spin_lock_irq(&gpu->engine->lock);
	advance(gpu->engine);
	return gpu->engine;
}

/* Gives it back after a change. */
static void leave(struct fake_engine *e)
{
	changed(e);
	spin_unlock_irq(&e->lock);
}

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	struct fake_engine *e = container_of(timer, struct fake_engine, timer);
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	advance(e);
	changed(e);
	spin_unlock_irqrestore(&e->lock, flags);
	return HRTIMER_NORESTART;
}

u32 fake_engine_group(struct fake_gpu *gpu, u64 slice_us, pid_t pid)
{
	struct fake_engine *e = enter(gpu);
	u32 group;

	group = gm_group_add(&e->model, slice_us * NSEC_PER_USEC);
	if (group != GM_NONE)
		e->of_group[group] = pid;
	spin_unlock_irq(&e->lock);
	return group;
}

void fake_engine_group_free(struct fake_gpu *gpu, u32 group)
{
	struct fake_engine *e = enter(gpu);

	gm_group_remove(&e->model, group);
	leave(e);
}

u32 fake_engine_channel(struct fake_gpu *gpu, u32 group, u32 id)
{
	struct fake_engine *e = enter(gpu);
	u32 channel;

	channel = gm_channel_add(&e->model, group);
	if (channel != GM_NONE)
		e->by_id[id] = channel + 1;
	spin_unlock_irq(&e->lock);
	return channel;
}

void fake_engine_channel_free(struct fake_gpu *gpu, u32 channel, u32 id)
{
	struct fake_engine *e;

	if (channel == GM_NONE)
		return;
	e = enter(gpu);
	gm_channel_remove(&e->model, channel);
	e->by_id[id] = 0;
	leave(e);
	wake_up_all(&e->wait[channel]);
}

/* Sleeps until then, killed or not: a call into the firmware is not given up. */
static void sleep_until(u64 at)
{
	ktime_t when = ns_to_ktime(at);

	do {
		__set_current_state(TASK_UNINTERRUPTIBLE);
	} while (schedule_hrtimeout_range(&when, 0, HRTIMER_MODE_ABS));
}

/* A call into the firmware: returns at the moment of its effect. */
void fake_engine_begin(struct fake_gpu *gpu, enum gm_driver_call what,
		       struct fake_engine_call *call)
{
	struct fake_engine *e = gpu->engine;
	u64 now = ktime_get_ns();
	struct gm_call_times length;

	spin_lock_irq(&e->lock);
	length = gm_call(&e->model, what);
	spin_unlock_irq(&e->lock);
	call->done = now + length.length;
	sleep_until(now + length.effect);
}

/* The rest of it. */
void fake_engine_end(const struct fake_engine_call *call)
{
	sleep_until(call->done);
}

/*
 * The driver's ring of samples: what is in this place of it. Returns how many
 * there were in all; *stamp is 0 where the place is empty.
 */
u32 fake_engine_sample(struct fake_gpu *gpu, u32 index, u64 *stamp, pid_t *pid,
		       u32 *busy)
{
	struct fake_engine *e = enter(gpu);
	u32 count;

	count = e->model.sample_count;
	*stamp = index < count ? e->model.samples[index].at : 0;
	*pid = e->sampled[index];
	*busy = e->model.samples[index].busy;
	spin_unlock_irq(&e->lock);
	return count;
}

void fake_engine_timeslice(struct fake_gpu *gpu, u32 group, u64 slice_us)
{
	struct fake_engine *e;

	if (group == GM_NONE)
		return;
	e = enter(gpu);
	gm_set_timeslice(&e->model, group, slice_us * NSEC_PER_USEC);
	leave(e);
}

void fake_engine_switch(struct fake_gpu *gpu, u32 channel, bool off)
{
	struct fake_engine *e;

	if (channel == GM_NONE)
		return;
	e = enter(gpu);
	gm_switch(&e->model, channel, off);
	leave(e);
}

void fake_engine_preempt(struct fake_gpu *gpu, u32 group)
{
	struct fake_engine *e;

	if (group == GM_NONE)
		return;
	e = enter(gpu);
	gm_preempt(&e->model, group);
	leave(e);
}

/*
 * Waits for kernels that run on although their channel was switched off; the
 * firmware answers no call before (docs/measurements/2026-11-23-latency.md).
 */
void fake_engine_drain(struct fake_gpu *gpu)
{
	struct fake_engine *e = gpu->engine;
	u64 end;

	do {
		spin_lock_irq(&e->lock);
		advance(e);
		end = e->model.running == GM_NONE ||
		      !e->model.channels[e->model.running].off ?
			0 : e->base + gm_next(&e->model);
		spin_unlock_irq(&e->lock);
		if (end)
			sleep_until(end);
	} while (end);
}

void fake_engine_waits(struct fake_gpu *gpu, u32 group, bool waits)
{
	struct fake_engine *e;

	if (group == GM_NONE)
		return;
	e = enter(gpu);
	gm_set_waits(&e->model, group, waits);
	leave(e);
}

/* The record that tests write to `work`. */
struct fake_work {
	u32 minor, token;
	u64 length;		/* of each kernel, nanoseconds */
	u32 count;		/* kernels that the ring has for the GPU now */
	u32 below;		/* wait until fewer are left; 0: do not wait */
};
static_assert(sizeof(struct fake_work) == 24);

/* The channel of a token, or NULL. */
static struct gm_channel *find(struct fake_engine *e, u32 token)
{
	u32 id = token & 0xffff, at;

	lockdep_assert_held(&e->lock);
	if (id >= FAKE_CHANNELS || token >> 16)	/* the runlist of compute is 0 */
		return NULL;
	at = e->by_id[id];
	return at ? &e->model.channels[at - 1] : NULL;
}

/* The doorbell was rung with this token: the GPU fetches what the ring has. */
static int fetch(struct fake_gpu *gpu, const struct fake_work *work,
		 u32 *channel)
{
	u32 *doorbell = page_address(gpu->bell) + DOORBELL, i;
	struct fake_engine *e = enter(gpu);
	struct gm_channel *c;
	int ret = 0;

	c = find(e, work->token);
	if (!c)
		ret = -ENOENT;
	else if (work->count > GM_QUEUE - c->queued)
		ret = -ENOSPC;
	else if (work->count && cmpxchg(doorbell, work->token, 0) != work->token)
		ret = -EAGAIN;
	for (i = 0; !ret && i < work->count; i++)
		gm_submit(&e->model, c - e->model.channels, work->length);
	if (c)
		*channel = c - e->model.channels;
	leave(e);
	return ret;
}

/* Whether fewer kernels are left than somebody waits for; if not, the timer will tell. */
static bool is_below(struct fake_engine *e, const struct fake_work *work)
{
	struct gm_channel *c;
	bool below;

	spin_lock_irq(&e->lock);
	advance(e);
	c = find(e, work->token);
	below = !c || c->queued < work->below;
	if (!below)
		arm(e);
	spin_unlock_irq(&e->lock);
	return below;
}

static ssize_t work_write(struct file *filp, const char __user *buf, size_t n,
			  loff_t *pos)
{
	struct fake_work work;
	struct fake_gpu *gpu;
	u32 channel = 0;
	int ret;

	if (n != sizeof(work))
		return -EINVAL;
	if (copy_from_user(&work, buf, n))
		return -EFAULT;
	gpu = fake_gpu_by_minor(work.minor);
	if (!gpu || !work.length || work.length > LONGEST_KERNEL)
		return -EINVAL;
	ret = fetch(gpu, &work, &channel);
	if (!ret && work.below) {
		atomic_inc(&gpu->engine->waiters);
		ret = wait_event_interruptible(gpu->engine->wait[channel],
					       is_below(gpu->engine, &work));
		atomic_dec(&gpu->engine->waiters);
	}
	return ret ?: n;
}

const struct file_operations fake_work_fops = {
	.owner = THIS_MODULE, .open = simple_open, .write = work_write,
};

/* Everything that a client has on one GPU. */
struct account {
	u64 ran, visits, submitted, finished;
	u32 channels, off, waits;
};

static void add_object(struct account *a, const struct fake_object *o)
{
	const struct gm_gpu *model = &o->gpu->engine->model;
	bool is_group = o->class->kind == KIND_TSG;
	/* a copy is the same group, and so is its channels' */
	bool is_first = is_group ? !o->tsg.copied :
				   o->parent->class->kind != KIND_TSG;
	u32 group = fake_context_model(o);

	if (is_first && group != GM_NONE) {
		a->ran += model->groups[group].ran;
		a->visits += model->groups[group].visits;
		a->waits += model->groups[group].waits;
	}
	if (!is_group && o->channel.model != GM_NONE) {
		const struct gm_channel *c = &model->channels[o->channel.model];

		a->submitted += c->submitted;
		a->finished += c->finished;
		a->channels++;
		a->off += c->off;
	}
}

static void show_client(struct seq_file *m, struct fake_gpu *gpu,
			struct fake_client *client)
{
	struct account a = {};
	struct fake_object *o;
	unsigned long i;

	spin_lock_irq(&gpu->engine->lock);
	xa_for_each(&client->objects, i, o)
		if (o->gpu == gpu && (o->class->kind == KIND_TSG ||
				      o->class->kind == KIND_CHANNEL))
			add_object(&a, o);
	spin_unlock_irq(&gpu->engine->lock);
	if (a.channels)
		seq_printf(m, "gpu%u_0x%08x: ran %llu visits %llu submitted %llu finished %llu channels %u off %u waits %u\n",
			   gpu->minor, client->handle, a.ran, a.visits,
			   a.submitted, a.finished, a.channels, a.off,
			   a.waits);
}

int fake_engine_show(struct seq_file *m, void *v)
{
	struct fake_client *client;
	unsigned long i;
	u32 g;

	mutex_lock(&rm_lock);
	for (g = 0; g < gpus; g++) {
		struct fake_engine *e = fake_gpus[g].engine;
		u64 now, busy, switched;

		spin_lock_irq(&e->lock);
		advance(e);
		now = e->model.now;
		busy = e->model.busy;
		switched = e->model.switched;
		spin_unlock_irq(&e->lock);
		seq_printf(m, "gpu%u_now_ns: %llu\ngpu%u_busy_ns: %llu\ngpu%u_switched_ns: %llu\n",
			   g, now, g, busy, g, switched);
		xa_for_each(&fake_clients, i, client)
			show_client(m, &fake_gpus[g], client);
	}
	mutex_unlock(&rm_lock);
	return 0;
}

int fake_engine_init(struct fake_gpu *gpu)
{
	struct fake_engine *e = kvzalloc(sizeof(*e), GFP_KERNEL);
	u32 i;

	if (!e)
		return -ENOMEM;
	spin_lock_init(&e->lock);
	for (i = 0; i < GM_CHANNELS; i++)
		init_waitqueue_head(&e->wait[i]);
#ifdef HAS_hrtimer_setup
	hrtimer_setup(&e->timer, tick, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
#else
	hrtimer_init(&e->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	e->timer.function = tick;
#endif
	gm_init(&e->model);
	e->base = ktime_get_ns();
	gpu->engine = e;
	return 0;
}

void fake_engine_exit(struct fake_gpu *gpu)
{
	if (!gpu->engine)
		return;
	hrtimer_cancel(&gpu->engine->timer);
	kvfree(gpu->engine);
}
