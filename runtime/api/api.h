/* SPDX-License-Identifier: Apache-2.0 */
/* api.h: lines, and their operands by enum quern_arg. */
#pragma once

#include "internal.h"
#include "problem/moe.h"
#include "problem/problem.h"

#include <pthread.h>

/* A line, read. */
struct qn_line {
    int kind; /* enum qn_line_kind */
    union {
        struct qn_problem product;
        struct qn_quantization cast;
        struct qn_mlp mlp; /* of a layer, too, whose first member is one */
        struct qn_moe moe;
        struct qn_route route;
    } of;
};

/* Is it of an MLP or a layer, which have all phases, and arguments in
   common? */
int qn_api_has_mlp(int kind);

/* Everything that runs need; args, which come first, but for the addresses. */
union qn_needs {
    struct qn_description product;
    struct qn_quantize_description cast;
    struct qn_mlp_description mlp;
    struct qn_route_description route;
};

/* How an array is given to the library's parts. */
enum qn_slot_form {
    QN_SLOT_TENSOR, /* struct qn_tensor */
    QN_SLOT_SF,     /* its scale factors */
    QN_SLOT_GLOBAL, /* those of the second level */
    QN_SLOT_ARRAY   /* an address */
};

struct qn_slot {
    int arg; /* enum quern_arg */
    enum qn_slot_form form;
    int at[QN_LINE_KINDS]; /* offset in the arguments; -1: the line has none */
};

/* The addresses `data` and `pointers` of a struct quern_buffer. */
typedef uintptr_t qn_pair __attribute__((vector_size(2 * sizeof(uintptr_t))));

/* The place of an operand's address in union qn_given, if nothing else is given
   of it. */
struct qn_place {
    int arg;
    int at;          /* offset; -1: see give_sizes */
    int has_rows;    /* their number goes there, too */
    int can_be_null; /* in all phases */
    uintptr_t low;   /* bits that must be zero */
};

enum { QN_SLOTS = 64 };
extern const struct qn_slot qn_api_slots[];
extern const int qn_api_slot_count;

/* An operand's array in a kind of line; NULL for sizes that it reads. */
const struct qn_slot *qn_api_slot(int arg, int kind);

/* The place of an operand in runs of a kind of line. */
struct qn_place qn_api_place(const struct quern_operand *o,
                             const struct qn_slot *slot, int kind);

/* The word of enum quern_arg. */
const char *qn_api_name(int arg);

/* Read a line of any kind. QUERN_EINVAL. */
int qn_api_line(struct quern_context *ctx, const char *text,
                struct qn_line *line);

/* Its length along the ragged axis, for which `rows` stands; NULL: nothing is
   ragged. */
int64_t *qn_api_rows(struct qn_line *line);

struct qn_why_facts;

/* quern_why, which also tells `facts` of a product, unless it is NULL. */
int qn_api_why(struct quern_context *ctx, const char *line,
               const struct quern_plan_options *options,
               struct qn_why_facts *facts, char **text);

/* Write it as qn_problem_print does. */
int qn_api_print(const struct qn_line *line, char *buffer, size_t size);

/* The requirements of its runs. QUERN_EINVAL. */
int qn_api_needs(struct quern_context *ctx, const struct qn_line *line,
                 union qn_needs *needs);

/* The operands of a line: at most QN_SLOTS of them. QUERN_EINVAL. */
int qn_api_table(struct quern_context *ctx, const struct qn_line *line,
                 struct quern_operand *table, int *count);

/* A size that a caller set; QUERN_EINVAL names the struct and its macro. */
int qn_api_size(const char *what, size_t given, size_t known,
                const char *macro);

struct quern_plan {
    struct quern_context *ctx;
    struct qn_line line;
    union qn_needs needs;
    union {
        struct qn_plan *product;
        struct qn_quantize_plan *cast;
        struct qn_mlp_plan *mlp;
        struct qn_moe_plan *moe;
        struct qn_route_plan *route;
    } of;
    struct quern_operand operands[QN_SLOTS];
    const struct qn_slot *slots[QN_SLOTS]; /* of these; NULL: sizes */
    struct qn_place places[QN_SLOTS];
    int count;
    qn_pair unknown[QUERN_ARGS_COUNT]; /* all bits: no operand of the plan */
    int64_t rows;                      /* -1: nothing is ragged */
    int rounded;             /* the rows are more than the caller's line said */
    struct quern_plan *next; /* of the context's plans */
    char *key;               /* of these; NULL: the caller's own */
};

/* Options with the defaults. QUERN_EINVAL. */
int qn_api_options(const struct quern_plan_options *given,
                   struct quern_plan_options *options);

/* A plan of a line, on the device of the options; and freed, the code that owns
   it. Errors of quern_plan_create. */
int qn_api_make(struct quern_context *ctx, const struct qn_line *line,
                const struct quern_plan_options *options,
                struct quern_plan **plan);
void qn_api_free(struct quern_plan *plan);

/* Free the plans that the context keeps. */
void qn_api_forget(struct quern_context *ctx);

/* The arguments of a run, for the library's parts. */
union qn_given {
    struct qn_args product;
    struct qn_quantize_args cast;
    struct qn_mlp_args mlp;
    struct qn_route_args route;
};

/* QUERN_EINVAL names the operand and the rule. */
int qn_api_given(const struct quern_plan *plan, const struct quern_args *args,
                 union qn_given *given);
