// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/driver/nvidia (kernel-open/nvidia/nv-procfs.c of 580): version,
 * params, registry, and a folder for each GPU. Everybody may read it, and it
 * lists every GPU of the host: that is why containers get a mask over it.
 *
 * Of the parameters those are there that user space reads to decide whether
 * it makes device nodes. Not there: suspend, warnings, patches.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include "fake.h"

static struct proc_dir_entry *folder;

static int version_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
		 FAKE_VERSION "  Release Build  (stand-in)\n");
	seq_puts(m, "GCC version:  " CONFIG_CC_VERSION_TEXT "\n");
	return 0;
}

static int params_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "ResmanDebugLevel: 4294967295\n"
		 "ModifyDeviceFiles: 1\n"
		 "DeviceFileUID: 0\n"
		 "DeviceFileGID: 0\n"
		 "DeviceFileMode: 438\n"
		 "EnableMSI: 1\n"
		 "RegistryDwords: \"\"\n");
	return 0;
}

static int registry_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "Binary: \"\"\n");
	return 0;
}

static int information_show(struct seq_file *m, void *unused)
{
	struct fake_gpu *gpu = m->private;

	seq_printf(m, "Model: \t\t %s\n", fake_board->name);
	seq_printf(m, "GPU UUID: \t GPU-%pUb\n", gpu->uuid);
	seq_puts(m, "Bus Type: \t PCIe\n");
	seq_printf(m, "Bus Location: \t %04x:%02x:%02x.0\n", gpu->pci_domain,
		   gpu->pci_bus, gpu->pci_slot);
	seq_printf(m, "Device Minor: \t %u\n", gpu->minor);
	seq_puts(m, "GPU Excluded:\t No\n");
	return 0;
}

static bool gpu_folder(struct proc_dir_entry *list, struct fake_gpu *gpu)
{
	struct proc_dir_entry *own;
	char name[16];

	snprintf(name, sizeof(name), "%04x:%02x:%02x.0", gpu->pci_domain,
		 gpu->pci_bus, gpu->pci_slot);
	own = proc_mkdir(name, list);
	return own &&
	       proc_create_single_data("information", 0444, own,
				       information_show, gpu) &&
	       proc_create_single("registry", 0444, own, registry_show);
}

int fake_procfs_init(void)
{
	struct proc_dir_entry *list;
	u32 i;

	folder = proc_mkdir("driver/nvidia", NULL);
	if (!folder)
		return -ENOMEM;
	list = proc_mkdir("gpus", folder);
	if (!list || !proc_create_single("version", 0444, folder, version_show) ||
	    !proc_create_single("params", 0444, folder, params_show) ||
	    !proc_create_single("registry", 0444, folder, registry_show))
		goto err;
	for (i = 0; i < gpus; i++)
		if (!gpu_folder(list, &fake_gpus[i]))
			goto err;
	return 0;
err:
	fake_procfs_exit();
	return -ENOMEM;
}

void fake_procfs_exit(void)
{
	proc_remove(folder);
}
