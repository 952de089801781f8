/* SPDX-License-Identifier: Apache-2.0 */
/* model_cast.c: the rates of memory and L2, and the time of a cast. */
#include "choose/model.h"
#include "device/chip.h"
#include "device/driver.h"

#define MEMORY_SHARE 0.81   /* of the rate that the driver tells */
#define CAST_SHARE   0.76   /* the same for casts, which wait for memory */
#define LAUNCH       5000.0 /* cycles between kernels, for each cast */
#define L2_RATE      149.0  /* bytes in a cycle for each MiB of an H100's L2 */
#define L2_MORE      2.5    /* times as much for each MiB more */
#define H100_L2      50.0   /* MiB */

static struct qn_device known(const struct qn_device *device)
{
    struct qn_device chip = device ? *device : (struct qn_device){0};

    qn_chip_complete(&chip);
    return chip;
}

double qn_model_memory(const struct qn_device *device)
{
    return known(device).memory_rate * MEMORY_SHARE;
}

double qn_model_memory_share(const struct qn_device *device)
{
    return known(device).memory_rate / known(NULL).memory_rate;
}

double qn_model_l2_bytes(const struct qn_device *device)
{
    return known(device).l2_bytes;
}

/* Both chips have the same multiprocessors; what they take from L2 differs by
   more than its size. A small L2 has a proportional rate. */
double qn_model_l2(const struct qn_device *device)
{
    double size = qn_model_l2_bytes(device) / (1 << 20);
    double more = size > H100_L2 ? size - H100_L2 : 0;

    return L2_RATE * (size - more + L2_MORE * more);
}

double qn_model_cast(const struct qn_device *device, double bytes, int launches)
{
    return bytes / (known(device).memory_rate * CAST_SHARE) + LAUNCH * launches;
}
