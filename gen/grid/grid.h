/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h: variants, and the points of their grids. */
#pragma once

#include "statement/spec.h"

/* A point of a grid: the kernel, or why there is none. */
struct qg_point {
    struct qn_kernel kernel;
    struct qn_kernel *row; /* the same in the registry, once that is built */
    const char *reason;    /* of the reject that holds; NULL for a kernel */
    struct qg_params *params;
    uint64_t left_out; /* of the statement's params */
    struct qg_kernels *kernels;
    const struct qg_recipe *recipe;
    const struct qg_scale *scale; /* that rules are of, or NULL */
    int input;                    /* enum qg_input_type */
    int values;                   /* reference to the table of its values */
    const char *source;           /* once it has been asked for */
    size_t length;
    struct qg_point *next;
};

/* A variant: the choices before those of the axes. */
struct qg_variant {
    struct qg_kernels *kernels;
    const struct qg_recipe *recipe;
    const struct qg_layout *layout;
    const struct qg_ragged *ragged;
    const char *op, *epilogue, *arch;
    int d; /* enum quern_type */
    struct qg_factor a, b;
    /* of casts */
    int of;    /* enum quern_of */
    int input; /* enum qg_input_type */
    const char *form;
    int values; /* reference to the table of those that its points share */
};

void qg_grid_expand(struct qg *);
struct qg_point *qg_grid_one(struct qg *, const char *name); /* NULL: none */
/* Among the first `count` sorted points: the first whose name is not before the
   text; the one of a name, which may be rejected, or NULL. */
int qg_sorted_first(const struct qg *, int count, const char *, size_t length);
struct qg_point *qg_sorted_find(const struct qg *, int count, const char *name);
void qg_shipped_mark(struct qg *); /* the kernels that are; notes the others */
void qg_evidence_mark(struct qg *);
/* Sets a product's factors: does the statement make it of the recipe? */
int qg_match_product(struct qg_variant *);
int qg_match_output(const struct qg_variant *); /* this type of D? */
int qg_match_cast(const struct qg_variant *);   /* this cast of the tensor? */
int qg_match_form(const struct qg_variant *);   /* this form of the cast? */
/* May points of the variant have the name; has this one? */
int qg_name_begins(const struct qg_variant *, const char *name);
int qg_name_is(const struct qg_variant *, const int *choice, const char *);
/* The symbol of a point; NULL and noted if it is too long. */
const char *qg_name_make(struct qg *, const struct qg_variant *, const int *);
int qg_variant_casts(const struct qg_variant *); /* a cast, no product? */
/* The type of a cast's input, enum quern_type; none for a rowwise tensor. */
int qg_variant_input(const struct qg_variant *);
/* The tensor (enum quern_of) whose copies D leaves as; -1: it does not. */
int qg_variant_result(const struct qg_variant *);
/* A reference to the table of the values that all points of a variant have. */
int qg_variant_values(struct qg *, const struct qg_variant *);
/* A point of a variant: choice[i] is its i-th axis. NULL: all would fail. */
struct qg_point *qg_point_make(struct qg *, const struct qg_variant *,
                               const int *choice);
int qg_describe_variant(struct qg *, const struct qg_kernels *,
                        struct qn_kernel *);
int qg_describe_fill(struct qg *, const struct qg_kernels *,
                     struct qn_kernel *);
