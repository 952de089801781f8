/* SPDX-License-Identifier: Apache-2.0 */
/* why.h: the launches of a plan, in words. */
#pragma once

#include "choose/select.h"

struct qn_launch;
struct qn_text;
struct qn_plan;

/* A kernel of the problem's variant. */
enum qn_why_state {
    QN_WHY_SERVES,   /* it can run the problem; the best comes first */
    QN_WHY_EXCLUDED, /* a rule of it is broken */
    QN_WHY_NOT_MADE  /* a point of a grid that its spec rejects */
};

struct qn_why_kernel {
    enum qn_why_state state;
    const char *name, *spec;
    const char *reason;               /* NULL if it serves */
    const struct qn_figures *figures; /* NULL unless it serves */
    int linked, tuned;
};

/* An explanation in parts. All but `visit` and `user` are set before the first
   visit. Kernels are not visited if the launches are asked for, nor for
   cublaslt. */
struct qn_why_facts {
    void (*visit)(void *user, const struct qn_why_kernel *kernel);
    void *user;
    int backend; /* enum quern_backend */
    int units;   /* multiprocessors, or threads of the host */
};

/* A launch with its line and its kernels, or if its product has a list each of
   that. The product of `plan` itself has no line. */
void qn_why_launch(const struct qn_plan *plan, const struct qn_launch *launch,
                   const char *indent, struct qn_text *text);
