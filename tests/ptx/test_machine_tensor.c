/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_machine_tensor.c: products of tcgen05: each layout, kind and type, of
** one CTA and of a pair, and that misreadings of the ISA make them wrong.
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
#define IN_TENSOR                                                              \
    {                                                                          \
        TENSOR_MEMORY, 0                                                       \
    }
#define MX8    "kind::mxf8f6f4.block_scale.block32"
#define MX8_1X "kind::mxf8f6f4.block_scale.scale_vec::1X"
#define MX4    "kind::mxf4.block_scale.block32"
#define MX4_2X "kind::mxf4nvf4.block_scale.scale_vec::2X"
#define NV4    "kind::mxf4nvf4.block_scale.block16"
#define NV4_4X "kind::mxf4nvf4.block_scale.scale_vec::4X"

static const struct tensor_product products[] = {
    {"kind::f16", BF16, ROWS_128, ROWS_128, 1, 256, 64, 0, 0, 0, 0},
    {"kind::f16", BF16, TURN_128, TURN_128, 1, 128, 64, 0, 0, 0, 0},
    {"kind::f16", F16, {64, 0}, {64, 0}, 1, 64, 32, 0, 0, 0, 0},
    {"kind::f16", BF16, {32, 0}, {32, 0}, 1, 48, 16, 0, 0, 1, 0},
    {"kind::f16", F16, {0, 0}, {0, 0}, 1, 16, 64, 0, 0, 0, 0},
    {"kind::f16", BF16, {0, 1}, {0, 1}, 1, 128, 64, 0, 0, 0, 0},
    {"kind::f16", BF16, {64, 1}, {32, 0}, 1, 32, 16, 0, 0, 0, 0},
    {"kind::f16", F16, ROWS_128, TURN_128, 1, 192, 64, 0, 0, 0, 0},
    {"kind::f16", BF16, ROWS_128, ROWS_128, 2, 256, 64, 0, 0, 0, 0},
    {"kind::f16", F16, TURN_128, {64, 0}, 2, 64, 32, 0, 0, 1, 0},
    {"kind::f8f6f4", E4M3, ROWS_128, ROWS_128, 1, 128, 128, 0, 0, 0, 0},
    {"kind::f8f6f4", &tensor_e5m2, &tensor_e4m3, TURN_128, TURN_128, 1, 128, 64,
     0, 0, 0, 0},
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
     0,
     0},
    {"kind::f8f6f4", &tensor_e2m1, &tensor_e5m2, ROWS_128, ROWS_128, 2, 96, 128,
     0, 0, 0, 0},
    {MX8, E4M3, ROWS_128, ROWS_128, 1, 240, 128, 1, 0, 0, 0},
    {MX8_1X, &tensor_e5m2, &tensor_e2m1, TURN_128, ROWS_128, 1, 64, 128, 1, 0,
     0, 0},
    {MX8, E4M3, ROWS_128, ROWS_128, 2, 256, 128, 1, 0, 0, 0},
    {MX4, PACKED, ROWS_128, ROWS_128, 1, 128, 256, 2, 0, 0, 0},
    {MX4_2X, PACKED, {64, 0}, {64, 0}, 2, 64, 128, 2, 0, 0, 0},
    {NV4, PACKED, ROWS_128, ROWS_128, 1, 48, 256, 4, 1, 0, 0},
    {NV4_4X, PACKED, ROWS_128, ROWS_128, 2, 192, 256, 4, 0, 0, 0},
    {NV4, PACKED, {0, 0}, {32, 0}, 2, 224, 64, 4, 1, 0, 0},
    {"kind::f16", BF16, IN_TENSOR, TURN_128, 1, 128, 64, 0, 0, 0, 0},
    {"kind::f8f6f4", &tensor_e4m3, &tensor_e5m2, IN_TENSOR, ROWS_128, 2, 64,
     128, 0, 0, 0, 0},
    {MX8, E4M3, IN_TENSOR, ROWS_128, 1, 64, 128, 1, 0, 0, 0},
    {NV4, PACKED, IN_TENSOR, ROWS_128, 2, 64, 256, 4, 1, 0, 0},
    {"kind::f16", BF16, ROWS_128, ROWS_128, 1, 8, 64, 0, 0, 0, 1},
    {"kind::f16", F16, TURN_128, TURN_128, 1, 256, 64, 0, 0, 1, 1},
    {"kind::f8f6f4", E4M3, {64, 1}, {64, 1}, 1, 64, 64, 0, 0, 0, 1},
};
enum { PRODUCTS = sizeof products / sizeof *products };

static int wrong_in(const struct tensor_product *p, const char **why)
{
    char text[8192];

    tensor_write(p, text, sizeof text);
    return tensor_run(p, text, why);
}

TEST_ONCE(tensor_products)
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
TEST_ONCE(tensor_misread)
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

/* Threads store 8 columns of their lane; both halves of 16 lanes are loaded in
   another shape: sums of a fragment as wgmma has them. */
static const char shapes[] =
    ".version 8.8\n.target sm_100a\n.address_size 64\n"
    ".extern .shared .align 1024 .b8 room[];\n"
    ".visible .entry kernel(.param .u64 in, .param .u64 out)\n"
    ".maxntid 128, 1, 1\n{\n"
    ".reg .b32 %r<24>;\n.reg .b64 %rd<4>;\n.reg .pred %p<4>;\n"
    "ld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, room;\n"
    "setp.lt.u32 %p1, %r0, 32;\n@%p1 tcgen05.alloc.cta_group::1.sync.aligned."
    "shared::cta.b32 [%r1], 32;\ntcgen05.fence::before_thread_sync;\n"
    "bar.sync 0;\ntcgen05.fence::after_thread_sync;\n"
    "ld.shared.u32 %r2, [%r1];\nshl.b32 %r3, %r0, 3;\n"
    "add.u32 %r4, %r3, 1;\nadd.u32 %r5, %r3, 2;\nadd.u32 %r6, %r3, 3;\n"
    "add.u32 %r7, %r3, 4;\nadd.u32 %r8, %r3, 5;\nadd.u32 %r9, %r3, 6;\n"
    "add.u32 %r10, %r3, 7;\n"
    "tcgen05.st.sync.aligned.32x32b.x8.b32[%r2], {%r3, %r4, %r5, %r6, %r7, "
    "%r8, %r9, %r10};\ntcgen05.wait::st.sync.aligned;\n"
    "add.u32 %r11, %r2, 1048576;\n"
    "tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r12, %r13, %r14, %r15}, [%r2];\n"
    "tcgen05.ld.sync.aligned.16x128b.x2.b32{%r16, %r17, %r18, %r19}, [%r11];\n"
    "tcgen05.wait::ld.sync.aligned;\nmul.wide.u32 %rd2, %r0, 32;\n"
    "add.u64 %rd1, %rd1, %rd2;\n"
    "st.global.v4.u32 [%rd1], {%r12, %r13, %r14, %r15};\n"
    "st.global.v4.u32 [%rd1+16], {%r16, %r17, %r18, %r19};\nbar.sync 0;\n"
    "@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;\nret;\n}\n";

static int wrong_shapes(void)
{
    uint32_t out[128 * 8];
    int wrong = 0;

    assert_int_equal(tensor_launch(shapes, out, sizeof out), 0);
    for (int t = 0; t < 128; t++)
        for (int r = 0; r < 4; r++) {
            const int row = t / 32 * 32 + t % 32 / 4, column = t % 4;

            wrong += out[8 * t + r] !=
                     (uint32_t)(8 * (row + r / 2 * 8) + 2 * column + r % 2);
            wrong +=
                out[8 * t + 4 + r] !=
                (uint32_t)(8 * (16 + row + r % 2 * 8) + column + r / 2 * 4);
        }
    return wrong;
}

TEST_ONCE(tensor_shapes)
{
    tensor_start("PTX_SEED", "1");
    assert_int_equal(wrong_shapes(), 0);
    tensor_start("PTX_MISREAD", "fragment");
    assert_int_not_equal(wrong_shapes(), 0);
    unsetenv("PTX_MISREAD");
    tensor_start("PTX_SEED", "1");
}
