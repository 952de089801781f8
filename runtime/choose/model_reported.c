/* SPDX-License-Identifier: Apache-2.0 */
/*
** model_reported.c: rates of GPUs that were never measured here.
**
** They are shares of peaks that others reached, rounded, and say which kernel
** is likely to be faster, no more:
**
**     10.x  4096 products of BF16 in a cycle of a multiprocessor, twice as many
**           of FP8, four times of FP4. B200: BF16 4096^3 1540 TFLOP/s, FP8 m
**           16384 n 4096 k 4096 2545, MXFP4 8192^3 5702; 18 groups of 113 rows
**           in NVFP4 4.5 of 8 TB/s. Two guesses: 62 bytes a cycle into a
**           multiprocessor, as on Hopper, and 1500 cycles until a tile starts.
**           mma.sync there is unknown and taken to be Hopper's.
**     12.x  512 of BF16. RTX PRO 6000, 8192^3: MXFP8 802 TFLOP/s, NVFP4 1629;
**           BF16 is taken to be alike. Each step of k has model.c's own cost.
*/
#include "choose/model.h"

#include <stddef.h>

static const struct qn_model_reported all[] = {
    {.major = 10,
     .products = 4096,
     .shares = {0.68, 0.56, 0.62},
     .port = 62,
     .shared = 128,
     .start = 1500,
     .small = 129,
     .small_memory = 0.55},
    {.major = 12, .sync = 1, .products = 512, .shares = {0.92, 0.92, 0.94}},
};

const struct qn_model_reported *qn_model_reported(int major)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].major == major)
            return &all[i];
    return NULL;
}
