// SPDX-License-Identifier: GPL-2.0
/* Nothing but the headers that the module's C includes. */
#include "helpers/shim.h"
