/* SPDX-License-Identifier: Apache-2.0 */
/* scaled.c: products of quantized copies against float64 on what the copies
   hold, for every recipe with scales and every op. */
#include "host.h"

#include "base/context.h"
#include "base/types.h"
#include "problem/dequantize_rules.h"
#include "quantize/quantize_plan.h"
#include "oracle/decode.h"
#include "internal.h"

#include <math.h>
#include <stdio.h>

/* The i-th scaled recipe of quern's own; NULL past the last. */
static const struct qn_recipe *recipe_at(int i)
{
    for (int j = 0; j < qn_registry_builtin.nrecipes; j++)
        if (qn_registry_builtin.recipes[j].scaled && i-- == 0)
            return &qn_registry_builtin.recipes[j];
    return NULL;
}

/* From fprop on: without dy there is no dgrad, with packed weights no wgrad. */
static int ops_of(const struct qn_recipe *recipe)
{
    return recipe->dy == QUERN_TYPE_NONE  ? 1
           : recipe->scaling[QN_W].packed ? 2
                                          : 3;
}

/* The op, and the layout in which it reads w. */
static void set_op(struct qt_case *c, int op)
{
    qt_case_op(c, op);
    if (op == QUERN_DGRAD && c->recipe->scaling[QN_W].packed)
        c->b_major = QUERN_MAJOR_MN;
}

/* The i-th type of D that the recipe writes, around and around. */
static int d_type_at(const struct qn_recipe *recipe, int i)
{
    int types[32], count = 0;

    for (int type = 1; type < 32; type++)
        if (recipe->d_types >> type & 1)
            types[count++] = type;
    return types[i % count];
}

/* The dequantized operands are the very same, so each sum on the host is, too:
   the bits of D agree, but where alpha is rounded with scales of a second
   level. */
static void same_otherwise(const struct qt_case *c, int strategy)
{
    const struct qt_epilogue *epilogue = qt_case_epilogue(c);
    const struct qn_problem p = {.op = c->op,
                                 .d_type = c->d_type,
                                 .alpha = epilogue->alpha,
                                 .beta = epilogue->beta};
    struct host_output inside = {0}, ahead = {0};
    struct qt_case other = *c;
    struct qt_data data;

    if (qn_dequantize_wrong(qt_context, &p, c->recipe, strategy))
        return;
    assert_int_equal(qt_data_make(c, &data), 0);
    host_multiply(c, &data, 2, &inside);
    other.dequantize = strategy;
    if (epilogue->alpha &&
        (c->recipe->scaling[QN_X].global || c->recipe->scaling[QN_W].global)) {
        host_case_right(&other);
    } else {
        host_multiply(&other, &data, 2, &ahead);
        if (memcmp(inside.d, ahead.d, inside.d_bytes))
            fail_msg("%s: with dequantize=%s D is another", c->what,
                     qn_dequantize_name(strategy));
    }
    host_output_free(&inside);
    host_output_free(&ahead);
    qt_data_free(&data);
}

/* One product, all that a case has in turns. */
static void run_case(const struct qn_recipe *recipe, int op, int index)
{
    static const int sides[][2] = {{33, 19},  {64, 128}, {8, 130},
                                   {40, 257}, {129, 31}, {16, 512}};
    const struct qt_pattern *pattern = &qt_patterns[index % qt_npatterns];
    const int *side = sides[(index + op) % 6];
    struct qt_case c = {
        .what = pattern->name,
        .recipe = recipe,
        .fp32_sums = 1,
        .d_type = d_type_at(recipe, index / 2),
        .m = side[1],
        .n = pattern->groups > 100 ? 3 : side[0],
        .k = pattern->groups > 100 ? 40 : side[1],
        .sizes_type = index % 2 ? QUERN_I64 : QUERN_I32,
        .form = index % QT_FORMS,
        .fill = index % 3,
        .epilogue = &qt_epilogues[(index + index / 8) % qt_nepilogues],
        .seed = (uint64_t)index + 1,
        .pad = {0, 0, index % 3, index % 4},
    };

    /* values that F16 cannot hold prove nothing */
    if (c.fill == QT_EXTREME && c.d_type == QUERN_F16)
        c.d_type = QUERN_F32;
    if (c.fill == QT_EXTREME && recipe->x == QUERN_F16)
        c.fill = QT_NORMAL;
    if (c.d_type == QUERN_F32 && !(recipe->d_types >> QUERN_F32 & 1))
        c.fill = QT_NORMAL;
    set_op(&c, op);
    if (op == QUERN_WGRAD && pattern->groups > 100)
        c.m = 5;
    qt_case_layout(&c, pattern);
    host_case_right(&c);
    for (int strategy = QUERN_DEQUANTIZE_PASS; strategy <= QUERN_DEQUANTIZE_F16;
         strategy++)
        same_otherwise(&c, strategy);
}

/* Every pattern of groups with every recipe and op, twice; with sanitizers,
   where the values are the same, once. */
TEST(test_scaled_recipes)
{
#ifdef __SANITIZE_ADDRESS__
    enum { TIMES = 1 };
#else
    enum { TIMES = 2 };
#endif
    const struct qn_recipe *recipe;
    int number = 0;

    for (int i = 0; (recipe = recipe_at(i)); i++)
        for (int op = QUERN_FPROP; op < ops_of(recipe); op++) {
            const int first = TIMES < 2 ? i % 2 * qt_npatterns : 0;

            for (int j = first; j < first + TIMES * qt_npatterns; j++)
                if (share_has(number++))
                    run_case(recipe, op, j + i + op);
        }
}

/* Long sums, where promotion and blocks come by many times. */
TEST(test_scaled_long)
{
    const struct qn_recipe *recipe;

    for (int i = 0; (recipe = recipe_at(i)); i++)
        for (int op = QUERN_FPROP; op < ops_of(recipe); op++) {
            struct qt_case c = {.what = "long sums",
                                .recipe = recipe,
                                .fp32_sums = 1,
                                .d_type = QUERN_F32,
                                .m = 70,
                                .n = 24,
                                .k = 3000,
                                .sizes_type = QUERN_I32,
                                .fill = QT_NORMAL,
                                .seed = 5};
            const struct qt_pattern pattern = {
                "long", 2, 2, {op == QUERN_WGRAD ? 2900 : 70, 1}, 0};

            set_op(&c, op);
            qt_case_layout(&c, &pattern);
            host_case_right(&c);
        }
}

/* ------------------------------------------------------ recipes of a folder */

/* Not in any file of quern's own: generated and compiled here. */
/* A cast of groups the last of which is empty, into scales that end where the
   canary begins. */
static void write_scales(const char *recipe, int groups, int k)
{
    enum { CANARY = 8, ROWS = 5, ROOM = 4096 };
    const struct qn_plan_options on_host = {.backend = QUERN_BACKEND_HOST};
    struct qn_quantize_description need;
    struct qn_quantization q = {.of = QN_X,
                                .type = QUERN_BF16,
                                .copies = QUERN_ROWWISE | QUERN_COLUMNWISE,
                                .groups = groups,
                                .m = ROWS * groups,
                                .k = k};
    int32_t sizes[16] = {0};
    struct qn_quantize_plan *plan;
    struct qn_tensor *copies[2];

    for (int g = 0; g < groups - 1; g++)
        sizes[g] = g % 2 ? ROWS : 0;
    strcpy(q.recipe, recipe);
    assert_int_equal(qn_quantize_needs(host_ctx, &q, &need), QUERN_OK);
    assert_int_equal(qn_quantize_plan(host_ctx, &q, &on_host, &plan), QUERN_OK);
    copies[0] = &need.args.row;
    copies[1] = &need.args.column;
    need.args.in.data = calloc(1, need.args.in.bytes);
    for (int i = 0; i < 2; i++) {
        copies[i]->data = malloc(copies[i]->bytes);
        copies[i]->sf = aligned_alloc(64, ROOM);
        assert_true(copies[i]->sf_bytes + CANARY <= ROOM);
        memset(copies[i]->sf, QT_POISON, ROOM);
    }
    need.args.first_dims = sizes;
    need.args.sizes_type = QUERN_I32;
    need.args.workspace = calloc(1, need.workspace_bytes);
    assert_int_equal(qn_quantize_run(plan, &need.args, NULL), QUERN_OK);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < CANARY; j++)
            if (((unsigned char *)copies[i]
                     ->sf)[copies[i]->sf_bytes + (size_t)j] != QT_POISON)
                fail_msg("%s: byte %d after the scales of the %s copy was "
                         "written",
                         recipe, j, i ? "column" : "row");
    qn_quantize_plan_free(plan);
    for (int i = 0; i < 2; i++) {
        free(copies[i]->data);
        free(copies[i]->sf);
    }
    free(need.args.in.data);
    free(need.args.workspace);
}

/* Scales of a byte, of groups without rows, are no wider than that. */
TEST(test_scaled_empty)
{
    struct host_specs specs;

    host_specs_open(&specs, "tests/host/specs");
    write_scales("test_group_pow2", 16, 64);
    write_scales("test_row_pow2", 4, 64);
    host_specs_close(&specs);
}

/* Scales of the rowwise and the columnwise tensor of weights [128, 256], 32 x
   32 values each. */
static void square_scales(const char *recipe, unsigned char sf[2][1024])
{
    static uint16_t in[128 * 256];
    static unsigned char codes[2][128 * 256];
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    unsigned char workspace[256] __attribute__((aligned(256))) = {0};
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct qn_quantization q;
    char text[80];

    snprintf(text, sizeof text, "quantize %s of=w g=1 m=128 k=256", recipe);
    if (qn_quantize_parse(host_ctx, text, &q) ||
        qn_quantize_needs(host_ctx, &q, &need) ||
        qn_quantize_plan(host_ctx, &q, &options, &plan))
        fail_msg("%s: %s", text, quern_errmsg());
    for (int i = 0; i < 128 * 256; i++) /* another exponent in each block */
        in[i] = (uint16_t)(0x3000 + (i / 256 / 32 * 8 + i % 256 / 32) * 128);
    need.args.in.data = in;
    need.args.row.data = codes[0];
    need.args.row.sf = sf[0];
    need.args.column.data = codes[1];
    need.args.column.sf = sf[1];
    need.args.workspace = workspace;
    assert_true(need.args.row.sf_bytes <= 1024);
    if (qn_quantize_run(plan, &need.args, NULL))
        fail_msg("%s: %s", text, quern_errmsg());
    qn_quantize_plan_free(plan);
}

/* As tensor cores and cuBLAS read them: tiles of 128 rows x 4 scales, one for
   each row, so that squares repeat theirs. */
TEST(test_square_tiles)
{
    unsigned char plain[2][1024], tiles[2][1024];
    struct host_specs specs;

    host_specs_open(&specs, "tests/host/specs");
    square_scales("test_square_plain", plain);
    square_scales("test_square_tiles", tiles);
    host_specs_close(&specs);
    for (int copy = 0; copy < 2; copy++) {
        const int blocks = copy ? 4 : 8; /* of a row */

        for (int i = 0; i < 1024 / blocks; i++)
            for (int j = 0; j < blocks; j++)
                assert_int_equal(
                    tiles[copy][(i / 128 * (blocks / 4) + j / 4) * 512 +
                                i % 32 * 16 + i % 128 / 32 * 4 + j % 4],
                    plain[copy][i / 32 * blocks + j]);
    }
}

/* A product of a recipe of tests/host/specs: its kernels are generated and
   compiled first. */
static void run_spec(const char *name, int op)
{
    static const int patterns[] = {0, 4, 8, 10};

    for (int j = 0; j < 4; j++) {
        struct qt_case c = {.what = name,
                            .recipe = qn_context_recipe(host_ctx, name),
                            .fp32_sums = 1,
                            .d_type = QUERN_F32,
                            .m = 37 + 4 * j,
                            .n = 30,
                            .k = 290,
                            .sizes_type = QUERN_I32,
                            .form = j % QT_FORMS,
                            .fill = j % 3,
                            .seed = (uint64_t)j};

        assert_non_null(c.recipe);
        qt_case_op(&c, op);
        c.type = QUERN_BF16;
        qt_case_layout(&c, &qt_patterns[patterns[j]]);
        host_case_right(&c);
    }
}

TEST(test_scaled_specs)
{
    static const char *const names[] = {
        "test_mx6",        "test_int8",         "test_w4",      "test_blocks",
        "test_mixed",      "test_row_pow2",     "test_turned",  "test_w16",
        "test_turned_row", "test_square_tiles", "test_integers"};
    struct host_specs specs;
    struct qn_mlp mlp;
    int number = 0;

    host_specs_open(&specs, "tests/host/specs");
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        for (int op = QUERN_FPROP; op <= QUERN_WGRAD; op++)
            if ((i != 2 || op != QUERN_WGRAD) && share_has(number++))
                run_spec(names[i], op);
    assert_int_equal(
        qn_mlp_parse(host_ctx, "mlp test_w16 g=1 m=9 hidden=8 ffn=8", &mlp),
        QUERN_EINVAL);
    assert_non_null(strstr(quern_errmsg(),
                           "recipe test_w16 scales dy and keeps w as bf16"));
    host_specs_close(&specs);
}

/* ------------------------------------------------------------------ threads */

/* The number of threads splits the work, never a sum. */
TEST(test_scaled_threads)
{
    const struct qn_recipe *recipe;

    for (int i = 0; (recipe = recipe_at(i)); i++) {
        struct qt_case c = {.what = "threads",
                            .recipe = recipe,
                            .d_type = QUERN_F32,
                            .m = 90,
                            .n = 70,
                            .k = 200,
                            .sizes_type = QUERN_I64,
                            .form = QT_BOTH,
                            .fill = QT_NORMAL,
                            .seed = 9};
        struct host_output one = {0}, many = {0};
        struct qt_data data;

        set_op(&c, i % ops_of(recipe));
        qt_case_layout(&c, &qt_patterns[0]);
        assert_int_equal(qt_data_make(&c, &data), 0);
        host_multiply(&c, &data, 1, &one);
        host_multiply(&c, &data, 5, &many);
        assert_memory_equal(one.d, many.d, one.d_bytes);
        host_output_free(&one);
        host_output_free(&many);
        qt_data_free(&data);
    }
}

/* --------------------------------------------------------------------- NaN */

/* The type of the operand's codes, and a NaN among them; 0: it has none. */
static unsigned nan_code(int type)
{
    return type == QUERN_E4M3 || type == QUERN_E5M2 ? 0x7f : 0;
}

/* A NaN in row 3 of the second group's A: its row of D, and no other bit. */
TEST(test_scaled_nan)
{
    const struct qn_recipe *recipe;

    for (int i = 0; (recipe = recipe_at(i)); i++)
        for (int op = QUERN_FPROP; op <= QUERN_DGRAD; op++) {
            struct qt_case c = {.what = "a NaN",
                                .recipe = recipe,
                                .d_type = QUERN_F32,
                                .n = 70,
                                .k = 200,
                                .sizes_type = QUERN_I32,
                                .fill = QT_NORMAL,
                                .seed = 11};
            struct host_output clean = {0}, bad = {0};
            unsigned code = nan_code(op ? recipe->dy : recipe->x);
            struct qt_data data;
            int64_t row;

            if (!code)
                continue;
            set_op(&c, op);
            qt_case_layout(&c, &qt_patterns[4]);
            row = c.start[0] + 3;
            assert_int_equal(qt_data_make(&c, &data), 0);
            host_multiply(&c, &data, 0, &clean);
            ((unsigned char *)data.operand[QT_A])[row * 208 + 77] =
                (unsigned char)code;
            host_multiply(&c, &data, 0, &bad);
            for (int64_t r = 0; r < c.m; r++)
                for (int64_t j = 0; j < c.n; j++) {
                    const float *before = (float *)clean.d + r * c.n + j;
                    const float *after = (float *)bad.d + r * c.n + j;

                    if (r == row)
                        assert_true(isnan(*after));
                    else
                        assert_memory_equal(before, after, sizeof *after);
                }
            host_output_free(&clean);
            host_output_free(&bad);
            qt_data_free(&data);
        }
}

/* --------------------------------------------------------------- exactness */

/* The code of 1 in a float of that type. */
static unsigned one_of(int type)
{
    unsigned code = 1;

    while (qn_decode_code(type, code, 0) < 1 ||
           qn_decode_code(type, code, 0) > 1)
        code++;
    return code;
}

static void put_code(unsigned char *codes, int bits, int64_t at, unsigned code)
{
    if (bits == 8)
        codes[at] = (unsigned char)code;
    else if (at % 2)
        codes[at / 2] = (unsigned char)((codes[at / 2] & 15) | code << 4);
    else
        codes[at / 2] = (unsigned char)((codes[at / 2] & 0xf0) | code);
}

/* A's row s has scale s in all its blocks and every code once; B picks one of
   them for each column. So D is what each pair of code and scale is dequantized
   to: value * scale, rounded to bf16 as fp32 is. */
static void check_pairs(const struct qn_recipe *recipe)
{
    const struct qn_scaling *s = &recipe->scaling[QN_X];
    const int bits = qn_type_bits(recipe->x), codes = 1 << bits;
    const unsigned one = one_of(recipe->w), sf_one = one_of(s->type);
    const struct qt_pattern pattern = {"all scales", 1, 1, {256}, 0};
    struct qt_case c = {.what = "every pair",
                        .recipe = recipe,
                        .d_type = QUERN_F32,
                        .n = codes,
                        .k = codes < 32 ? 32 : codes,
                        .sizes_type = QUERN_I32,
                        .fill = QT_NORMAL};
    struct host_output out = {0};
    struct qt_data data;

    qt_case_op(&c, QUERN_FPROP);
    qt_case_layout(&c, &pattern);
    c.m = 256;
    assert_int_equal(qt_data_make(&c, &data), 0);
    memset(data.operand[QT_A], 0, data.bytes[QT_A]);
    memset(data.operand[QT_B], 0, data.bytes[QT_B]);
    memset(data.sf[QT_B], (int)sf_one, data.sf_bytes[QT_B]);
    for (int role = 0; role < 2 && data.global[role]; role++)
        *(float *)data.global[role] = 1;
    for (int i = 0; i < 256; i++) {
        size_t blocks = data.sf_bytes[QT_A] / 256;

        memset((char *)data.sf[QT_A] + (size_t)i * blocks, i, blocks);
        for (int j = 0; j < codes; j++)
            if (!isnan(qn_decode_code(recipe->x, (unsigned)j, 0)))
                put_code(data.operand[QT_A], bits, i * c.k + j, (unsigned)j);
    }
    for (int j = 0; j < codes; j++)
        put_code(data.operand[QT_B], bits, j * c.k + j, one);
    host_multiply(&c, &data, 0, &out);
    for (int i = 0; i < 256; i++)
        for (int j = 0; j < codes; j++) {
            double scale = qn_decode_code(s->type, (unsigned)i, 0);
            double code = qn_decode_code(recipe->x, (unsigned)j, 0);
            float wanted = qt_from_bf16(qt_bf16((float)(code * scale)));
            float got = ((float *)out.d)[i * codes + j];

            if (isnan(scale) || isnan(code) || isinf(wanted))
                continue;
            if (got < wanted || got > wanted)
                fail_msg("%s: code %#x with scale %#x is %a, not %a",
                         recipe->name, j, i, (double)got, (double)wanted);
        }
    host_output_free(&out);
    qt_data_free(&data);
}

TEST(test_scaled_pairs)
{
    const struct qn_recipe *recipe;
    int checked = 0;

    for (int i = 0; (recipe = recipe_at(i)); i++) {
        const struct qn_scaling *s = &recipe->scaling[QN_X];

        if (s->span != QN_SPAN_BLOCK || s->type == QUERN_F32 ||
            s->order != QN_ORDER_ROWS || recipe->x != recipe->w)
            continue;
        check_pairs(recipe);
        checked++;
    }
    assert_true(checked >= 3);
}

/* -------------------------------------------------------------- bad sizes */

static void run_bad_size(const struct qt_bad_size *bad_size,
                         const struct qn_recipe *recipe, int op, int sizes_type)
{
    struct qt_case c = {.recipe = recipe, .d_type = QUERN_F32};

    qt_case_op(&c, op);
    host_lie(&c, bad_size, sizes_type);
}

/* Aligned tokens must stay inside the columnwise tensors for any sizes. */
TEST(test_scaled_bad_sizes)
{
    for (int i = 0; i < qt_nbad_sizes; i++)
        for (int op = QUERN_FPROP; op <= QUERN_WGRAD; op++) {
            run_bad_size(&qt_bad_sizes[i], recipe_at(i % 5), op, QUERN_I64);
            if (!qt_bad_sizes[i].only_i64)
                run_bad_size(&qt_bad_sizes[i], recipe_at(i % 7), op, QUERN_I32);
        }
}
