/* SPDX-License-Identifier: Apache-2.0 */
/* random.h: data that are the same for a seed on every machine. */
#pragma once

#include "internal.h"

#include <stddef.h>
#include <stdint.h>

/* splitmix64: the next of 2^64 values. */
uint64_t qn_random_next(uint64_t *state);

/* 2^(1-h) for a value of a matrix. h is the sum of 0 to 3 for a square of 128
   values, 0 or 1 for 128 values of a row in it, and 0 or 1 for 128 values of a
   column: blocks of any recipe get scales that differ from their neighbours'.
   By a seed of its own, if values are drawn by the same. */
float qn_random_factor(uint64_t seed, uint64_t row, uint64_t column);

/* Fill `count` elements of `type` (enum quern_type) with nearly normal values,
   of mean 0 and deviation `scale`, on all cores: in rows of `columns` each
   times its qn_random_factor, 0 if all are of one magnitude. None is more than
   7 times the deviation. 0; or 1 for a type that no element can be stored
   in. */
int qn_random_fill(void *data, int type, size_t count, size_t columns,
                   uint64_t seed, float scale);
