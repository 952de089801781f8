/* SPDX-License-Identifier: Apache-2.0 */
/*
** moves.c: tokens to rows of experts and rows to tokens by the host backend,
** through quern.h, against loops in double: copies to the bit, sums and
** products as their order in fp32 says.
*/
#include "host.h"

#include "base/element.h"
#include "base/random.h"
#include "base/types.h"

#include <math.h>
#include <stdio.h>

enum { TOKENS = 37, RUN = 29, TOPK = 3, MOST = 300, PAIRS = TOKENS * TOPK };

/* Rows of `features` values at a stride, with two poisoned values after. */
struct rows {
    int type, features;
    int64_t stride;
    char data[PAIRS * (MOST + 2) * 4];
};

static struct rows tokens, rows, out, residual;
static int inverse[PAIRS];
static float prob[PAIRS], dprob[PAIRS];

static double at(const struct rows *r, int row, int f)
{
    return qn_element_load(r->data, r->type, (size_t)(row * r->stride + f));
}

static void draw(struct rows *r, int type, int features, int gap, uint64_t seed)
{
    r->type = type;
    r->features = features;
    r->stride = features + gap;
    assert_int_equal(
        qn_random_fill(r->data, type, PAIRS * (size_t)r->stride, 0, seed, 1),
        0);
}

/* Every third pair has no row; the others have them in an odd order. */
static void draw_inverse(void)
{
    for (int i = 0; i < PAIRS; i++) {
        inverse[i] = i % 3 == 1 ? -1 - i % 2 : i * 7 % PAIRS;
        prob[i] = (float)(i % 11) * 0.125f - 0.3f;
        dprob[i] = 77;
    }
    for (int i = 0; i < PAIRS; i++)
        if (inverse[i] == RUN * TOPK)
            inverse[i] = -1;
    inverse[5] = RUN * TOPK; /* no row of a run of so many tokens */
    inverse[6] = INT32_MAX;  /* nor is this */
}

static int row_of(int pair, int run)
{
    return inverse[pair] < 0 || inverse[pair] >= run * TOPK ? -1
                                                            : inverse[pair];
}

static double rounded(double x, int type)
{
    char one[8];

    qn_element_store(one, type, 0, x);
    return qn_element_load(one, type, 0);
}

static void give(struct quern_args *args, int arg, struct rows *r)
{
    args->of[arg].data = r->data;
    args->of[arg].stride = r->stride == r->features ? 0 : r->stride;
}

static void run(const char *work, int type, int features, int gap,
                const char *keys, int run_tokens, struct quern_args *args)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;
    char line[160];

    options.backend = QUERN_BACKEND_HOST;
    options.sms = 2 + gap;
    snprintf(line, sizeof line, "%s m=%d topk=%d k=%d in=%s %s", work, TOKENS,
             TOPK, features, qn_type_name(type), keys);
    args->rows = run_tokens;
    args->of[QUERN_ARG_INVERSE].data = inverse;
    if (quern_plan_create(host_ctx, line, &options, &plan) ||
        quern_run(plan, args, NULL))
        fail_msg("%s: %s", line, quern_errmsg());
    quern_plan_destroy(plan);
}

/* dprob: 32 sums of eight neighbours of every 256, added by halves. */
static float dot(int token, int row)
{
    float sums[32] = {0};

    for (int f = 0; f < tokens.features; f++) {
        const float x = (float)at(&tokens, token, f),
                    y = (float)at(&rows, row, f), product = x * y;

        sums[f / 8 % 32] += product;
    }
    for (int half = 16; half; half /= 2)
        for (int i = 0; i < half; i++)
            sums[i] += sums[i + half];
    return sums[0];
}

static void permutes(int type, int features, int gap, int weighted,
                     int run_tokens)
{
    const int used = run_tokens < 0 ? TOKENS : run_tokens;
    struct quern_args args = QUERN_ARGS_INIT;
    static struct rows before;

    draw_inverse();
    draw(&tokens, type, features, gap, 1);
    draw(&rows, type, features, gap, 2);
    draw(&out, type, features, gap, 3);
    before = out;
    give(&args, QUERN_ARG_INPUT, &tokens);
    give(&args, QUERN_ARG_OUTPUT, &out);
    if (weighted) {
        give(&args, QUERN_ARG_ROWS, &rows);
        args.of[QUERN_ARG_PROB].data = prob;
        args.of[QUERN_ARG_DPROB].data = dprob;
    }
    run("permute", type, features, gap, weighted ? "prob=1 dprob=1" : "",
        run_tokens, &args);
    for (int pair = 0; pair < PAIRS; pair++) {
        const int row = pair < used * TOPK ? row_of(pair, used) : -1;

        if (weighted)
            assert_true(dprob[pair] == (pair >= used * TOPK ? 77
                                        : row < 0           ? 0
                                                  : dot(pair / TOPK, row)));
        for (int f = 0; f < features && row >= 0; f++) {
            const double x = at(&tokens, pair / TOPK, f);
            const float y = weighted ? prob[pair] * (float)x : (float)x;

            assert_true(at(&out, row, f) == rounded(y, type));
        }
        for (int f = 0; f < out.stride && row >= 0; f++)
            if (f < features) /* as it was before, for the comparison below */
                qn_element_store(out.data, type, (size_t)(row * out.stride + f),
                                 at(&before, row, f));
    }
    assert_memory_equal(out.data, before.data, sizeof out.data);
}

static void combines(int type, int features, int gap, int weighted,
                     int run_tokens)
{
    const int used = run_tokens < 0 ? TOKENS : run_tokens;
    struct quern_args args = QUERN_ARGS_INIT;

    draw_inverse();
    draw(&rows, type, features, gap, 4);
    draw(&residual, type, features, gap, 5);
    out = residual; /* in place, if it is added */
    give(&args, QUERN_ARG_INPUT, &rows);
    give(&args, QUERN_ARG_OUTPUT, &out);
    if (weighted) {
        args.of[QUERN_ARG_PROB].data = prob;
        give(&args, QUERN_ARG_C, &out);
    }
    run("combine", type, features, gap, weighted ? "prob=1 residual=1" : "",
        run_tokens, &args);
    for (int token = 0; token < TOKENS; token++)
        for (int f = 0; f < features + gap; f++) {
            float sum = 0;

            for (int k = 0; k < TOPK && f < features; k++) {
                const int pair = token * TOPK + k, row = row_of(pair, used);
                const float y = row < 0 ? 0 : (float)at(&rows, row, f);
                const float product = weighted ? prob[pair] * y : y;

                sum = row < 0 ? sum : sum + product;
            }
            if (weighted)
                sum += (float)at(&residual, token, f);
            assert_true(at(&out, token, f) == (f < features && token < used
                                                   ? rounded(sum, type)
                                                   : at(&residual, token, f)));
        }
}

static void all(void (*check)(int, int, int, int, int))
{
    static const int types[] = {QUERN_BF16, QUERN_F16, QUERN_F32};
    static const int features[] = {1, 7, 8, 64, MOST};

    for (int t = 0; t < 3; t++)
        for (int f = 0; f < 5; f++)
            for (int gap = 0; gap < 3; gap += 2)
                for (int weighted = 0; weighted < 2; weighted++) {
                    check(types[t], features[f], gap, weighted, -1);
                    check(types[t], features[f], gap, weighted, RUN);
                }
}

TEST(test_permutes)
{
    all(permutes);
}

TEST(test_combines)
{
    all(combines);
}

/* Only dprob is made. */
TEST(test_permutes_no_rows)
{
    struct quern_args args = QUERN_ARGS_INIT;

    draw_inverse();
    draw(&tokens, QUERN_BF16, 64, 0, 1);
    draw(&rows, QUERN_BF16, 64, 0, 2);
    give(&args, QUERN_ARG_INPUT, &tokens);
    give(&args, QUERN_ARG_ROWS, &rows);
    args.of[QUERN_ARG_PROB].data = prob;
    args.of[QUERN_ARG_DPROB].data = dprob;
    run("permute", QUERN_BF16, 64, 0, "prob=1 dprob=1", -1, &args);
    assert_true(dprob[0] == dot(0, 0));
    assert_true(dprob[1] == 0);
}

TEST(test_moves_refused)
{
    static const char *const lines[][2] = {
        {"permute m=4 topk=1 k=8 dprob=1", "dprob=1 needs prob=1"},
        {"permute m=4 topk=1 k=0", "k is 0: 1 to"},
        {"permute m=4 topk=1", "k= is missing"},
        {"permute m=4 topk=1 k=8 residual=1",
         "residual=: a 'permute' line has no such key"},
        {"combine m=4 topk=1 k=8 prob=1 dprob=1",
         "dprob=: a 'combine' line has no such key"},
        {"combine m=4 topk=1 k=8 g=2", "g=: a 'combine' line has no such key"},
        {"route g=8 m=4 topk=1 k=8", "k=: a 'route' line has no such key"},
        {"combine m=4 topk=1 k=8 in=e4m3", "in=e4m3: bf16, f16 or f32"},
        {"permte m=4 topk=1 k=8", "permte: route, permute, combine"},
    };

    host_refuses(lines, (int)(sizeof lines / sizeof lines[0]));
}

TEST(test_moves_refused_arguments)
{
    static const char *const texts[] = {"input is NULL", "prob is NULL",
                                        "output", "workspace is not NULL"};
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;

    options.backend = QUERN_BACKEND_HOST;
    assert_int_equal(quern_plan_create(host_ctx,
                                       "combine m=37 topk=3 k=64 prob=1",
                                       &options, &plan),
                     QUERN_OK);
    draw_inverse();
    draw(&rows, QUERN_BF16, 64, 0, 1);
    for (int i = 0; i < 4; i++) {
        struct quern_args args = QUERN_ARGS_INIT;

        args.of[QUERN_ARG_INVERSE].data = inverse;
        args.of[QUERN_ARG_PROB].data = i == 1 ? NULL : prob;
        args.of[QUERN_ARG_INPUT].data = i == 0 ? NULL : rows.data;
        args.of[QUERN_ARG_OUTPUT].data = i == 2 ? rows.data + 64 : out.data;
        args.of[QUERN_ARG_WORKSPACE].data = i == 3 ? out.data : NULL;
        assert_int_equal(quern_run(plan, &args, NULL), QUERN_EINVAL);
        if (!strstr(quern_errmsg(), texts[i]))
            fail_msg("%s: %s", texts[i], quern_errmsg());
        assert_int_equal(quern_check(plan, &args, NULL), QUERN_EINVAL);
    }
    quern_plan_destroy(plan);
}
