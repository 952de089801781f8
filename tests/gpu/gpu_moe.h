/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_moe.h: a layer's line of the suite and what became of it. */

#ifndef GPU_MOE_H
#define GPU_MOE_H

#include "gpu.h"

#include "oracle/moe_job.h"

struct layer_line {
    char text[256];
    int draw;
    int late;         /* it was not run: time was over */
    char result[700]; /* the error, or "" */
};

/* The line has this result, unless it has another one already. */
void layer_fail(struct layer_line *, const char *what, const char *more);

/* The same if the code is an error, with its message. */
void layer_must(struct layer_line *, int code, const char *what);

/* A layer of the text that is ready to run; 0 if it, or the line, failed. */
int layer_begin(struct layer_line *, struct qn_moe_job *, const char *text,
                int backend);
void layer_run(struct layer_line *, struct qn_moe_job *);

/* Layers that have some of the same tokens. */
void layer_invariant(struct layer_line *);

#endif
