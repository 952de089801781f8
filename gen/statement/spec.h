/* SPDX-License-Identifier: Apache-2.0 */
/* spec.h: the declarations of specs: recipes, layouts, ragged axes, kernels. */
#pragma once

#include "qg.h"

struct qg_names {
    int count;
    const char *at[QG_MAX_LIST];
};

struct qg_types {
    int count;
    int at[QG_MAX_LIST]; /* enum quern_type */
};

/* A value of an axis: a string, or 1 to 4 integers. */
struct qg_value {
    const char *string;
    int count;
    int tuple; /* written as a table */
    int at[QG_MAX_TUPLE];
};

/* A use of one of the language's words, e.g. `recipe "bf16"`. */
struct qg_word {
    struct qg_location location;
    const struct qg_word_kind *kind;
    const char *name;
    int done; /* it got its table or function */
    int used; /* the value that it gave was put into a statement */
    struct qg_word *next;
    const void *declared;   /* the statement, once it is kept */
    struct qg_word *before; /* that declared the one before */
};

/* How a matrix of scales is in memory. */
struct qg_storage {
    struct qg_location location;
    const char *name;
    const char *order;  /* "rows", "columns", "tiles" */
    const char *groups; /* "together", "apart" */
    struct {
        int rows, columns;
    } pad; /* to multiples of */
};

/* The values that share a scale. */
struct qg_sharing {
    int span; /* enum qn_span */
    struct {
        int m, n, k; /* 0: not given */
    } per;
};

/* The results of a rule for one tensor and one type of input. */
struct qg_rule_trace {
    const struct qg_node *stored, *factor;
    int given; /* the factor is the rule's own, and none of an e8m0's */
};

/* The types of quantized tensors; the last one is a rowwise tensor. */
#define QG_IN(name, ...) QG_IN_##name,
enum qg_input_type { QUERN_WIDE_TYPES(QG_IN) QG_IN_COPY, QG_INPUTS };

enum { QG_STORED = -1 }; /* a zero point next to each scale */

/* The scales of one of a layer's tensors; kind 0 stands for none. */
struct qg_scale {
    struct qg_location location;
    int blocked, type;
    struct qg_sharing block;
    const char *storage, *rounding;
    const char *copies;   /* "both", "rowwise": dgrad reads that one, too */
    int rule, global;     /* references to Lua functions, 0: none */
    int as;               /* enum quern_type that holds values, 0: any */
    int zero;             /* the code that stands for 0, or QG_STORED */
    const char *hadamard; /* 16 of + and -; NULL: none */
    struct {
        int history;
        const char *amax;
    } delayed; /* history 0: none */
    struct qg_word *word;
    /* derived values, once all files are read */
    const struct qg_storage *stored;
    int by_role; /* given only for this tensor */
    int element; /* enum quern_type */
    struct qg_rule_trace rules[QG_INPUTS], globals[QG_INPUTS];
    int by_input;      /* rules differ by the type of the input */
    int stored_powers; /* stored scales are powers of two that e8m0 has */
};

struct qg_recipe {
    struct qg_location location;
    const char *name;
    const char *doc;
    struct {
        int x, w, dy; /* dy 0: the recipe is for fprop only */
    } element;
    struct qg_scale scale[QN_TENSORS]; /* by enum quern_of */
    int accum;
    int promote; /* values of k; 0: never */
    struct qg_types d;
    struct qg_recipe *next;
};

struct qg_layout {
    const char *name;
    const char *a, *b;
};

struct qg_ragged {
    const char *name;
    const char *a, *b, *d;
};

enum qg_item_kind { QG_AXIS, QG_DERIVE, QG_REQUIRES, QG_REJECT, QG_WITHOUT };

/* One entry of a kernels statement's list. */
struct qg_item {
    enum qg_item_kind kind;
    struct qg_word *word;
    /* axis, derive; requires: the expression; without: parameters */
    const char *name;
    const char *reason; /* requires, reject */
    int function;       /* derive, reject, without: reference */
    int constant;       /* derive: the reference is to the value itself */
    struct qg_value values[QG_MAX_VALUES];
    int count;
};

/* Parameters that some kernels of a statement have, in order. */
struct qg_params {
    uint64_t left_out;    /* bit i: the statement's i-th one */
    int count, list;      /* list: reference to the templates' params */
    int number;           /* in a registry's text, 0: not written */
    unsigned char *bytes; /* enum qn_param */
    struct qg_params *next;
};

struct qg_kernels {
    struct qg_location location;
    const char *name; /* an extension has that of its grid */
    int extends;      /* kernels of another statement, which has the name */
    struct qg_names op, layout, ragged, epilogue, arch;
    struct qg_names of, input, form; /* of casts */
    struct qg_types element;
    struct qg_names scale;
    const char *template, *recipe;
    struct qg_names params;
    struct qg_types d;
    const struct qg_item *items[64];
    int count;
    /* shared by all its kernels */
    int template_file; /* index in qg.files */
    struct qg_params *param_lists;
    const struct qn_requires *rules;
    int nrules;
    int number; /* of its rules in a registry's text, 0: not written */
    struct qg_kernels *next;
};

struct qg_shipped {
    struct qg_location location;
    const char *name;
    struct qg_shipped *next;
};

struct qg_evidence {
    const char *name; /* of a kernel, or with '*' at its end of several */
    unsigned ran;     /* on this of QN_GPUS; 0: they were interpreted */
    struct qg_evidence *next;
};

/* ---------------------------------------------------------------- extend.c */

void qg_extend_apply(struct qg *); /* statements for q->extensions */

/* ---------------------------------------------------------------- recipe.c */

/* The part of a recipe's tensor that a product reads. */
struct qg_factor {
    int of;                       /* enum quern_of */
    const char *copy;             /* "row", "column" */
    int element;                  /* enum quern_type */
    const struct qg_scale *scale; /* NULL: values as they are */
};

/* Is there only a rowwise tensor of w, which dgrad reads, too? */
int qg_recipe_packed(const struct qg_scale *);

/* Has no other tensor scales? Every product then multiplies this one with one
   without any, so that its own are never factors of sums. */
int qg_recipe_alone(const struct qg_recipe *, int of);

/* A and B of one of a recipe's products. */
void qg_recipe_factors(const struct qg_recipe *, const char *op,
                       struct qg_factor *a, struct qg_factor *b);
