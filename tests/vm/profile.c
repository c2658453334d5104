// SPDX-License-Identifier: GPL-2.0
/*
 * profile.c: a plugin of QEMU's that writes down each instruction of a marked stretch.
 *
 * A program marks a stretch with two instructions that do nothing (`nopl` with a displacement that
 * nobody else uses, see `guest/bench/marks.rs`). Between them the address of every instruction, of
 * the program, the kernel and the driver alike, goes to a file as 64 bits; a zero ends a stretch.
 * Whose each is tells profile.py. Until the first mark has been seen nothing but marks is looked
 * for, so that the machine boots as fast as ever; that stretch itself may be lost.
 *
 * QEMU's interface (qemu-plugin.h, version 2 and later) is declared here, since Debian does not
 * package the header.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;
typedef void (*translated)(plugin_id id, struct qemu_plugin_tb *tb);
typedef void (*executed)(unsigned int processor, void *data);
typedef void (*ended)(plugin_id id, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, translated callback);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t length);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed callback,
					    int flags, void *data);
void qemu_plugin_register_atexit_cb(plugin_id id, ended callback, void *data);
void qemu_plugin_reset(plugin_id id, void (*done)(plugin_id id));

EXPORT int qemu_plugin_version = 2;

/* nopl 0x43475055(%rax,%rax,1), and the same with 0x43475056. */
static const uint8_t begin[] = { 0x0f, 0x1f, 0x84, 0x00, 0x55, 0x50, 0x47, 0x43 };
static const uint8_t end[] = { 0x0f, 0x1f, 0x84, 0x00, 0x56, 0x50, 0x47, 0x43 };

static plugin_id self;
static FILE *out;
static int awake;
static int recording;

static void install(plugin_id id);

static void put(uint64_t address)
{
	fwrite(&address, sizeof(address), 1, out);
}

static void on_insn(unsigned int processor, void *data)
{
	(void)processor;
	if (recording)
		put((uint64_t)data);
}

static void on_begin(unsigned int processor, void *data)
{
	(void)processor, (void)data;
	if (awake)
		recording = 1;
	else
		/* Forgets what is translated. */
		qemu_plugin_reset(self, install);
	awake = 1;
}

static void on_end(unsigned int processor, void *data)
{
	(void)processor, (void)data;
	if (recording)
		put(0);
	recording = 0;
}

static void on_translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t bytes[sizeof(begin)];
		executed callback = awake ? on_insn : NULL;

		if (qemu_plugin_insn_data(insn, bytes, sizeof(bytes)) == sizeof(bytes)) {
			if (!memcmp(bytes, begin, sizeof(begin)))
				callback = on_begin;
			else if (!memcmp(bytes, end, sizeof(end)))
				callback = on_end;
		}
		if (!callback)
			continue;
		/* 0: the callback reads no registers. */
		qemu_plugin_register_vcpu_insn_exec_cb(
			insn, callback, 0, (void *)qemu_plugin_insn_vaddr(insn));
	}
}

static void on_exit_of_machine(plugin_id id, void *data)
{
	(void)id, (void)data;
	fclose(out);
}

static void install(plugin_id id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	qemu_plugin_register_atexit_cb(id, on_exit_of_machine, NULL);
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int count, char **arguments)
{
	(void)info;
	if (count != 1 || strncmp(arguments[0], "out=", 4) || !(out = fopen(arguments[0] + 4, "w")))
		return 1;
	self = id;
	install(id);
	return 0;
}
