/* SPDX-License-Identifier: Apache-2.0 */
/*
** route.h: lines about the routes of tokens to experts: which rows a layer's
** experts get, in the order of experts, tokens and choices.
*/
#ifndef QUERN_PROBLEM_ROUTE_H
#define QUERN_PROBLEM_ROUTE_H

#include "internal.h"

enum { QN_MAX_TOPK = 32, QN_MAX_PAIRS = 1 << 24, QN_MAX_EXPERTS = 1 << 20 };

struct qn_route {
    int work;  /* enum quern_routing */
    int topk;  /* experts of each token */
    int64_t m; /* tokens; a pair is a token and one of its experts */
    /* of ROUTE */
    int index;   /* type of the indices: QUERN_I32 or QUERN_I64 */
    int groups;  /* experts of this rank, 1 .. QUERN_MAX_GROUPS */
    int experts; /* of all ranks; 0: first + groups */
    int first;   /* the expert that is group 0 */
    /* of PERMUTE and COMBINE */
    int type;        /* QUERN_BF16, QUERN_F16 or QUERN_F32 */
    int probability; /* 1: a factor for each pair */
    int dprob;       /* 1: PERMUTE also makes the factors' gradient */
    int residual;    /* 1: COMBINE adds tokens to the sums */
    int64_t k;       /* features */
};

/* All arrays are in the memory of the workspace; NULL: not made. */
struct qn_route_args {
    const void *index;    /* [m, topk]: outside the window or `experts` itself
                             (dropped): no row; larger ones are errors */
    int *lengths;         /* [G] rows of each group */
    int *starts;          /* [G + 1] their exclusive sums */
    int *gather;          /* [m * topk] row -> token * topk + k */
    int *inverse;         /* [m, topk] its row; -1: none */
    int *count;           /* [1] tokens, only in a layer */
    struct qn_tensor in;  /* PERMUTE: [m, k], COMBINE: [m * topk, k] */
    struct qn_tensor out; /* PERMUTE: [m * topk, k], COMBINE: [m, k] */
    struct qn_tensor residual; /* [m, k] */
    struct qn_tensor rows;     /* [m * topk, k] of dprob */
    const float *probability;  /* [m, topk] */
    float *dprob;              /* [m, topk] in . rows; 0 without a row */
    float *pairs, *numbers;    /* [m, topk], [m * topk]: also moved; or NULL */
    const uint64_t *addresses; /* [m] of COMBINE, only in a layer: addresses of
                                  tokens in place of `out`, 0: none; tokens
                                  without rows are not written. Or NULL */
    void *workspace;           /* as in struct qn_args */
    void *errors;              /* notes bad indices instead; NULL: none */
    int64_t tokens;            /* tokens of this run, at most m */
};

struct qn_route_description {
    struct qn_route_args args; /* without addresses */
    size_t workspace_bytes;    /* for any backend */
};

/* As qn_problem_parse and qn_problem_print. */
int qn_route_parse(const char *text, struct qn_route *route);
int qn_route_print(const struct qn_route *route, char *buffer, size_t size);

/* All rules. QUERN_EINVAL names field and rule. */
int qn_route_check(const struct qn_route *route);

/* The experts of all ranks. */
int qn_route_experts(const struct qn_route *route);

/* As qn_problem_describe. */
int qn_route_needs(const struct qn_route *route,
                   struct qn_route_description *description);

#endif
