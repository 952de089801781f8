/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h: GPUs that the fake driver becomes, with the real kernels: their
   cubins only it takes. */
#pragma once

#include "internal.h"

enum { DEVICES = 5 };

int device_set_up(void **state);
int device_tear_down(void **state);

/* From now on all contexts have the kernels of these specs, too. */
void device_specs(const char *folder);

/* The word of a line that names the device. */
const char *device_word(int index);

/* The context of a device, which the fake driver becomes. */
struct quern_context *device_use(int index);

/* That of all contexts. */
const struct quern_registry *device_registry(void);
