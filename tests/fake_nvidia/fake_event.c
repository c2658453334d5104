// SPDX-License-Identifier: GPL-2.0
/*
 * OS events: NV_ESC_ALLOC_OS_EVENT and NV_ESC_FREE_OS_EVENT
 * (osapi.c:allocate_os_event, free_os_event, free_os_events of 580).
 *
 * An event is the pair (client handle, descriptor number). Neither is looked
 * up: the client need not be the caller's nor exist, the number is only a
 * key. That is a hole of the driver, kept here.
 */
#include "fake.h"

struct os_event {
	struct list_head list;
	u32 client, fd;
	struct fake_file *file;
};

static LIST_HEAD(events);

static void drop(struct os_event *e)
{
	list_del(&e->list);
	fake_free(e);
	atomic_dec(&fake_events);
}

static struct os_event *find(u32 client, u32 fd)
{
	struct os_event *e;

	list_for_each_entry(e, &events, list)
		if (e->client == client && e->fd == fd)
			return e;
	return NULL;
}

u32 fake_os_event(struct fake_file *file, struct nv_os_event *p, bool add)
{
	struct os_event *e;
	u32 status = NV_OK;

	mutex_lock(&rm_lock);
	e = find(p->client, p->fd);
	if (!add) {
		if (e) {
			drop(e);
		} else {
			status = NV_ERR_INVALID_EVENT;
			/* osapi.c:free_os_event, in release builds as well */
			pr_err("NVRM: failed to find OS event:\n");
			pr_err("NVRM:    hParent: 0x%x\n", p->client);
			pr_err("NVRM:    fd: %d\n", p->fd);
		}
	} else if (e) {
		status = NV_ERR_INSUFFICIENT_RESOURCES;
	} else {
		e = fake_zalloc(sizeof(*e));
		if (e) {
			e->client = p->client;
			e->fd = p->fd;
			e->file = file;
			list_add(&e->list, &events);
			atomic_inc(&fake_events);
		} else {
			status = NV_ERR_NO_MEMORY;
		}
	}
	mutex_unlock(&rm_lock);
	return status;
}

bool fake_os_event_exists(u32 client, u32 fd)
{
	return find(client, fd);
}

u32 fake_os_events_count(u32 client)
{
	struct os_event *e;
	u32 n = 0;

	list_for_each_entry(e, &events, list)
		n += e->client == client;
	return n;
}

void fake_os_events_of_client(u32 client)
{
	struct os_event *e, *next;

	list_for_each_entry_safe(e, next, &events, list)
		if (e->client == client)
			drop(e);
}

void fake_os_events_of_file(struct fake_file *file)
{
	struct os_event *e, *next;

	list_for_each_entry_safe(e, next, &events, list)
		if (e->file == file)
			drop(e);
}
