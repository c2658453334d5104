// SPDX-License-Identifier: GPL-2.0
/* fake_rmapi.c of a driver that exports nothing: see Kbuild. */
#define FAKE_EXPORTS_NOTHING
#include "fake_rmapi.c"
