/* SPDX-License-Identifier: Apache-2.0 */
/*
** tensor_job.h: a product of tcgen05 as the kernel of tensor_kernel.h takes it,
** of random codes, and whether its sums are right.
*/
#pragma once

#include <stddef.h>
#include <stdint.h>

/* An operand in shared memory, or A in tensor memory. */
enum { TENSOR_MEMORY = -1 };
struct tensor_layout {
    int swizzle; /* bytes of a row: 128, 64, 32; 0: none; TENSOR_MEMORY */
    int turned;  /* mn-major */
};

/* A type's codes: `number` is an instruction descriptor's. */
struct tensor_type {
    const char *name;
    int number, bits, exponent, mantissa, bias;
    int per_unit; /* codes of 16 bytes */
};
extern const struct tensor_type tensor_f16, tensor_bf16, tensor_e4m3,
    tensor_e5m2, tensor_e2m3, tensor_e3m2, tensor_e2m1, tensor_packed;

struct tensor_product {
    const char *kind; /* "kind::f16", and .block_scale.block32 */
    const struct tensor_type *a_type, *b_type;
    struct tensor_layout a, b;
    int ctas, n, k;
    int blocks; /* of a step, with a scale each; 0: none */
    int e4m3;   /* the type of scales */
    int negate; /* A */
    int is_64;  /* rows of A and D, not 128 */
};

/* The kernel's text; each time with another count of registers loaded. */
void tensor_write(const struct tensor_product *p, char *text, size_t size);

/* Runs a text with the product's operands. How many of its sums are wrong; all,
   with the machine's report in *why, if the machine refuses it. */
int tensor_run(const struct tensor_product *p, const char *text,
               const char **why);

/* Runs a kernel of one CTA that takes two pointers and writes to the second; 0
   or the driver's error. */
int tensor_launch(const char *text, void *out, size_t bytes);

/* Another start of the machine, with other variables. */
void tensor_start(const char *variable, const char *value);

/* Set: bits exchanged in descriptors of the next runs. */
extern struct tensor_defect {
    uint64_t a, copy;
    uint32_t instruction;
} tensor_defect;
