/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h: the interface of the test and a kernel's twin. */
#pragma once

#include "internal.h"

#include <stdint.h>

enum twin_role { TWIN_A, TWIN_B, TWIN_D, TWIN_P, TWIN_ROLES };
enum { TWIN_BASE_A = 7, TWIN_BASE_B = 9 }; /* of values as f16 */

/* Those of the runtime's maps, enum qn_map_kind.         COUPLED: map kinds */
enum twin_kind {
    TWIN_PLAIN,
    TWIN_RAGGED,
    TWIN_POINTER,
    TWIN_SCALES,
    TWIN_TAIL,
    TWIN_SF_TAIL,
    TWIN_NUMBERS
};

/* Tokens of merged products are numbered on and on: those of part i from i
   times this many on. */
enum { TWIN_APART = 1 << 24 };

/* A tensor map as the runtime lays it out; the kernels' tensor_map. */
struct twin_map {
    int role, kind;
    int rank;      /* 0: the launch has no such map */
    uint64_t base; /* an address; nothing is there */
    uint64_t dims[4], strides[4];
    int box[2];
    int part; /* of a plain map of merged products */
};

/* One of the merged products: where its operands and groups are. */
struct twin_part {
    uint64_t base[2];           /* of A and B */
    int64_t rows;               /* of tokens, in memory */
    const int *starts, *lengths; /* of the groups, as in struct twin_launch */
};

/* How an operand is in memory, by the sizes of the launch. */
struct twin_operand {
    uint64_t base;            /* 0: the matrices are apart */
    const uint64_t *pointers; /* [groups] their addresses, or NULL */
    uint64_t pitch;           /* bytes from one row to the next */
    int64_t rows;             /* of one matrix, or of all groups */
    int bytes, values;        /* of an element of its map, and how many values that is */
    int k_major;
};

/* C is in real memory, since the kernel's own text reads it. */
struct twin_c {
    const void *data;
    const void *const *pointers;
    long long stride, group_stride; /* elements */
    const float *alpha, *beta;      /* as the kernel gets them */
    int step;
};

/* The values that share a scale of A or B: so many rows and steps of k, of one
   group or of all. */
struct twin_scaling {
    int rows, k; /* 0: no scales */
    int each;    /* each group has its own */
};

/* The scale at a position, counted in the group by the values that share one.
   Whole numbers, so that sums of products are exact; neighbours differ. */
static inline float twin_scale(int role, int group, int line, int block)
{
    return (float)(1 + (3 * role + 7 * group + 5 * line + 11 * block) % 31);
}

/* The same of blocks whose scales are dequantized with their values. */
struct twin_blocks {
    int rows, k; /* 0: none */
};

/* Their codes, none of them NaN or 0. */
static inline int twin_scale_code(int role, int group, int line, int block)
{
    return 1 + (37 * role + 29 * group + 13 * line + 7 * block) % 113;
}

/* The result of an activation for a product, and its columns; 0: there is
   none. That of two operands is their sum with the second one doubled here. */
struct twin_follow {
    int operands, interleave;
    const float *bias, *probability; /* [groups, n], [m] */
    int saved;                       /* P is wanted */
};

struct twin_launch {
    const void *const *values; /* of each parameter, by enum qn_param */
    struct twin_operand operand[TWIN_ROLES];
    struct twin_scaling scaling[TWIN_D]; /* of A and B */
    struct twin_blocks blocks[TWIN_D];
    int nan_scale; /* the code that must not be multiplied with zeros */
    struct twin_c c;
    struct twin_follow follow;
    int ragged;   /* enum quern_axis */
    int epilogue; /* enum qn_epilogue */
    int groups, m, n, k, smem;
    /* For each group along the ragged axis, in the copies where these are read;
       NULL where the sizes are. */
    const int *starts, *lengths; /* merged: lengths over all parts */
    const struct twin_part *part; /* merged products, or NULL */
    int microbatches;
    int clusters; /* CTAs, counted in clusters */
    uint64_t seed;
};

/* Runs a launch; returns "" or the error. */
typedef const char *twin_run_fn(const struct twin_launch *);
