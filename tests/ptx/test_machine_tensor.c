/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_machine_tensor.c: products of tcgen05: each layout, kind and type, of one
** CTA and of a pair, and that misreadings of the ISA make them wrong.
*/
#include "cases.h"
#include "tensor_job.h"

#include <stdio.h>

#define BF16   &tensor_bf16, &tensor_bf16
#define F16    &tensor_f16, &tensor_f16
#define E4M3   &tensor_e4m3, &tensor_e4m3
#define PACKED &tensor_packed, &tensor_packed
#define ROWS_128                                                               \
    {                                                                          \
        128, 0                                                                 \
    }
#define TURN_128                                                               \
    {                                                                          \
        128, 1                                                                 \
    }
#define MX8    "kind::mxf8f6f4.block_scale.block32"
#define MX8_1X "kind::mxf8f6f4.block_scale.scale_vec::1X"
#define MX4    "kind::mxf4.block_scale.block32"
#define MX4_2X "kind::mxf4nvf4.block_scale.scale_vec::2X"
#define NV4    "kind::mxf4nvf4.block_scale.block16"
#define NV4_4X "kind::mxf4nvf4.block_scale.scale_vec::4X"

static const struct tensor_product products[] = {
    {"kind::f16", BF16, ROWS_128, ROWS_128, 1, 256, 64, 0, 0, 0},
    {"kind::f16", BF16, TURN_128, TURN_128, 1, 128, 64, 0, 0, 0},
    {"kind::f16", F16, {64, 0}, {64, 0}, 1, 64, 32, 0, 0, 0},
    {"kind::f16", BF16, {32, 0}, {32, 0}, 1, 48, 16, 0, 0, 1},
    {"kind::f16", F16, {0, 0}, {0, 0}, 1, 16, 64, 0, 0, 0},
    {"kind::f16", BF16, {0, 1}, {0, 1}, 1, 128, 64, 0, 0, 0},
    {"kind::f16", BF16, {64, 1}, {32, 0}, 1, 32, 16, 0, 0, 0},
    {"kind::f16", F16, ROWS_128, TURN_128, 1, 192, 64, 0, 0, 0},
    {"kind::f16", BF16, ROWS_128, ROWS_128, 2, 256, 64, 0, 0, 0},
    {"kind::f16", F16, TURN_128, {64, 0}, 2, 64, 32, 0, 0, 1},
    {"kind::f8f6f4", E4M3, ROWS_128, ROWS_128, 1, 128, 128, 0, 0, 0},
    {"kind::f8f6f4", &tensor_e5m2, &tensor_e4m3, TURN_128, TURN_128, 1, 128, 64,
     0, 0, 0},
    {"kind::f8f6f4",
     &tensor_e2m3,
     &tensor_e3m2,
     {64, 0},
     {0, 0},
     1,
     32,
     64,
     0,
     0,
     0},
    {"kind::f8f6f4", &tensor_e2m1, &tensor_e5m2, ROWS_128, ROWS_128, 2, 96, 128,
     0, 0, 0},
    {MX8, E4M3, ROWS_128, ROWS_128, 1, 240, 128, 1, 0, 0},
    {MX8_1X, &tensor_e5m2, &tensor_e2m1, TURN_128, ROWS_128, 1, 64, 128, 1, 0,
     0},
    {MX8, E4M3, ROWS_128, ROWS_128, 2, 256, 128, 1, 0, 0},
    {MX4, PACKED, ROWS_128, ROWS_128, 1, 128, 256, 2, 0, 0},
    {MX4_2X, PACKED, {64, 0}, {64, 0}, 2, 64, 128, 2, 0, 0},
    {NV4, PACKED, ROWS_128, ROWS_128, 1, 48, 256, 4, 1, 0},
    {NV4_4X, PACKED, ROWS_128, ROWS_128, 2, 192, 256, 4, 0, 0},
    {NV4, PACKED, {0, 0}, {32, 0}, 2, 224, 64, 4, 1, 0},
};
enum { PRODUCTS = sizeof products / sizeof *products };

static int wrong_in(const struct tensor_product *p, const char **why)
{
    char text[8192];

    tensor_write(p, text, sizeof text);
    return tensor_run(p, text, why);
}

TEST(tensor_products)
{
    static const char *const seeds[] = {"1", "2", "3", "4"};

    for (int i = 0; i < PRODUCTS; i++) {
        const char *why;
        int wrong;

        tensor_start("PTX_SEED", seeds[i % 4]);
        wrong = wrong_in(&products[i], &why);
        if (wrong)
            fail_msg("product %d: %d wrong: %s", i, wrong, why);
    }
    tensor_start("PTX_SEED", "1");
}

/* Each makes a product wrong that uses what it misreads. */
TEST(tensor_misread)
{
    static const struct {
        const char *name;
        int product;
    } rows[] = {
        {"swizzle", 0},      {"low_swizzle", 0},  {"turned", 1},
        {"strides", 4},      {"rows", 0},         {"old_sum", 0},
        {"scale_rows", 14},  {"scale_bytes", 14}, {"scale_type", 19},
        {"scale_sides", 19}, {"one_part", 14},    {"pair_columns", 8},
        {"pair_rows", 8},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *why;

        tensor_start("PTX_MISREAD", rows[i].name);
        if (!wrong_in(&products[rows[i].product], &why))
            fail_msg("%s is not seen", rows[i].name);
    }
    unsetenv("PTX_MISREAD");
    tensor_start("PTX_SEED", "1");
}
