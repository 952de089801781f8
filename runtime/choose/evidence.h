/* SPDX-License-Identifier: Apache-2.0 */
/* evidence.h: how it is known that a kernel works on a GPU. */
#pragma once

#include "internal.h"

struct qn_text;

/* enum quern_evidence of the kernel on a GPU of that compute capability, 90
   for 9.0; RUN of the host's, which tests run. */
int qn_evidence(const struct qn_kernel *kernel, int capability);

/* Did the whole suite run on GPUs of that compute capability, and are the
   model's figures theirs? A kernel without `run` is one of many there. */
int qn_evidence_measured(int capability);

/* The lesser of both; a kernel may be NULL. */
int qn_evidence_least(int evidence, const struct qn_kernel *kernel,
                      int capability);

/* A line about a plan with this evidence, and about the model if the speed of
   such a GPU was not measured. */
void qn_evidence_why(int evidence, int capability, struct qn_text *text);

/* The same on each GPU that the kernel's code serves, as "run on sm_90", or
   "run on sm_80, compiled for sm_86 sm_89". */
void qn_evidence_print(const struct qn_kernel *kernel, char *text, size_t size);

/* The evidence on one of QN_GPUS, and its name; NONE: code is for others. */
int qn_evidence_on(const struct qn_kernel *kernel, int gpu, const char **name);
