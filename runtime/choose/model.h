/* SPDX-License-Identifier: Apache-2.0 */
/* model.h: the expected time of a kernel for a problem. */
#pragma once

#include "internal.h"

struct qn_device;
struct qn_session;
struct qn_choice;
struct qn_text;
struct quern_context;
struct qn_demand;
struct qn_figures;

/* The figures of a kernel that serves the problem: of the whole launch, or of
   as many as the problem's parts take. */
void qn_model_estimate(const struct qn_demand *demand,
                       const struct qn_kernel *kernel,
                       struct qn_figures *figures);

/* model_reported.c: rates that others report for GPUs of a major version; NULL:
   there are none, and the model takes an H200's. */
struct qn_model_reported {
    int major, sync;  /* 1: of mma.sync, too */
    double products;  /* of BF16, in a cycle of a multiprocessor */
    double shares[3]; /* of these, of twice and of four times as many, that
                         kernels reach: of 16, 8 and 4 bits */
    double port;      /* bytes a cycle into one; 0, here and below: as usual */
    double shared;    /* bytes a cycle that its tensor cores read */
    double start;     /* cycles before a tile's first product */
    double small;     /* groups of fewer rows get only so much of */
    double small_memory; /* the memory's rate */
};
const struct qn_model_reported *qn_model_reported(int major);

/* model_cast.c: the chip, as its driver tells; NULL: an H200. */

/* Bytes that its memory moves in a cycle of the highest clock, and that rate if
   an H200's is 1. */
double qn_model_memory(const struct qn_device *device);
double qn_model_memory_share(const struct qn_device *device);

/* Bytes that its L2 gives to all multiprocessors in a cycle, and how many it
   holds. */
double qn_model_l2(const struct qn_device *device);
double qn_model_l2_bytes(const struct qn_device *device);

/* Cycles of casts that read and write so many bytes in so many launches. */
double qn_model_cast(const struct qn_device *device, double bytes,
                     int launches);

/* The time of kernels that dequantize codes next to their products. */

/* Is it one of them? */
int qn_model_dequantizes(const struct qn_kernel *kernel);

/* One that makes FP8 of codes next to FP8? */
int qn_model_rebases(const struct qn_kernel *kernel);

/* And one for few tokens, whose products are mma.sync's? */
int qn_model_few_tokens(const struct qn_kernel *kernel);

/* Rows of A that a tile multiplies in the mean, of groups of this length. */
double qn_model_dequantize_rows(const struct qn_kernel *kernel, double length);

/* So many waves as time: more where CTAs that share a multiprocessor have few
   tiles, or unequal numbers of them. */
double qn_model_dequantize_waves(const struct qn_kernel *kernel, double waves);

/* Is such a group one tile, however uneven they are? */
int qn_model_dequantize_whole(const struct qn_kernel *kernel, double length);

/* Cycles for k steps of a tile of so many rows, whose products take
   `math` without it. */
double qn_model_dequantize_cycles(const struct qn_demand *demand,
                                  const struct qn_kernel *kernel, double rows,
                                  double k, double math);

/* A dgrad that goes back through an activation, compared with a plain
   product and a cast. */

/* The figures for it, and for a plain product with a cast after it. */
struct qn_gradient_figures {
    int served; /* a kernel goes back through the activation */
    int better; /* and takes less time; without a GPU always */
    double
        cycles; /* of that one, and of launches that add sums up; 0: no GPU */
    double product, cast; /* of the plain product, and of the cast's launches */
};

/* Compare both on the session's machine: `plain` is the problem without its
   activation. */
int qn_gradient_compare(const struct qn_session *session,
                        const struct qn_problem *problem,
                        const struct qn_problem *plain,
                        struct qn_gradient_figures *figures);

/* fuse_model.c: the cost of quantizing A in a product or before it. */

/* Cycles that a tile of a kernel with quantize=mainloop takes at least, and
   bytes that one copies of each value of A. */
double qn_fuse_tile(const struct qn_kernel *kernel, double k);
double qn_fuse_bytes(const struct qn_kernel *kernel);

/* The launch that makes A, added to the cycles of a launch that are known.
   Nothing for other problems. */
void qn_fuse_estimate(const struct qn_demand *demand,
                      const struct qn_kernel *kernel,
                      struct qn_figures *figures);

/* Say where the best kernel's A is quantized, and at which estimated cost. */
void qn_fuse_why(const struct qn_problem *problem, const struct qn_choice *best,
                 struct qn_text *text);

/* The epilogues that no kernel fuses, and the cost of a launch of their own. */

/* Does the problem have a bias or an activation that, by its rules and the
   kernels that there are, some GPU has no kernel for? Descriptions then state
   the workspace of an epilogue's own launch. */
int qn_epilogue_apart(struct quern_context *ctx,
                      const struct qn_problem *problem,
                      const struct qn_recipe *recipe);

/* The estimated cycles of both plans; 0: there is none. */
struct qn_epilogue_choice {
    double apart;      /* the product's and the epilogue's launches */
    double bytes;      /* moved by the epilogue's */
    double dequantize; /* of operands dequantized for a kernel that fuses */
};

/* Is `fused` to be one launch? It is not if the kernels of a plain product next
   to packed weights, which may have another order of sums, take less time with
   `launches` after them that move so many bytes. One order of sums for all
   counts of rows has one launch always. QUERN_ENOMEM, QUERN_EINVAL. */
int qn_epilogue_pays(const struct qn_session *session,
                     const struct qn_problem *fused,
                     const struct qn_problem *plain, double bytes, int launches,
                     int *pays);

/* The same for the session's problem and the epilogue of its sums in fp32. */
int qn_epilogue_fuses(const struct qn_session *session, int *fuses);

/* For a session's problem that no kernel serves. QUERN_ENOMEM, QUERN_EINVAL. */
int qn_epilogue_choose(const struct qn_session *session,
                       struct qn_epilogue_choice *choice);

/* Is the plan of dequantized operands the better one, or the only one? */
int qn_epilogue_dequantizes(const struct qn_epilogue_choice *choice);
