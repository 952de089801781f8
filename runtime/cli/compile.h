/* SPDX-License-Identifier: Apache-2.0 */
/*
** compile.h: many kernels to cubins, side by side.
*/
#ifndef QN_COMPILE_H
#define QN_COMPILE_H

#include "cli.h"
#include "base/context.h"
#include "device/nvrtc.h"

/* A kernel to compile, and what came of it. */
struct qn_compile_item {
    const struct qn_kernel *kernel;
    char *source;
    struct qn_compiled compiled;
    int code;      /* QUERN_OK, QUERN_ECOMPILE, QUERN_ENOMEM */
    char *message; /* why not */
};

struct qn_compile {
    struct qn_compile_item *items;
    int count;
    double seconds;
};

struct qg_selection;

/*
** Generate and compile the selected kernels with `jobs` threads (0: as many
** as cores), showing the progress. The status is QN_EXIT_FAILED if a kernel
** does not compile or must not be used; each is named with its spec's line.
** Free with qn_compile_free in any case.
*/
int qn_compile_run(const struct qn_options *, struct qg *generator,
                   struct quern_context *ctx, const struct qg_selection *,
                   int jobs, struct qn_compile *);
void qn_compile_free(struct qn_compile *);

#endif
