/* SPDX-License-Identifier: Apache-2.0 */
/* chip.h: figures of GPUs that are not there. */
#pragma once

struct qn_device;

/* The row `index` of a table of usual GPUs, as the driver would tell it; 0
   after the last one. */
int qn_chip(int index, struct qn_device *device);

/* The GPU of that name: "H100", "RTX 4090". 0 if the table has none. */
int qn_chip_find(const char *name, struct qn_device *device);

/* Fill in the memory's figures where they are not known: an H200's. */
void qn_chip_complete(struct qn_device *device);
