// SPDX-License-Identifier: GPL-2.0
/*
 * The model of a GPU's compute engine, the very file that the host's tests run; fake_engine.c gives
 * it a clock.
 */
#include "../gpu_model/model.c"
