// SPDX-License-Identifier: GPL-2.0
/*
 * Objects behind descriptors: controls 0x3d05 to 0x3d0c (os.c,
 * cliresCtrlCmdOsUnix*_IMPL, and rmobjexportimport.c of 580).
 *
 * An export duplicates the object into a client of the driver's own, which
 * asks for no share policy, and so holds the memory until the control file
 * is closed (osapi.c, rm_cleanup_file_private). An import duplicates it
 * from there, for whoever has the descriptor: the number is looked up in the
 * caller's table when the control runs, whatever it meant before.
 */
#include <linux/file.h>
#include "fake.h"

#define NV_MAX_DEVICES	32
#define MAX_OBJ_EXPORT_HANDLES	0x80000

enum { TYPE_NONE, TYPE_VIDMEM, TYPE_SYSMEM };	/* ..._IMPORT_OBJECT_TYPE_* */

/*
 * Handles of objects that are exported, of all clients, and of the devices
 * that they are of: RmGenerateObjExportHandle(). With the last object the
 * devices go too. Under rm_lock.
 */
static u32 handles, devices;

/* for an object of a device, NV_MAX_DEVICES: of none */
static bool take_handle(u32 device)
{
	u32 bit = device < NV_MAX_DEVICES ? 1U << device : 0;
	u32 all = handles + 2 * hweight32(devices | bit);

	if (all >= MAX_OBJ_EXPORT_HANDLES - 1)
		return false;
	devices |= bit;
	handles++;
	return true;
}

static void put(struct fake_export *e)
{
	if (e->class && --handles == 0)
		devices = 0;
	if (e->mem) {
		e->mem->holders--;
		fake_mem_put(e->mem);
	}
	fake_group_put(e->tsg.group);
	memset(e, 0, sizeof(*e));
}

void fake_exports_drop(struct fake_file *file)
{
	u32 i;

	for (i = 0; i < file->max_exports; i++)
		put(&file->exports[i]);
	fake_free(file->exports);
	file->exports = NULL;
	file->max_exports = 0;
}

/* RmExportObject() */
static u32 export_object(struct fake_client *client, u32 handle,
			 struct fake_export *e, u32 *device)
{
	struct fake_object *o = fake_object(client, handle);

	if (!o)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!fake_can_copy(o->class))
		return NV_ERR_INVALID_ARGUMENT;
	*device = o->gpu ? o->gpu->device_instance : NV_MAX_DEVICES;
	if (!take_handle(*device))
		return NV_ERR_NO_MEMORY;
	fake_describe(o, e);
	if (e->mem) {
		fake_mem_get(e->mem);
		e->mem->holders++;
	}
	if (e->tsg.group)
		fake_group_get(e->tsg.group);
	return NV_OK;
}

/* _initializeExportObjectFd() */
static u32 init_file(struct fake_file *file, struct fake_client *client,
		     u32 hdevice, u16 max, const u8 *metadata)
{
	u32 instance = NV_MAX_DEVICES;
	struct fake_object *device;

	if (file->exports)
		return NV_ERR_STATE_IN_USE;
	if (hdevice) {
		device = fake_object(client, hdevice);
		if (!device)
			return NV_ERR_OBJECT_NOT_FOUND;
		if (device->class->kind != KIND_DEVICE)
			return NV_ERR_INVALID_PARAMETER;
		instance = device->gpu->device_instance;
	}
	file->exports = fake_zalloc(max * sizeof(*file->exports));
	if (!file->exports)
		return NV_ERR_NO_MEMORY;
	file->max_exports = max;
	file->export_device = instance;
	if (metadata)
		memcpy(file->metadata, metadata, sizeof(file->metadata));
	return NV_OK;
}

/* RmImportObject() */
static u32 import_object(struct fake_client *client, u32 parent, u32 *handle,
			 struct fake_export *e, u8 *type)
{
	if (type) {
		if (!e->mem)
			return NV_ERR_INVALID_ARGUMENT;
		*type = e->mem->place == PLACE_VIDMEM ? TYPE_VIDMEM :
							TYPE_SYSMEM;
	}
	return fake_copy_object(client, parent, handle, e);
}

struct export_to_fd {			/* 0x3d05 */
	u32 type, device, parent, object;
	s32 fd;
	u32 flags;
};
struct import_from_fd {			/* 0x3d06 */
	s32 fd;
	u32 type, device, parent, object;
};
struct export_info {			/* 0x3d08 */
	s32 fd;
	u32 device_instance, gpu_instance;
	u16 max;
	u8 metadata[64];
};
struct export_create {			/* 0x3d0a */
	u32 device;
	u16 max;
	u8 metadata[64];
	s32 fd;
};
struct export_many {			/* 0x3d0b */
	s32 fd;
	u32 device;
	u16 max;
	u8 metadata[64];
	u32 objects[512];
	u16 count, index;
};
struct import_many {			/* 0x3d0c */
	s32 fd;
	u32 parent;
	u32 objects[128];
	u8 types[128];
	u16 count, index;
};
static_assert(sizeof(struct export_to_fd) == 24);
static_assert(sizeof(struct import_from_fd) == 20);
static_assert(sizeof(struct export_info) == 80);
static_assert(sizeof(struct export_create) == 76);
static_assert(sizeof(struct export_many) == 2128);
static_assert(sizeof(struct import_many) == 652);

/* a client that was made on the control file, for the log; 0: there is none */
static u32 owner_of(const struct fake_file *file)
{
	struct fake_client *client;
	unsigned long handle;

	xa_for_each(&fake_clients, handle, client)
		if (client->file == file)
			return client->handle;
	return 0;
}

static u32 export_one(struct fake_client *client, struct export_to_fd *p,
		      u32 *owner)
{
	struct fake_export e = {};
	struct fake_file *file;
	struct file *filp;
	u32 status, device;

	if (p->flags & 1 || p->type != 1 || p->fd == -1)
		return NV_ERR_INVALID_PARAMETER;
	status = export_object(client, p->object, &e, &device);
	if (status != NV_OK)
		return status;
	file = fake_fget(p->fd, true, &filp);
	if (!file) {
		put(&e);
		return NV_ERR_INVALID_PARAMETER;
	}
	*owner = owner_of(file);
	status = init_file(file, client, p->device, 1, NULL);
	if (status == NV_OK)
		file->exports[0] = e;
	else
		put(&e);
	fput(filp);
	return status;
}

static u32 export_list(struct fake_client *client, struct export_many *p,
		       struct fake_file *file)
{
	struct fake_export *list;
	u32 status = NV_OK, device, i;
	bool fresh = false;

	if (!file->exports) {
		if (!p->max)
			return NV_ERR_INVALID_PARAMETER;
		status = init_file(file, client, p->device, p->max,
				   p->metadata);
		if (status != NV_OK)
			return status;
		fresh = true;
	}
	list = fake_zalloc(512 * sizeof(*list));
	if (!list)
		status = NV_ERR_NO_MEMORY;
	else if (p->count > 512)
		status = NV_ERR_INVALID_PARAMETER;
	else if (p->count + p->index > file->max_exports)
		status = NV_ERR_OUT_OF_RANGE;
	for (i = 0; status == NV_OK && i < p->count; i++) {
		if (!p->objects[i])
			continue;
		status = export_object(client, p->objects[i], &list[i],
				       &device);
		if (status == NV_OK && device != file->export_device)
			status = NV_ERR_INVALID_PARAMETER;
	}
	if (status == NV_OK) {
		/* what is in a place already goes, where nothing comes too */
		for (i = 0; i < p->count; i++) {
			put(&file->exports[p->index + i]);
			file->exports[p->index + i] = list[i];
		}
	} else {
		for (i = 0; list && i < 512; i++)
			put(&list[i]);
		if (fresh)
			fake_exports_drop(file);
	}
	fake_free(list);
	return status;
}

static u32 import_list(struct fake_client *client, struct import_many *p,
		       struct fake_file *file)
{
	u32 status = NV_OK, i;

	if (!file->exports || p->count > 128)
		return NV_ERR_INVALID_PARAMETER;
	if (p->count + p->index > file->max_exports)
		return NV_ERR_OUT_OF_RANGE;
	for (i = 0; i < p->count; i++) {
		struct fake_export *e = &file->exports[p->index + i];

		p->types[i] = TYPE_NONE;
		if (!e->class)
			continue;
		status = import_object(client, p->parent, &p->objects[i], e,
				       &p->types[i]);
		if (status != NV_OK)
			break;
	}
	if (status == NV_OK)
		return NV_OK;
	/* also what has the handle that was given for an empty place */
	while (i--) {
		struct fake_object *o = p->objects[i] ?
			fake_object(client, p->objects[i]) : NULL;

		if (o)
			fake_object_free(o);
	}
	return status;
}

static u32 on_file(struct fake_client *client, u32 cmd, void *params,
		   struct fake_file *file)
{
	switch (cmd) {
	case 0x3d06: {
		struct import_from_fd *p = params;

		if (!file->exports || !file->exports[0].class)
			return NV_ERR_INVALID_PARAMETER;
		return import_object(client, p->parent, &p->object,
				     &file->exports[0], NULL);
	}
	case 0x3d08: {
		struct export_info *p = params;

		if (!file->exports)
			return NV_ERR_INVALID_PARAMETER;
		p->device_instance = file->export_device;
		p->gpu_instance = 0xffffffff;
		p->max = file->max_exports;
		memcpy(p->metadata, file->metadata, sizeof(p->metadata));
		return NV_OK;
	}
	case 0x3d0a: {
		struct export_create *p = params;

		return init_file(file, client, p->device, p->max, p->metadata);
	}
	case 0x3d0b:
		return export_list(client, params, file);
	default:
		return import_list(client, params, file);
	}
}

u32 fake_export_control(struct fake_client *client, u32 cmd, void *params,
			u32 *owner)
{
	struct fake_file *file;
	struct file *filp;
	u32 status;

	if (cmd == 0x3d05)
		return export_one(client, params, owner);
	if (cmd == 0x3d06 && (((struct import_from_fd *)params)->type != 1 ||
			      *(s32 *)params == -1))
		return NV_ERR_INVALID_PARAMETER;
	if (cmd == 0x3d0a && !((struct export_create *)params)->max)
		return NV_ERR_INVALID_PARAMETER;
	file = fake_fget(*(s32 *)(params + (cmd == 0x3d0a ? 72 : 0)), true,
			 &filp);
	if (!file)
		return NV_ERR_INVALID_PARAMETER;
	*owner = owner_of(file);
	status = on_file(client, cmd, params, file);
	fput(filp);
	return status;
}
