/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.h: a GPU's clock and power, from NVIDIA's management library, opened at
   run time. */
#pragma once

struct qn_driver;

/* One device. Figures that the library does not give are NULL. */
struct qn_nvml {
    void *library;
    void *device;
    int (*clock)(void *device, int type, unsigned *mhz);
    int (*power)(void *device, unsigned *milliwatts);
};

/* Open it for the device (an ordinal). NULL where the library or the device
   is not to be found, which takes about a second, as does success. */
struct qn_nvml *qn_nvml_open(struct qn_driver *driver, int device);
void qn_nvml_close(struct qn_nvml *nvml);

/* MHz of the multiprocessors now; 0 if unknown or `nvml` is NULL. */
int qn_nvml_clock(struct qn_nvml *nvml);

/* The card's power over the last second or less; 0 if unknown. */
double qn_nvml_watts(struct qn_nvml *nvml);
