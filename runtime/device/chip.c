/* SPDX-License-Identifier: Apache-2.0 */
/* chip.c: figures of GPUs that are not there, as their makers give them. */
#include "device/chip.h"
#include "device/driver.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Clocks are the highest, in MHz; memory in GB/s; L2 in MiB. */
static const struct chip {
    const char *name;
    int major, minor, shared_bytes, sms, mhz, gbytes, l2;
} chips[] = {
    {"H200", 9, 0, 232448, 132, 1980, 4800, 60},
    {"H100", 9, 0, 232448, 132, 1980, 3352, 50},
    {"H100 PCIe", 9, 0, 232448, 114, 1755, 2039, 50},
    {"H20", 9, 0, 232448, 78, 1980, 4000, 60},
    {"A100", 8, 0, 166912, 108, 1410, 2039, 40},
    {"A30", 8, 0, 166912, 56, 1440, 933, 24},
    {"A40", 8, 6, 101376, 84, 1740, 696, 6},
    {"A10", 8, 6, 101376, 72, 1695, 600, 6},
    {"RTX 3090", 8, 6, 101376, 82, 1695, 936, 6},
    {"RTX 3070", 8, 6, 101376, 46, 1725, 448, 4},
    {"Orin", 8, 7, 166912, 16, 1300, 204, 4},
    {"L40S", 8, 9, 101376, 142, 2520, 864, 96},
    {"RTX 4090", 8, 9, 101376, 128, 2520, 1008, 72},
    {"L4", 8, 9, 101376, 58, 2040, 300, 48},
    {"RTX 4080", 8, 9, 101376, 76, 2505, 717, 64},
    {"B200", 10, 0, 232448, 148, 1850, 8000, 126},
    {"RTX 5090", 12, 0, 101376, 170, 2407, 1792, 96},
    {"RTX PRO 6000", 12, 0, 101376, 188, 2600, 1792, 128},
    {"RTX 5080", 12, 0, 101376, 84, 2617, 960, 64},
    {"RTX 5070 Ti", 12, 0, 101376, 70, 2452, 896, 48},
    {"RTX 5070", 12, 0, 101376, 48, 2512, 672, 48},
};
enum { CHIPS = sizeof chips / sizeof chips[0] };

/* Bytes of memory in a cycle. */
static double rate_of(const struct chip *c)
{
    return 1e3 * c->gbytes / c->mhz;
}

int qn_chip(int index, struct qn_device *device)
{
    const struct chip *c = &chips[index];

    if (index >= CHIPS)
        return 0;
    *device = (struct qn_device){.major = c->major,
                                 .minor = c->minor,
                                 .sms = c->sms,
                                 .shared_bytes = c->shared_bytes,
                                 .l2_bytes = c->l2 << 20,
                                 .memory_rate = rate_of(c)};
    snprintf(device->name, sizeof device->name, "%s %s",
             strchr("AHLO", c->name[0]) ? "an" : "a", c->name);
    return 1;
}

int qn_chip_find(const char *name, struct qn_device *device)
{
    for (int i = 0; i < CHIPS; i++)
        if (!strcasecmp(chips[i].name, name))
            return qn_chip(i, device);
    return 0;
}

void qn_chip_complete(struct qn_device *device)
{
    const struct chip *usual = &chips[0];

    if (device->l2_bytes < 1 << 20) /* a GPU of so little is a fake */
        device->l2_bytes = usual->l2 << 20;
    if (!(device->memory_rate > 0))
        device->memory_rate = rate_of(usual);
}
