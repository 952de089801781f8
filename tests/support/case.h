/* SPDX-License-Identifier: Apache-2.0 */
/*
** case.h: one grouped problem with its sizes, its data and its expected result.
**
** Shared by the host tests and the GPU suite. The fields of a case are set
** first, the groups placed (qt_case_layout), the data drawn (qt_data_make), the
** float64 product computed (qt_data_reference); any D that a backend wrote can
** then be compared with it (qt_compare).
**
** Everything that no kernel may use is NaN: rows outside every group, gaps
** between rows and between matrices, and D before the run, unless it is added
** to. So a wrong address shows up as a NaN in D, and an element that was not
** written as the poison that was there.
**
** For a recipe that scales its operands these are quantized tensors, made by
** the host backend from values of the same kind and decoded from the
** definitions only (runtime/oracle/decode.c); the rest of them is poison.
*/
#ifndef QT_CASE_H
#define QT_CASE_H

#include <stddef.h>
#include <stdint.h>

#include "internal.h"

struct qn_recipe;

/* How the caller says where groups begin. */
enum qt_form {
    QT_FIRST,   /* lengths only: groups back to back */
    QT_OFFSETS, /* offsets only: the first group need not start at row 0 */
    QT_BOTH,    /* both, with gaps between the groups */
    QT_FORMS
};

/*
** Normal values test the rounding. Small integers make every product and every
** partial sum exact, so that a result must be right to the bit for any order of
** the sums. Extreme are normal ones whose rows are zero or are many powers of
** two apart: for recipes with scales. Values for scales of blocks are times
** qn_random_factor in each group, small integers at least times 1/4.
*/
enum qt_fill { QT_NORMAL, QT_INTEGER, QT_EXTREME };

enum qt_role { QT_A, QT_B, QT_C, QT_D, QT_ROLES };

#define QT_POISON 0xFF /* a byte; repeated, a NaN in BF16, F16 and F32 */

/* The epilogue, and the source of C. */
struct qt_epilogue {
    const char *name;
    int alpha, beta; /* of the problem */
    int each;        /* a factor for each group, not one for all */
    int apart;       /* C is not D */
};
extern const struct qt_epilogue qt_epilogues[];
extern const int qt_nepilogues;

struct qt_case {
    const char *what;               /* the name in messages */
    int op;                         /* enum quern_op */
    int type;                       /* of A and B: QUERN_BF16 or QUERN_F16; of
                                       a recipe's without scales that of x */
    const struct qn_recipe *recipe; /* that scales A or B; NULL: by the type */
    int fp32_sums; /* for any tensor cores of the recipe: the host's */
    int d_type;    /* of C and D */
    int a_major, b_major, ragged;
    const struct qt_epilogue *epilogue; /* NULL: the first of the table */
    int align;                          /* of the problem; 0: the usual */
    int dequantize;                     /* enum quern_dequantize */
    int outside;   /* 1: outside=zero, if the groups split D */
    int unread;    /* 1: C is NaN where beta is 0 */
    int unwritten; /* 1: scales of an empty group's own are NaN; passes that
                      dequantize read them */
    int groups;
    int64_t m, n, k;
    int sizes_type;         /* QUERN_I32 or QUERN_I64 */
    int form;               /* enum qt_form */
    int fill;               /* enum qt_fill */
    int alike;              /* 1: blocks of quantized ones of one magnitude */
    int64_t pad[QT_ROLES];  /* elements between two rows */
    int64_t gap[QT_ROLES];  /* elements between two matrices */
    int pointers[QT_ROLES]; /* matrices in another order, by address */
    uint64_t seed;
    int64_t start[QUERN_MAX_GROUPS + 1]; /* [groups]: where the last one ends */
    int64_t length[QUERN_MAX_GROUPS];    /* along the ragged axis */
};

/* Lengths of groups that have broken kernels before. */
struct qt_pattern {
    const char *name;
    int groups;
    int count; /* of the lengths, repeated for more groups */
    int64_t length[12];
    int64_t random; /* where count is 0: uniform in [0, random] */
};
extern const struct qt_pattern qt_patterns[];
extern const int qt_npatterns;

/* The layout of an operand in its buffer. */
struct qt_place {
    int type, bytes;       /* of an element */
    int grouped;           /* a matrix for each group */
    int inner_ragged;      /* the contiguous axis is the ragged one */
    int swapped;           /* its first axis, m or n, is the contiguous one */
    int64_t rows, columns; /* of a matrix as it is */
    int64_t stride;        /* elements between the starts of two rows */
    int64_t pitch;         /* between two matrices; 0 if not grouped */
    int64_t elements;      /* of the whole buffer */
};

struct qt_data {
    void *operand[QT_ROLES]; /* A, B, C (NULL if it is D), D before the run */
    void *first;             /* [groups] of sizes_type, or NULL */
    void *offsets;           /* [groups + 1] of sizes_type, or NULL */
    size_t bytes[QT_ROLES], first_bytes, offsets_bytes;
    float alpha[QUERN_MAX_GROUPS], beta[QUERN_MAX_GROUPS];
    int scalars; /* of each: 1, or as many as groups */
    double *ref; /* for each element of D; NaN where none may be written */
    double *sum; /* of magnitudes, the same; NULL: one bound for all */
    /* of scaled operands, NULL otherwise */
    void *numbers[2]; /* bf16, before */
    void *sf[2], *global[2];
    size_t sf_bytes[2], global_bytes[2];
    double *values[2];                  /* decoded, group by group */
    int64_t at[2][QUERN_MAX_GROUPS];    /* where each group's begin */
    int64_t depth[2][QUERN_MAX_GROUPS]; /* and the length of their rows */
};

/* ORDER: splitmix64, so that a seed gives the same data on any machine. */
uint64_t qt_random(uint64_t *state);
int64_t qt_random_below(uint64_t *state, int64_t bound);

/* To nearest even; a NaN stays one. And back, exactly. */
uint16_t qt_bf16(float value);
uint16_t qt_f16(float value);
float qt_from_bf16(uint16_t bits);
float qt_from_f16(uint16_t bits);

/* An element of a buffer of QUERN_BF16, QUERN_F16 or QUERN_F32. */
float qt_load(const void *data, int type, int64_t index);
void qt_store(void *data, int type, int64_t index, float value);

/* The ragged axis, or NULL; any axis by its enum. */
int64_t *qt_axis(struct qt_case *, int axis);
int64_t qt_length(const struct qt_case *, int axis); /* a ragged one's total */
int64_t qt_extent(const struct qt_case *, int axis, int group);

/* Is A or B of the case a quantized tensor? */
int qt_scaled(const struct qt_case *, int role);

/* Lay out the groups of a pattern; sets groups, start, length and the length
   of the ragged axis. */
void qt_case_layout(struct qt_case *, const struct qt_pattern *);

/* The layout and ragged axis of an op in training; sets op, a_major, ... */
void qt_case_op(struct qt_case *, int op);

/* The problem as text. */
void qt_case_text(const struct qt_case *, char *text, size_t size);

const struct qt_epilogue *qt_case_epilogue(const struct qt_case *);

void qt_place_of(const struct qt_case *, int role, struct qt_place *);

/* The element of group g: (m, k) of A, (n, k) of B, (m, n) of C and D. */
int64_t qt_place_at(const struct qt_case *, const struct qt_place *, int role,
                    int group, int64_t x, int64_t y);

/* 0, or -1 when memory ran out; `data` may be freed in both cases. */
int qt_data_make(const struct qt_case *, struct qt_data *data);
int qt_data_reference(const struct qt_case *, struct qt_data *data,
                      int threads);
void qt_data_free(struct qt_data *);

/* One random number. */
float qt_draw(uint64_t *state, int fill);

/*
** The copies of a scaled operand, for the sizes of the case: made anew where
** there are some. The first call draws values from `state`; NULL: those of the
** last call again. 0, or -1. Needs qt_context.
*/
extern struct quern_context *qt_context;
int qt_copies_make(const struct qt_case *, struct qt_data *data, int role,
                   uint64_t *state);

/* Write starts and lengths as the caller's arrays; `first` or `offsets` may be
   NULL. QT_OFFSETS and QT_BOTH write groups + 1 offsets. */
void qt_sizes_write(const struct qt_case *, void *first, void *offsets);

/* Set one element of such an array. */
void qt_sizes_set(void *array, int sizes_type, int index, int64_t value);

struct qt_verdict {
    double error;   /* |d - ref| / |ref|; NaN fails */
    double rounded; /* the same for the reference, rounded once */
    char text[256]; /* "" if d is right, else the first thing wrong */
};

/* 1 if all of D is as promised, outside of the groups, too. */
int qt_compare(const struct qt_case *, const struct qt_data *data,
               const void *d, struct qt_verdict *verdict);

/* The buffers of a run: host memory, or addresses of a device. */
struct qt_addresses {
    void *operand[QT_ROLES];
    void *const *pointers[QT_ROLES]; /* arrays of [groups] addresses */
    void *sf[2], *global[2];         /* of scaled A and B */
    const void *first, *offsets;
    const float *alpha, *beta;
    void *workspace;
};

/* The arguments of a run; `args` comes from qn_problem_describe. */
void qt_args_set(const struct qt_case *, const struct qt_data *,
                 const struct qt_addresses *, struct qn_args *args);

/* The same for quern_run. */
void qt_args_give(const struct qt_case *, const struct qt_data *,
                  const struct qt_addresses *, struct quern_args *args);

/* The addresses of the matrices of an operand whose buffer is at `data`. */
void qt_pointers_write(const struct qt_case *, int role, void *data,
                       void **pointers);

/* --------------------------------------------------------------- bad sizes */

/* One wrong entry in otherwise right sizes, and the report expected. */
struct qt_bad_size {
    const char *name;
    int form;
    int in_offsets; /* the array with the wrong entry: offsets, else first */
    int index;
    int64_t value;
    int past_end; /* value counts from the length of the ragged axis */
    int only_i64; /* the value does not fit into int32 */
    int group;    /* the first group that breaks a rule */
};
extern const struct qt_bad_size qt_bad_sizes[];
extern const int qt_nbad_sizes;

/* The case that the table is written for: 6 groups of 16 rows of 120. The
   types, the layout and the ragged axis must be set. */
void qt_bad_size_case(struct qt_case *, const struct qt_bad_size *,
                      int sizes_type);

/* Put the invalid size into arrays that qt_sizes_write filled. */
void qt_bad_size_apply(const struct qt_case *, const struct qt_bad_size *,
                       void *first, void *offsets);

#endif
