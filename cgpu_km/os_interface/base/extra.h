/* SPDX-License-Identifier: GPL-2.0 */
/* The headers that bindgen reads for the module's own bindings: see Kbuild. */
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/proc_fs.h>
#include <linux/mman.h>
#include "base/shim.h"
#include "driver/shim.h"
#include "entry/shim.h"
#include "files/shim.h"
#include "host/shim.h"
#include "nodes/shim.h"
#include "scratch/shim.h"
