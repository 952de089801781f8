/* SPDX-License-Identifier: Apache-2.0 */
/* test_rows.c: which kernel quantizes where nothing but the rowwise tensor
   is wanted, and that rows which it holds whole need no launch for their
   maxima. */
#include "test.h"

#include "kernels.h"

enum { ROOM = 16384 }; /* shared memory for rows: 8192 values of 16 bits */

#define SCALES(span_, k_)                                                      \
    {                                                                          \
        .type = QUERN_F32, .span = span_, .rows = (k_) ? 1 : 0, .k = k_,       \
        .pad_rows = 1, .pad_columns = 1                                        \
    }
#define RECIPE(name_, line, span, k)                                           \
    {                                                                          \
        TEST_RECIPE(name_, line, QUERN_E4M3), .scaled = 1, .scale = "f32",     \
                                              .scaling = {                     \
                                                  SCALES(span, k),             \
                                                  SCALES(span, k),             \
                                                  SCALES(span, k)              \
                                              }                                \
    }
#define KERNEL(name_, recipe_, architecture, op_, input_, form_)               \
    {                                                                          \
        .name = name_, .spec = "kernels/test.lua:1",                           \
        .template_path = "test.cu", .key = "key", .recipe = recipe_,           \
        .arch = architecture, .op = op_, .of = QN_DY, .input = input_,         \
        .form = form_, .schedule = "", .addend = "", .threads = 128,           \
        .ctas = 1, .smem = ROOM, .params = cast_params,                        \
        .nparams = sizeof cast_params, .cubin = "\177ELF", .cubin_bytes = 4    \
    }
#define KERNELS(recipe_)                                                       \
    KERNEL(recipe_ "_amax", recipe_, "sm_90a", QN_AMAX, QUERN_BF16, QN_PLAIN), \
        KERNEL(recipe_ "_cast", recipe_, "sm_90a", QN_QUANTIZE, QUERN_BF16,    \
               QN_PLAIN),                                                      \
        KERNEL(recipe_ "_rows", recipe_, "sm_90a", QN_QUANTIZE, QUERN_BF16,    \
               QN_ROWS),                                                       \
        KERNEL(recipe_ "_old", recipe_, "sm_80", QN_QUANTIZE, QUERN_BF16,      \
               QN_PLAIN),                                                      \
        KERNEL(recipe_ "_sum", recipe_, "sm_90a", QN_SUM, QUERN_F32, QN_PLAIN)

static const struct qn_recipe recipes[] = {
    RECIPE("lines", "1", QN_SPAN_ROW, 0),
    RECIPE("blocks", "2", QN_SPAN_BLOCK, 128)};
static const struct qn_kernel kernels[] = {KERNELS("lines"), KERNELS("blocks")};
static const struct quern_registry registry = {
    .hash = "rows",
    .recipes = recipes,
    .nrecipes = sizeof recipes / sizeof *recipes,
    .kernels = kernels,
    .nkernels = sizeof kernels / sizeof *kernels};

/* The launches of a line, in order, the maxima's clearing not counted. */
static void launches(const char *text, const char *const *names, int cleared)
{
    static _Alignas(256) char memory[4][1 << 17];
    struct qn_quantize_description need;
    struct qn_quantize_args *args = &need.args;
    struct qn_quantize_plan *plan;
    struct qn_quantization q;
    struct quern_context *ctx = test_open_with(&registry);
    static float dbias[1 << 14];
    static int32_t rows[1];
    int i = 0;

    test_expect(qn_quantize_parse(ctx, text, &q), QUERN_OK, "");
    test_expect(qn_quantize_needs(ctx, &q, &need), QUERN_OK, "");
    test_expect(qn_quantize_plan(ctx, &q, &test_aot, &plan), QUERN_OK, "");
    assert_in_range(need.workspace_bytes, 256, sizeof memory[3]);
    args->in.data = memory[0];
    args->row.data = q.copies & QUERN_ROWWISE ? memory[1] : NULL;
    args->row.sf = q.copies & QUERN_ROWWISE ? memory[1] + 65536 : NULL;
    args->column.data = q.copies & QUERN_COLUMNWISE ? memory[2] : NULL;
    args->column.sf = q.copies & QUERN_COLUMNWISE ? memory[2] + 65536 : NULL;
    args->first_dims = rows;
    args->sizes_type = QUERN_I32;
    args->dbias = q.dbias ? dbias : NULL;
    args->workspace = memset(memory[3], 0, sizeof memory[3]);
    memset(memory[3] + 256, 1, need.workspace_bytes - 256);
    test_cuda->launches = 0;
    test_expect(qn_quantize_run(plan, args, NULL), QUERN_OK, "");
    for (; names[i] && i < test_cuda->launches; i++)
        assert_string_equal(test_cuda->trail[i].kernel, names[i]);
    assert_null(names[i]);
    assert_int_equal(test_cuda->launches, i);
    if (need.workspace_bytes > 256)
        assert_int_equal(memory[3][256], cleared ? 0 : 1);
    qn_quantize_plan_free(plan);
    qn_close(ctx);
}

#define LAUNCHES(cleared, text, ...)                                           \
    launches(text, (const char *const[]){__VA_ARGS__, NULL}, cleared)

TEST(rowwise_has_a_kernel)
{
    LAUNCHES(0, "quantize blocks of=dy g=1 m=8 k=256 copies=rowwise",
             "blocks_rows");
    LAUNCHES(0, "quantize blocks of=dy g=1 m=8 k=256 copies=columnwise",
             "blocks_cast");
    LAUNCHES(0, "quantize blocks of=dy g=1 m=8 k=256", "blocks_cast");
    LAUNCHES(0, "quantize blocks of=dy g=1 m=8 k=256 copies=rowwise dbias=1",
             "blocks_cast", "blocks_sum");
}

TEST(rows_held_whole_need_no_maxima)
{
    LAUNCHES(0, "quantize lines of=dy g=1 m=2 k=8192 copies=rowwise",
             "lines_rows");
    LAUNCHES(1, "quantize lines of=dy g=1 m=2 k=8193 copies=rowwise",
             "lines_amax", "lines_cast");
    LAUNCHES(1, "quantize lines of=dy g=1 m=2 k=256", "lines_amax",
             "lines_cast");
}

TEST(why_says_so)
{
    struct qn_quantization q;
    struct quern_context *ctx = test_open_with(&registry);
    char *text;

    test_expect(
        qn_quantize_parse(
            ctx, "quantize lines of=dy g=1 m=2 k=9000 copies=rowwise", &q),
        QUERN_OK, "");
    test_expect(qn_quantize_why(ctx, &q, &test_aot, &text), QUERN_OK, "");
    assert_non_null(strstr(text, "> lines_cast\n"));
    assert_non_null(strstr(text, "  lines_rows\n    rows are longer than it "
                                 "has room for in shared memory\n"));
    quern_free(text);
    qn_close(ctx);
}
