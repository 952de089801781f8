/* SPDX-License-Identifier: Apache-2.0 */
/* random.h: data that are the same for a seed on every machine. */
#pragma once

#include "internal.h"

#include <stddef.h>
#include <stdint.h>

/* splitmix64: the next of 2^64 values. */
uint64_t qn_random_next(uint64_t *state);

/* Fill `count` elements of `type` (enum quern_type) with nearly normal values,
   of mean 0 and deviation `scale`, on all cores. 0; or 1 for a type that no
   element can be stored in. */
int qn_random_fill(void *data, int type, size_t count, uint64_t seed,
                   float scale);
