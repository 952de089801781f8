/* SPDX-License-Identifier: Apache-2.0 */
/*
** arch.h: the architectures that kernels are compiled for.
*/
#ifndef QN_ARCH_H
#define QN_ARCH_H

#include "cli.h"
#include "internal.h"

enum { QN_ARCH_MOST = 16 };

/* One that was asked for, and whose code serves it. */
struct qn_arch {
    char asked[16];   /* "sm_86" */
    const char *code; /* "sm_80", a kernel's; NULL: nothing does */
};

struct qn_archs {
    struct qn_arch at[QN_ARCH_MOST];
    int count;
    char list[256]; /* the codes, each once, with commas */
};

/*
** Find for each architecture in `wanted` (with commas) the kernels that its
** GPUs can run: its own, else the closest of the same major version. Those
** that nothing serves are told on stderr; QN_EXIT_USAGE if there are no others.
*/
int qn_arch_choose(const struct qn_options *, const struct quern_registry *,
                   const char *wanted, struct qn_archs *);

#endif
