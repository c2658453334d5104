// SPDX-License-Identifier: GPL-2.0
/*
 * RM's resource server: clients, their object trees, freeing
 * (src/nvidia/src/libraries/resserv, src/kernel/rmapi/client.c of 580).
 *
 * - A client belongs to the control file it was made on (pOSInfo); every call
 *   with its handle from another file fails with NV_ERR_INVALID_CLIENT
 *   (client.c:rmclientValidate_IMPL, strict mode). A GPU's file that was
 *   registered with that control file counts as it.
 * - Client handles count up from 0xc1d00000. Object handles are the caller's
 *   choice; 0 lets RM choose from 0xcaf00000 up.
 * - Freeing what does not exist succeeds (rs_server.c, RS_COMPATABILITY_MODE).
 * - Freeing an object frees its dependants and its children first
 *   (rs_client.c:clientFreeResource_IMPL, clientUpdatePendingFreeList).
 *
 * Everything here runs under rm_lock.
 */
#include <linux/cred.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include "fake.h"

#define GENERATED_BASE	0xcaf00000u	/* RS_UNIQUE_HANDLE_BASE */
#define GENERATED_RANGE	0x00080000u

DEFINE_MUTEX(rm_lock);
DEFINE_XARRAY(fake_clients);
static u32 next_client = 0xc1d00000;

static void free_client(struct fake_client *client);

struct fake_client *fake_client(u32 handle)
{
	lockdep_assert_held(&rm_lock);
	return xa_load(&fake_clients, handle);
}

u32 fake_client_validate(u32 handle, const struct fake_sec *sec,
			 struct fake_client **out)
{
	struct fake_client *client = fake_client(handle);

	if (!client || (!sec->kernel && client->file != sec->file))
		return NV_ERR_INVALID_CLIENT;
	*out = client;
	return NV_OK;
}

struct fake_object *fake_object(struct fake_client *client, u32 handle)
{
	return xa_load(&client->objects, handle);
}

/* rs_client.c:clientAssignResourceHandle_IMPL() */
u32 fake_handle_assign(struct fake_client *client, u32 *handle)
{
	u32 i;

	if (*handle) {
		if (*handle == client->handle)
			return NV_ERR_INVALID_OBJECT_PARENT;
		return fake_object(client, *handle) ?
			NV_ERR_INSERT_DUPLICATE_NAME : NV_OK;
	}
	for (i = 0; i < GENERATED_RANGE; i++) {
		u32 h = GENERATED_BASE +
			client->next_generated++ % GENERATED_RANGE;

		if (!fake_object(client, h)) {
			*handle = h;
			return NV_OK;
		}
	}
	return NV_ERR_INSUFFICIENT_RESOURCES;
}

u32 fake_object_new(struct fake_client *client, struct fake_object *parent,
		    u32 handle, const struct fake_class *class,
		    struct fake_object **out)
{
	struct fake_object *o = fake_zalloc(sizeof(*o));

	if (!o)
		return NV_ERR_NO_MEMORY;
	o->handle = handle;
	o->class = class;
	o->client = client;
	o->parent = parent;
	INIT_LIST_HEAD(&o->children);
	INIT_LIST_HEAD(&o->sibling);
	INIT_LIST_HEAD(&o->dependants);
	INIT_LIST_HEAD(&o->depends);
	INIT_LIST_HEAD(&o->maps);
	INIT_LIST_HEAD(&o->registered);
	if (xa_err(xa_store(&client->objects, handle, o, GFP_KERNEL))) {
		fake_free(o);
		return NV_ERR_NO_MEMORY;
	}
	if (parent) {
		o->gpu = parent->gpu;
		list_add_tail(&o->sibling, &parent->children);
	}
	*out = o;
	return NV_OK;
}

/* rs_resource.c:refAddDependant() */
u32 fake_depend(struct fake_object *dependant, struct fake_object *target)
{
	struct fake_dep *dep;

	if (!target || target == dependant->parent)
		return NV_OK;
	dep = fake_zalloc(sizeof(*dep));
	if (!dep)
		return NV_ERR_NO_MEMORY;
	dep->target = target;
	dep->dependant = dependant;
	list_add_tail(&dep->on, &target->dependants);
	list_add_tail(&dep->who, &dependant->depends);
	return NV_OK;
}

/* Frees one object that has neither children nor dependants. */
static void free_leaf(struct fake_object *o)
{
	struct fake_cpu_map *map, *next_map;
	struct fake_dep *dep, *next_dep;

	list_for_each_entry_safe(dep, next_dep, &o->depends, who) {
		list_del(&dep->on);
		list_del(&dep->who);
		fake_free(dep);
	}
	list_for_each_entry_safe(map, next_map, &o->maps, list)
		fake_cpu_map_free(o->gpu, map);
	fake_registered_end(o);
	if (o->class->kind == KIND_VASPACE)
		fake_space_end(o);
	if (o->class->kind == KIND_SESSION)
		fake_session_end(o);
	if (o->class->kind == KIND_SURFACE || o->class->kind == KIND_MAPPER)
		fake_surface_end(o);
	if (o->class->kind == KIND_TSG)
		fake_group_put(o->tsg.group);
	if (o->class->kind == KIND_CHANNEL && o->channel.channel) {
		fake_engine_channel_free(o->gpu, o->channel.model,
					 fake_channel_id(o->channel.channel));
		fake_channel_put(o->channel.channel);
	}
	if (o->class->kind == KIND_CHANNEL)
		fake_userd_end(o);
	if (o->class->kind == KIND_SUBDEVICE)
		fake_boost_end(o);
	if (o->class->kind == KIND_DEBUGGER && o->debugger.client)
		free_client(fake_client(o->debugger.client));
	if (o->class->kind == KIND_ENGINE && o->class->params == 16)
		(*fake_context_objects(o->parent))--;
	if (o->mem) {
		/* rs_client.c:_unmapInterMapping() takes the flag for that of
		 * an unmapping which defers (what was unmapped is not known) */
		if (o->mem->read_only)
			fake_harm(HARM_STALE);
		o->mem->holders--;
		fake_mem_put(o->mem);
	}
	fake_lookup_freed(o);
	list_del(&o->sibling);
	xa_erase(&o->client->objects, o->handle);
	fake_free(o);
}

/*
 * Frees an object with everything below it and everything that depends on
 * any of that. Not recursive: a hostile tree may be deep.
 */
void fake_object_free(struct fake_object *top)
{
	struct fake_object *o = top;

	for (;;) {
		struct fake_object *next = NULL;

		if (!list_empty(&o->dependants))
			next = list_first_entry(&o->dependants,
						struct fake_dep, on)->dependant;
		else if (!list_empty(&o->children))
			next = list_last_entry(&o->children,
					       struct fake_object, sibling);
		if (next) {
			o = next;
			continue;
		}
		if (o == top) {
			free_leaf(o);
			return;
		}
		free_leaf(o);
		o = top;
	}
}

u32 fake_client_new(const struct fake_sec *sec, u32 *handle)
{
	struct fake_client *client;
	u32 h = *handle, status;

	if (h && fake_client(h))
		return NV_ERR_INSERT_DUPLICATE_NAME;
	client = fake_zalloc(sizeof(*client));
	if (!client)
		return NV_ERR_NO_MEMORY;
	if (!h) {
		do {
			h = ++next_client;
		} while (fake_client(h));
	}
	client->handle = h;
	client->file = sec->file;
	client->pid = task_tgid_nr(current);
	client->tgid = get_pid(task_tgid(current));
	client->euid = current_euid();
	xa_init(&client->objects);
	status = fake_object_new(client, NULL, h, fake_class(NV01_ROOT_CLIENT),
				 &client->root);
	if (status == NV_OK &&
	    xa_err(xa_store(&fake_clients, h, client, GFP_KERNEL))) {
		fake_object_free(client->root);
		status = NV_ERR_NO_MEMORY;
	}
	if (status != NV_OK) {
		xa_destroy(&client->objects);
		put_pid(client->tgid);
		fake_free(client);
		return status;
	}
	*handle = h;
	return NV_OK;
}

static void free_client(struct fake_client *client)
{
	fake_object_free(client->root);
	xa_erase(&fake_clients, client->handle);
	WARN(!xa_empty(&client->objects),
	     "fake_nvidia: client 0x%08x leaves objects behind\n",
	     client->handle);
	xa_destroy(&client->objects);
	put_pid(client->tgid);
	fake_free(client);
}

/*
 * A client that the driver makes for itself. It counts in the same row, from
 * another base (RS_CLIENT_INTERNAL_HANDLE_BASE).
 */
u32 fake_client_own(u32 *handle)
{
	static const struct fake_sec sec = { .admin = true, .kernel = true };

	do {
		*handle = (++next_client & 0xfffff) | 0xc1e00000;
	} while (fake_client(*handle));
	return fake_client_new(&sec, handle);
}

/* osapi.c:rm_cleanup_file_private(), RmFreeUnusedClients() */
void fake_file_cleanup(struct fake_file *file)
{
	struct fake_client *client;
	unsigned long handle;

	mutex_lock(&rm_lock);
	fake_exports_drop(file);
	xa_for_each(&fake_clients, handle, client)
		if (client->file == file)
			free_client(client);
	fake_os_events_of_file(file);
	mutex_unlock(&rm_lock);
}

/* rmapiFreeWithSecInfo(), rs_server.c:serverFreeResourceTree() */
u32 fake_free_object(u32 hclient, u32 hobject, const struct fake_sec *sec)
{
	struct fake_client *client;
	struct fake_object *o;
	u32 status;

	/* serverutilGetClientUnderLock() of rmapiFreeWithSecInfo() */
	if (!fake_client(hclient))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	status = fake_client_validate(hclient, sec, &client);
	if (status != NV_OK)
		return status;
	if (hobject == hclient) {
		free_client(client);
		fake_os_events_of_client(hclient);
		return NV_OK;
	}
	o = fake_object(client, hobject);
	if (o) {
		fake_maps_end_by(o);
		fake_object_free(o);
	}
	return NV_OK;
}
