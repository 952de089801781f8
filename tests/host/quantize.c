/* SPDX-License-Identifier: Apache-2.0 */
/*
** quantize.c: quantization through the public header: arguments, invalid sizes,
** threads. That the bytes are right is shown by tests/numbers.
*/
#include "host.h"
#include "device/check.h"
#include "quantize/quantize_plan.h"

#include <stdio.h>

enum { GROUPS = 4, ROWS = 300, K = 96, GUARD = 4096, POISON = 0xA5 };

/* A buffer between two guards. */
struct area {
    unsigned char *memory, *data;
    size_t bytes;
};

static void area_make(struct area *a, size_t bytes)
{
    size_t all = (bytes + 2 * GUARD + 63) / 64 * 64;

    a->memory = aligned_alloc(64, all);
    assert_non_null(a->memory);
    memset(a->memory, POISON, all);
    a->data = a->memory + GUARD;
    a->bytes = bytes;
}

static void area_check(const struct area *a, const char *name)
{
    for (size_t i = 0; i < GUARD; i++)
        if (a->memory[i] != POISON || a->data[a->bytes + i] != POISON)
            fail_msg("%s: a guard was written", name);
}

/* A quantization with all its buffers. */
struct setup {
    struct qn_quantization q;
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct area in, row, row_sf, row_global, column, column_sf, column_global,
        dbias, workspace;
    int64_t sizes[GROUPS];
    uint64_t random[2];
    float scale[2], history[1024];
};

static void point(struct setup *s)
{
    struct qn_quantize_args *a = &s->need.args;

    a->in.data = s->in.data;
    a->row.data = s->row.data;
    a->row.sf = s->row_sf.data;
    a->row.global = s->row_global.bytes ? s->row_global.data : NULL;
    a->column.data = s->column.data;
    a->column.sf = s->column_sf.data;
    a->column.global = s->column_global.bytes ? s->column_global.data : NULL;
    a->dbias = s->q.dbias ? (float *)(void *)s->dbias.data : NULL;
    a->first_dims = s->q.of == QN_W ? NULL : s->sizes;
    a->sizes_type = QUERN_I64;
    a->random = s->need.random ? s->random : NULL;
    a->scale = s->need.history ? s->scale : NULL;
    a->history = s->need.history ? s->history : NULL;
    a->workspace = s->workspace.data;
}

static void fill_input(const struct setup *s)
{
    uint16_t *in = (uint16_t *)(void *)s->in.data;

    for (size_t i = 0; i < s->in.bytes / 2; i++)
        in[i] = (uint16_t)(0x3000 + i * 2654435761u % 0x1200 + (i % 3 << 15));
}

static void setup_make(struct setup *s, const char *text)
{
    static const int64_t sizes[GROUPS] = {0, 130, 7, 160};
    struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};

    memset(s, 0, sizeof *s);
    if (qn_quantize_parse(host_ctx, text, &s->q) ||
        qn_quantize_needs(host_ctx, &s->q, &s->need) ||
        qn_quantize_plan(host_ctx, &s->q, &options, &s->plan))
        fail_msg("%s: %s", text, quern_errmsg());
    area_make(&s->in, s->need.args.in.bytes);
    area_make(&s->row, s->need.args.row.bytes);
    area_make(&s->row_sf, s->need.args.row.sf_bytes);
    area_make(&s->row_global, s->need.args.row.global_bytes);
    area_make(&s->column, s->need.args.column.bytes);
    area_make(&s->column_sf, s->need.args.column.sf_bytes);
    area_make(&s->column_global, s->need.args.column.global_bytes);
    area_make(&s->dbias, (size_t)s->q.groups * (size_t)s->q.k * 4);
    area_make(&s->workspace, s->need.workspace_bytes);
    qn_memory_begin(s->workspace.data, s->workspace.bytes);
    memcpy(s->sizes, sizes, sizeof sizes);
    s->scale[0] = s->scale[1] = 1;
    fill_input(s);
    point(s);
}

static void setup_free(struct setup *s)
{
    struct area *all[] = {&s->in,     &s->row,       &s->row_sf,
                          &s->column, &s->column_sf, &s->row_global,
                          &s->dbias,  &s->workspace, &s->column_global};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        area_check(all[i], s->q.recipe);
        free(all[i]->memory);
    }
    qn_quantize_plan_free(s->plan);
}

static const char *const recipes[] = {
    "fp8_tensor", "fp8_tensor_delayed", "fp8_row", "fp8_block", "fp8_block_any",
    "mxfp8",      "mxfp8_ocp",          "mxfp4",   "nvfp4"};

enum { RECIPES = sizeof recipes / sizeof recipes[0] };

static void make_text(char text[160], const char *recipe)
{
    snprintf(text, 160, "quantize %s of=dy g=%d m=%d k=%d dbias=1", recipe,
             GROUPS, ROWS, K);
}

/* ---------------------------------------------------------------- arguments */

#define REFUSED(change, says)                                                  \
    do {                                                                       \
        setup_make(&s, "quantize nvfp4 of=dy g=4 m=300 k=96 dbias=1");         \
        change;                                                                \
        assert_int_equal(qn_quantize_run(s.plan, &s.need.args, NULL),          \
                         QUERN_EINVAL);                                        \
        if (!strstr(quern_errmsg(), says))                                     \
            fail_msg("'%s' lacks '%s'", quern_errmsg(), says);                 \
        setup_free(&s);                                                        \
    } while (0)

TEST(test_quantize_arguments)
{
    struct setup s;

    REFUSED(s.need.args.row.data = s.column.data,
            "rowwise overlaps columnwise");
    REFUSED((s.need.args.row.data = NULL, s.need.args.column.data = NULL),
            "nothing to make");
    REFUSED(s.need.args.random = (const void *)s.row.data,
            "rowwise overlaps random");
    REFUSED(s.need.args.random = s.need.args.workspace,
            "workspace overlaps random");
}

/* Each text, and a part of its message. */
static const struct {
    const char *text, *says;
} texts[] = {
    {"", "is empty"},
    {"quantise mxfp8", "quantise"},
    {"quantize", "a recipe is expected after 'quantize'"},
    {"quantize mxfp9 g=1 m=1 k=1", "did you mean"},
    {"quantize bf16 g=1 m=1 k=1", "there is nothing to quantize"},
    {"quantize mxfp8 g=1 m=1", "k= is missing"},
    {"quantize mxfp8 g=1 m=1 k=1 k=2", "given twice"},
    {"quantize mxfp8 g=1 m=1 k=1 coppies=row", "did you mean 'copies'?"},
    {"quantize mxfp8 g=1 m=1 k=1 copies=none", "rowwise, columnwise or both"},
    {"quantize mxfp8 g=1 m=1 k=1 of=dx", "x, w, dy is expected"},
    {"quantize mxfp8 g=1 m=1 k=1 in=e4m3", "bf16, f16 or f32"},
    {"quantize mxfp8 g=1 m=1 k=1 out=f32", "quantize has in="},
    {"quantize mxfp8 g=0 m=1 k=1", "g=0"},
    {"quantize mxfp8 g=1 m=1 k=0", "1 to"},
    {"quantize mxfp8 of=w g=1 m=0 k=1", "1 to"},
    {"quantize mxfp8 of=w g=1 m=1 k=1 dbias=add", "weights have none"},
    {"quantize mxfp8 g=1 m=1 k=1 dbias=2", "0, 1 or add is expected"},
    {"quantize mxfp8 g=1 m=1 k=1 activation=swigloo", "did you mean 'swiglu'"},
    {"quantize mxfp8 of=dy g=1 m=1 k=3 activation=swiglu", "an even number"},
    {"quantize mxfp8 g=1 m=1 k=6 activation=swiglu interleave=4",
     "does not divide"},
    {"quantize mxfp8 g=1 m=1 k=6 interleave=2",
     "interleave needs an activation"},
    {"quantize mxfp8 g=1 m=1 k=6 prob=1", "rows are multiplied only in dbias"},
    {"quantize mxfp8 of=dy g=1 m=1 k=6 prob=1 dbias=1",
     "for dy that the recipe does not quantize"},
    {"quantize bf16 of=x g=1 m=1 k=6 prob=1 dbias=1 copies=rowwise",
     "for dy that"},
    {"quantize bf16 of=dy g=1 m=1 k=6 dbias=1 dprob=1 copies=rowwise",
     "the gradient is of prob=1"},
    {"quantize mxfp8 g=1 m=1 k=6 prob=2", "0 or 1"},
    {"quantize mxfp8 g=2 m=5 k=6 split=3,4", "split=3,4"},
    {"transpose mxfp8 g=1 m=1 k=1 copies=rowwise", "copies=columnwise"},
    {"dequantize mxfp8 g=1 m=1 k=1 copies=both", "reads one copy"},
    {"dequantize mxfp8 g=1 m=1 k=1 in=f32", "dequantize has out="},
    {"rescale mxfp8 of=x", "no delayed scaling"},
    {"bias mxfp8 of=x g=1 m=1 k=1", "a recipe without scales"},
    {"bias bf16 of=dy g=1 m=1 k=1", "of=x and a recipe"},
    {"bias bf16 g=1 m=1 k=1 dbias=1", "bias supports prob"},
    {"bias bf16 g=1 m=1 k=1 out=f32", "bias has in="},
};

TEST(test_quantize_texts)
{
    static const char *const right[] = {
        "quantize fp8_block of=x g=8 m=32768 k=7168 in=bf16 copies=both",
        ("quantize nvfp4 of=dy g=2 m=5 k=64 in=f32 copies=columnwise "
         "activation=swiglu interleave=32 prob=1 dbias=1 split=2,3"),
        "quantize bf16 of=dy g=2 m=5 k=64 in=bf16 copies=rowwise dbias=add",
        "quantize bf16 of=dy g=2 m=5 k=64 in=f32 copies=rowwise prob=1 dbias=1 "
        "dprob=1",
        "transpose mxfp8 of=w g=8 m=64 k=32",
        "dequantize mxfp8 of=x g=8 m=64 k=32 out=f16 copies=columnwise",
        "bias bf16 of=x g=2 m=5 k=64 in=f16 prob=1 split=2,3",
        "rescale fp8_tensor_delayed of=dy"};
    struct qn_quantization q;
    char text[512];

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(qn_quantize_parse(host_ctx, texts[i].text, &q),
                         QUERN_EINVAL);
        if (!strstr(quern_errmsg(), texts[i].says))
            fail_msg("%s: '%s' lacks '%s'", texts[i].text, quern_errmsg(),
                     texts[i].says);
    }
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        if (qn_quantize_parse(host_ctx, right[i], &q))
            fail_msg("%s: %s", right[i], quern_errmsg());
        qn_quantize_print(&q, text, sizeof text);
        assert_string_equal(text, right[i]);
    }
}

/* --------------------------------------------------------------------- runs */

/* The group is blamed, nothing around the buffers is written, and the next
   run with right sizes is right. */
TEST(test_quantize_bad_sizes)
{
    static const int64_t bad[] = {-1, 301, INT64_MAX, INT64_MIN};
    char text[160], group[24];
    struct setup s;

    for (int r = 0; r < RECIPES; r++) {
        make_text(text, recipes[r]);
        setup_make(&s, text);
        for (int i = 0; i < GROUPS; i++) {
            int64_t right = s.sizes[i];

            s.sizes[i] = bad[i];
            assert_int_equal(qn_quantize_run(s.plan, &s.need.args, NULL),
                             QUERN_OK);
            assert_int_equal(qn_check_record(s.plan->driver, s.plan->context,
                                             s.need.args.workspace,
                                             &s.need.args.in, "quern_check",
                                             NULL),
                             QUERN_ESIZES);
            snprintf(group, sizeof group, "group %d", i);
            assert_non_null(strstr(quern_errmsg(), group));
            s.sizes[i] = right;
            assert_int_equal(qn_quantize_run(s.plan, &s.need.args, NULL),
                             QUERN_OK);
            assert_int_equal(qn_check_record(s.plan->driver, s.plan->context,
                                             s.need.args.workspace,
                                             &s.need.args.in, "quern_check",
                                             NULL),
                             QUERN_OK);
        }
        setup_free(&s);
    }
}

/* The sum is rounded once; an empty group's stays unchanged. */
TEST(test_quantize_adds_dbias)
{
    char text[160];

    for (int r = 0; r <= RECIPES; r++) {
        struct setup whole, sum;
        float *stored, *added;

        make_text(text, r < RECIPES ? recipes[r] : "bf16 copies=rowwise");
        setup_make(&whole, text);
        strcpy(strstr(text, "dbias=1"), "dbias=add");
        setup_make(&sum, text);
        if (r == RECIPES) /* sums only */
            whole.need.args.row.data = whole.need.args.column.data =
                sum.need.args.row.data = sum.need.args.column.data = NULL;
        stored = (float *)(void *)whole.dbias.data;
        added = (float *)(void *)sum.dbias.data;
        for (int i = 0; i < GROUPS * K; i++)
            added[i] = i % 3 ? 0.37f * (float)i : -0.0f;
        assert_int_equal(qn_quantize_run(whole.plan, &whole.need.args, NULL),
                         0);
        assert_int_equal(qn_quantize_run(sum.plan, &sum.need.args, NULL), 0);
        for (int i = 0; i < GROUPS * K; i++) {
            float old = i % 3 ? 0.37f * (float)i : -0.0f;
            float expected = whole.sizes[i / K] ? old + stored[i] : old;

            assert_memory_equal(&added[i], &expected, sizeof expected);
        }
        setup_free(&whole);
        setup_free(&sum);
    }
}

/* A plan for one thread and one for all give the same bytes. */
TEST(test_quantize_threads)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST,
                                            .sms = 1};
    char text[160];
    struct setup one, all;

    for (int r = 0; r < RECIPES; r++) {
        make_text(text, recipes[r]);
        setup_make(&one, text);
        setup_make(&all, text);
        qn_quantize_plan_free(one.plan);
        assert_int_equal(
            qn_quantize_plan(host_ctx, &one.q, &options, &one.plan), 0);
        assert_int_equal(qn_quantize_run(one.plan, &one.need.args, NULL), 0);
        assert_int_equal(qn_quantize_run(all.plan, &all.need.args, NULL), 0);
        assert_memory_equal(one.row.data, all.row.data, one.row.bytes);
        assert_memory_equal(one.column.data, all.column.data, one.column.bytes);
        assert_memory_equal(one.row_sf.data, all.row_sf.data, one.row_sf.bytes);
        assert_memory_equal(one.column_sf.data, all.column_sf.data,
                            one.column_sf.bytes);
        assert_memory_equal(one.dbias.data, all.dbias.data, one.dbias.bytes);
        setup_free(&one);
        setup_free(&all);
    }
}

/* Weights in one buffer, and allocated one by one in another order, where no
   16 bytes begin: the same bytes. */
TEST(test_quantize_pointers)
{
    enum { M = 75 };
    static uint16_t matrices[GROUPS][M * K + 1];
    const void *addresses[GROUPS];
    struct setup one, apart;
    char text[160];

    for (int r = 0; r < RECIPES; r++) {
        snprintf(text, sizeof text, "quantize %s of=w g=%d m=%d k=%d",
                 recipes[r], GROUPS, M, K);
        setup_make(&one, text);
        setup_make(&apart, text);
        for (int g = 0; g < GROUPS; g++) {
            addresses[g] = &matrices[GROUPS - 1 - g][g % 2];
            memcpy(&matrices[GROUPS - 1 - g][g % 2],
                   one.in.data + (size_t)g * M * K * 2, (size_t)M * K * 2);
        }
        apart.need.args.in.data = NULL;
        apart.need.args.in.pointers = (void *const *)addresses;
        assert_int_equal(qn_quantize_run(one.plan, &one.need.args, NULL), 0);
        if (qn_quantize_run(apart.plan, &apart.need.args, NULL))
            fail_msg("%s: %s", text, quern_errmsg());
        assert_memory_equal(one.row.data, apart.row.data, one.row.bytes);
        assert_memory_equal(one.column.data, apart.column.data,
                            one.column.bytes);
        assert_memory_equal(one.row_sf.data, apart.row_sf.data,
                            one.row_sf.bytes);
        assert_memory_equal(one.column_sf.data, apart.column_sf.data,
                            one.column_sf.bytes);
        setup_free(&one);
        setup_free(&apart);
    }
}

/* A copy that is not wanted stays as it is, and the other is the same. */
TEST(test_quantize_one_copy)
{
    char text[160];
    struct setup both, row;

    for (int r = 0; r < RECIPES; r++) {
        make_text(text, recipes[r]);
        setup_make(&both, text);
        setup_make(&row, text);
        row.need.args.column.data = row.need.args.column.sf = NULL;
        row.need.args.column.global = NULL;
        assert_int_equal(qn_quantize_run(both.plan, &both.need.args, NULL), 0);
        assert_int_equal(qn_quantize_run(row.plan, &row.need.args, NULL), 0);
        assert_memory_equal(both.row.data, row.row.data, row.row.bytes);
        assert_memory_equal(both.row_sf.data, row.row_sf.data,
                            row.row_sf.bytes);
        for (size_t i = 0; i < row.column.bytes; i++)
            assert_int_equal(row.column.data[i], POISON);
        setup_free(&both);
        setup_free(&row);
    }
}

/* ---------------------------------------------------- gradients of a bias */

/* Gradients of a bias scaled by probabilities, in the order that NUMERICS
   gives dbias and dprob. */
struct bias_numbers {
    float probability[ROWS], bias[GROUPS * K], dprob[ROWS];
};

static float in_at(const struct setup *s, int64_t row, int f)
{
    return qt_load(s->in.data, QUERN_BF16, row * K + f);
}

/* Feature f of a group: sums of 32 rows, and then of these. */
static float expected_dbias(const struct setup *s, const struct bias_numbers *x,
                            int64_t start, int64_t rows, int f)
{
    float sum = 0, part = 0;

    for (int64_t i = 0; i < rows; i++) {
        const float value = in_at(s, start + i, f) * x->probability[start + i];

        part = i % 32 ? part + value : value;
        if (i % 32 == 31 || i == rows - 1)
            sum = i < 32 ? part : sum + part;
    }
    return sum;
}

/* A row: 32 sums, of features 2 l and 2 l + 1 of every 64, and then of halves
   of these; added to what was there. */
static float expected_dprob(const struct setup *s, const struct bias_numbers *x,
                            int group, int64_t row, float before)
{
    float sum[32] = {0};

    for (int f = 0; f < K; f++)
        sum[f / 2 % 32] += in_at(s, row, f) * x->bias[group * K + f];
    for (int distance = 16; distance; distance /= 2)
        for (int i = 0; i < distance; i++)
            sum[i] += sum[i + distance];
    return before + sum[0];
}

static void check_bias(const struct setup *s, const struct bias_numbers *x)
{
    const float *dbias = (const float *)(const void *)s->dbias.data;
    int64_t start = 0;

    for (int g = 0; g < GROUPS; g++) {
        for (int f = 0; f < K; f++) {
            const float want = expected_dbias(s, x, start, s->sizes[g], f);

            assert_memory_equal(&dbias[g * K + f], &want, sizeof want);
        }
        for (int64_t i = 0; i < s->sizes[g]; i++, start++) {
            const float want = expected_dprob(s, x, g, start, (float)start);

            assert_memory_equal(&x->dprob[start], &want, sizeof want);
        }
    }
    for (; start < ROWS; start++) /* no group's */
        assert_true(x->dprob[start] >= (float)start &&
                    x->dprob[start] <= (float)start);
}

/* To the bit, with rows of no group, an empty group and factors that are 0. */
TEST(test_quantize_bias)
{
    static const char text[] = "quantize bf16 of=dy g=4 m=300 k=96 "
                               "copies=rowwise prob=1 dbias=1 dprob=1";
    struct bias_numbers x;
    struct qn_quantize_args *a;
    uint64_t draws = 9;
    struct setup s;

    setup_make(&s, text);
    a = &s.need.args;
    assert_int_equal(a->row.ndim, 0); /* nothing but sums is made */
    a->row.data = a->row.sf = a->column.data = a->column.sf = NULL;
    for (int i = 0; i < ROWS; i++) {
        x.probability[i] = i % 7 == 3 ? 0 : qt_draw(&draws, QT_NORMAL);
        x.dprob[i] = (float)i;
    }
    for (int i = 0; i < GROUPS * K; i++)
        x.bias[i] = qt_draw(&draws, QT_NORMAL);
    a->probability = x.probability;
    a->dprob = x.dprob;
    a->bias = x.bias;
    s.sizes[3] = 150; /* and 13 rows are no group's */
    assert_int_equal(qn_quantize_run(s.plan, a, NULL), 0);
    check_bias(&s, &x);
    setup_free(&s);
}

/* One type: the output of a pass over values in strided rows. */
static void add_biases(int type, int weighs)
{
    enum { STRIDE = K + 8 };
    static const struct qn_plan_options options = {.backend =
                                                       QUERN_BACKEND_HOST};
    static const char *const types[] = {
        [QUERN_BF16] = "bf16", [QUERN_F16] = "f16", [QUERN_F32] = "f32"};
    static const int64_t sizes[GROUPS] = {0, 130, 7, 150};
    static unsigned char workspace[256] __attribute__((aligned(256)));
    static float numbers[ROWS * STRIDE], before[ROWS * STRIDE];
    static float bias[GROUPS * K], probability[ROWS];
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct qn_quantization q;
    uint64_t draws = 3;
    int64_t row = 0;
    char text[128];

    for (int i = 0; i < GROUPS * K; i++)
        bias[i] = qt_draw(&draws, QT_NORMAL);
    for (int i = 0; i < ROWS; i++)
        probability[i] = i % 5 == 2 ? 0 : qt_draw(&draws, QT_NORMAL);
    for (int i = 0; i < ROWS * STRIDE; i++)
        qt_store(numbers, type, i, qt_draw(&draws, QT_NORMAL));
    memcpy(before, numbers, sizeof numbers);
    snprintf(text, sizeof text, "bias bf16 of=x g=%d m=%d k=%d in=%s prob=%d",
             GROUPS, ROWS, K, types[type], weighs);
    if (qn_quantize_parse(host_ctx, text, &q) ||
        qn_quantize_needs(host_ctx, &q, &need) ||
        qn_quantize_plan(host_ctx, &q, &options, &plan))
        fail_msg("%s: %s", text, quern_errmsg());
    need.args.out.data = numbers;
    need.args.out.stride = STRIDE;
    need.args.out.bytes = sizeof numbers;
    need.args.first_dims = sizes;
    need.args.sizes_type = QUERN_I64;
    need.args.probability = weighs ? probability : NULL;
    need.args.workspace = workspace;
    need.args.bias = bias;
    if (qn_quantize_run(plan, &need.args, NULL))
        fail_msg("%s: %s", text, quern_errmsg());
    for (int g = 0; g < GROUPS; g++)
        for (int64_t i = 0; i < sizes[g]; i++, row++)
            for (int f = 0; f < K; f++)
                qt_store(before, type, row * STRIDE + f,
                         qt_load(before, type, row * STRIDE + f) +
                             bias[g * K + f] * (weighs ? probability[row] : 1));
    assert_memory_equal(numbers, before, sizeof numbers); /* gaps, too */
    qn_quantize_plan_free(plan);
}

TEST(test_quantize_adds_bias)
{
    for (int type = QUERN_BF16; type <= QUERN_F32; type++)
        for (int weighs = 0; weighs < 2; weighs++)
            add_biases(type, weighs);
}
