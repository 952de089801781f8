/* SPDX-License-Identifier: Apache-2.0 */
/*
** evidence.c: how it is known that a kernel works on a GPU.
**
** RUN: committed results of the GPU suite name it, for a GPU of this compute
** capability. INTERPRETED: the interpreter of PTX ran it right. COMPILED: NVRTC
** compiles it without spills, at the latest when it is first used.
*/
#include "choose/evidence.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/model.h"
#include "choose/select.h"
#include "device/driver.h"

#include <stdio.h>
#include <string.h>

enum { MEASURED = 90 }; /* of which the model's figures are */

#define GPU(name, word, major, minor) {word, major, minor},

static const struct gpu {
    const char *word;
    int major, minor;
} gpus[QN_GPU_COUNT] = {QN_GPUS(GPU)};

static int is_host(const struct qn_kernel *kernel)
{
    return !strcmp(kernel->arch, "host");
}

int qn_evidence(const struct qn_kernel *kernel, int capability)
{
    if (is_host(kernel))
        return QUERN_EVIDENCE_RUN;
    for (int i = 0; i < QN_GPU_COUNT; i++)
        if (kernel->ran >> i & 1 &&
            gpus[i].major * 10 + gpus[i].minor == capability)
            return QUERN_EVIDENCE_RUN;
    return kernel->interpreted ? QUERN_EVIDENCE_INTERPRETED
                               : QUERN_EVIDENCE_COMPILED;
}

int qn_evidence_measured(int capability)
{
    return capability == MEASURED;
}

int qn_evidence_least(int evidence, const struct qn_kernel *kernel,
                      int capability)
{
    const int own = kernel ? qn_evidence(kernel, capability) : evidence;

    return own < evidence ? own : evidence;
}

int qn_evidence_on(const struct qn_kernel *kernel, int gpu, const char **name)
{
    const struct qn_device device = {.major = gpus[gpu].major,
                                     .minor = gpus[gpu].minor};

    *name = gpus[gpu].word;
    return !is_host(kernel) && qn_select_arch(kernel->arch, &device)
               ? qn_evidence(kernel, device.major * 10 + device.minor)
               : QUERN_EVIDENCE_NONE;
}

void qn_evidence_print(const struct qn_kernel *kernel, char *text, size_t size)
{
    size_t used = 0;

    snprintf(text, size, "%s", is_host(kernel) ? "run" : "");
    for (int e = QUERN_EVIDENCE_RUN; e > QUERN_EVIDENCE_NONE; e--) {
        const char *before = e == QUERN_EVIDENCE_RUN ? " on" : " for", *name;
        int count = 0;

        for (int i = 0; i < QN_GPU_COUNT && used < size; i++) {
            if (qn_evidence_on(kernel, i, &name) != e)
                continue;
            if (!count++)
                used += (size_t)snprintf(text + used, size - used, "%s%s%s",
                                         used ? ", " : "", qn_evidence_name(e),
                                         before);
            if (used < size)
                used += (size_t)snprintf(text + used, size - used, " %s", name);
        }
    }
}

void qn_evidence_why(int evidence, int capability, struct qn_text *text)
{
    static const char *const means[QUERN_EVIDENCE_COUNT] = {
        [QUERN_EVIDENCE_COMPILED] = "no result shows each kernel on sm_",
        [QUERN_EVIDENCE_INTERPRETED] = "an interpreter of PTX ran each kernel "
                                       "that did not run on sm_",
        [QUERN_EVIDENCE_RUN] = "the GPU suite ran each kernel on sm_"};

    if (!means[evidence])
        return;
    qn_text_add(text, "evidence %s: %s%d\n", qn_evidence_name(evidence),
                means[evidence], capability);
    if (capability == MEASURED)
        return;
    if (qn_model_reported(capability / 10))
        qn_text_add(text,
                    "the speed of sm_%d is reported by others, not measured; "
                    "quern tune replaces these figures\n",
                    capability);
    else
        qn_text_add(text,
                    "the speed of sm_%d was not measured: all figures but its "
                    "multiprocessors are an H200's\n",
                    capability);
}
