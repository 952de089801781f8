/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c: GPUs that the fake driver becomes. */
#define _GNU_SOURCE
#include "devices.h"
#include "base/context.h"
#include "log.h"

#include <stdlib.h>

static const struct device {
    const char *word;
    int major, minor, sms, shared_bytes;
} devices[DEVICES] = {
    {"", 9, 0, 132, 232448},
    {"device=8.0", 8, 0, 108, 166912},
    {"device=12.0", 12, 0, 170, 101376},
    {"device=10.0", 10, 0, 148, 232448},
    {"device=10.3", 10, 3, 160, 232448},
};

static struct {
    struct quern_registry registry;
    struct qn_kernel *kernels;
    struct quern_context *specs; /* owns what the registry is a copy of */
    struct quern_context *contexts[DEVICES];
} all;

/* -------------------------------------------------------------------- setup */

/* The registry, with cubins. */
static void take(const struct quern_registry *registry)
{
    size_t bytes = (size_t)registry->nkernels * sizeof *all.kernels;

    all.kernels = malloc(bytes);
    assert_non_null(all.kernels);
    memcpy(all.kernels, registry->kernels, bytes);
    for (int i = 0; i < registry->nkernels; i++)
        if (strcmp(all.kernels[i].arch, "host") != 0) {
            all.kernels[i].cubin = "\177ELF";
            all.kernels[i].cubin_bytes = 4;
        }
    all.registry = *registry;
    all.registry.kernels = all.kernels;
}

int device_set_up(void **state)
{
    (void)state;
    log_open();
    take(&qn_registry_builtin);
    return 0;
}

int device_tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < DEVICES; i++) {
        qn_close(all.contexts[i]);
        all.contexts[i] = NULL;
    }
    qn_close(all.specs);
    free(all.kernels);
    return 0;
}

void device_specs(const char *folder)
{
    const struct quern_open_options options = {
        .cache = "", .tune = "", .specs = &folder, .specs_count = 1};

    device_tear_down(NULL);
    if (qn_open(&options, &all.specs))
        fail_msg("%s", quern_errmsg());
    take(all.specs->base);
}

struct quern_context *device_use(int index)
{
    const struct device *device = &devices[index];
    const struct quern_open_options options = {
        .registry = &all.registry, .cache = "", .tune = ""};

    log_cuda->major = device->major;
    log_cuda->minor = device->minor;
    log_cuda->sms = device->sms;
    log_cuda->shared_bytes = device->shared_bytes;
    if (!all.contexts[index])
        assert_int_equal(qn_open(&options, &all.contexts[index]), QUERN_OK);
    return all.contexts[index];
}

const char *device_word(int index)
{
    return devices[index].word;
}

const struct quern_registry *device_registry(void)
{
    return &all.registry;
}
