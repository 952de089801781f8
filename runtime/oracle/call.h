/* SPDX-License-Identifier: Apache-2.0 */
/*
** call.h: a line with data, ready to run through quern.h: its plan, memory for
** each operand of the plan's table, and the arguments of its runs.
*/
#pragma once

#include "api/api.h"
#include "oracle/gpu.h"
#include "oracle/memory.h"
#include "oracle/message.h"
#include "oracle/timing.h"

/* All zero is one that was not begun; qn_call_free takes any. */
struct qn_call {
    struct quern_context *ctx; /* the caller's */
    struct quern_plan *plan;
    struct quern_plan_info info;
    struct qn_gpu *gpu; /* NULL: the host backend */
    int64_t rows;       /* the line's, along its ragged axis */
    int phases;         /* bits of enum quern_phase that the line has */
    int alike;          /* 1: qn_call_draw gives values of one magnitude */
    struct quern_args args;
    /* by enum quern_arg: contents before a run, without gaps between rows
       (NULL: poison), and the memory that runs use */
    void *host[QUERN_ARGS_COUNT];
    struct qn_memory memory[QUERN_ARGS_COUNT];
    struct qn_memory pointers[QUERN_ARGS_COUNT]; /* addresses of matrices */
    char lent[QUERN_ARGS_COUNT]; /* 1: host and memory are another call's */
};

/* A fill's answer: poison, to show elements that no run writes. */
enum { QN_CALL_POISON = -1 };

/* The contents before a run. */
struct qn_call_data {
    const int64_t *sizes; /* [groups] their lengths */
    int groups;
    int on_host;  /* 1: runs take them as args.host_sizes */
    int pointers; /* 1: matrices by their addresses, where the table allows */
    /* Write an operand's bytes. QN_CALL_POISON, or codes of the library. */
    int (*fill)(void *user, const struct quern_operand *, void *to,
                size_t bytes);
    void *user;
};

/* The options of a command's plans by a backend. */
struct quern_plan_options qn_call_options(const struct qn_options *,
                                          int backend);

/* Plan a line, and open the GPU if the plan is for one. Codes of the library,
   with their message; so do all below. */
int qn_call_plan(struct qn_call *, struct quern_context *,
                 const struct qn_line *, const struct quern_plan_options *);

/* An operand of the plan; NULL: it has none. */
const struct quern_operand *qn_call_operand(const struct qn_call *, int arg);

/* Another call's operand instead of memory of its own. Before qn_call_make. */
void qn_call_lend(struct qn_call *, int arg, const struct qn_call *from,
                  int from_arg);

/* Memory for all operands that are not lent, with the contents of `data`, and
   the arguments. A stride and scalars that args have already are kept. */
int qn_call_make(struct qn_call *, const struct qn_call_data *data);

/* For a fill: nearly normal values of that deviation, and in an operand with
   rows the magnitudes of qn_random_fill. QUERN_EINVAL for a type without. */
int qn_call_draw(const struct qn_call *, const struct quern_operand *, void *to,
                 size_t bytes, uint64_t seed, float scale);

/* An operand's contents that its host memory has, or poison. */
int qn_call_put(struct qn_call *, int arg);

/* The same of all that runs write, of memory that is no operand, too: operands
   have its addresses. */
int qn_call_reset(struct qn_call *);
void qn_call_free(struct qn_call *);

/* Queue a run: of an MLP forward and, if it has one, backward. */
int qn_call_queue(struct qn_call *);

/* Queue one, of an MLP after its weights; wait; quern_check. */
int qn_call_run(struct qn_call *);
int qn_call_check(const struct qn_call *);

/* Plan a line for the backend, make its memory, and run it. */
int qn_call_line(struct qn_call *, struct quern_context *,
                 const struct qn_line *, int backend,
                 const struct qn_call_data *);

/* How long qn_call_queue takes: the median of `runs` (0: about a second's), or
   one run, of an MLP after its weights and before any other. */
int qn_call_measure(struct qn_call *, int runs, struct qn_job_time *);
int qn_call_once(struct qn_call *, struct qn_job_time *);

/* Sets `*intact` to 1 if nothing was written around any memory. */
int qn_call_guards(const struct qn_call *, int *intact);
