/* SPDX-License-Identifier: Apache-2.0 */
/*
** moe.c: layers from unpermuted tokens by the host backend, through quern.h:
** every recipe against a chain in double over routes that have broken kernels,
** tokens that depend on no others, phases, arguments.
*/
#include "host_moe.h"

#include "api/api.h"
#include "base/random.h"
#include "base/types.h"
#include "layer/moe_plan.h"
#include "mlp/mlp_plan.h"
#include "support/route.h"

#include <stdio.h>

static const struct qn_options options = {.command = "test_host", .seed = 11};

void host_moe_begin(struct qn_moe_job *j, const char *text)
{
    struct qn_moe moe;

    if (qn_moe_parse(host_ctx, text, &moe) ||
        qn_moe_job_begin(j, &options, host_ctx, &moe, QUERN_BACKEND_HOST, NULL))
        fail_msg("%s: %s", text, quern_errmsg());
}

void host_moe_run(struct qn_moe_job *j, const char *text)
{
    if (qn_call_run(&j->call))
        fail_msg("%s: %s", text, quern_errmsg());
}

static void check(struct qn_moe_job *j, const char *text, const char *draw)
{
    struct qn_layer_verdict v;

    if (qn_moe_job_judge(j, 1 << 20, &v))
        fail_msg("%s: %s", text, quern_errmsg());
    for (int i = 0; v.results[i].name; i++)
        if (!(v.results[i].error <= v.results[i].tolerance))
            fail_msg("%s, routes %s: %s is %.2e away (at most %.0e)", text,
                     draw, v.results[i].name, v.results[i].error,
                     v.results[i].tolerance);
    if (!v.passed)
        fail_msg("%s, routes %s: guards %d, untouched %d", text, draw, v.guards,
                 v.untouched);
}

/* ------------------------------------------------------------------ routes */

/* Everything of a line over a kind of route; with a part of the tokens. */
static void try_route(struct qn_moe_job *j, const char *text, enum qt_route how)
{
    qt_route_draw(j, how);
    assert_int_equal(qn_moe_job_route(j), QUERN_OK);
    assert_int_equal(qn_call_reset(&j->call), QUERN_OK);
    host_moe_run(j, text);
    check(j, text, qt_routes[how]);
}

static const char *const weights[] = {"h", "y", "x", "none"};
static const char *const interleaves[] = {"", " interleave=8", " interleave=1"};

enum { ACTIVATIONS = QUERN_ACTIVATION_COUNT - 1 }; /* all but none */

/* Every recipe; all else that a line may say, in turns. */
TEST(test_moe_right)
{
    const struct quern_registry *all = &qn_registry_builtin;
    char text[256];
    int turn = 0;

    for (int r = 0; r < all->nrecipes; r++)
        for (int i = 0; i < 4; i++, turn++) {
            struct qn_moe_job j;
            const struct qn_recipe *recipe = &all->recipes[r];
            const int topk = 1 + turn % 3;

            if (recipe->dy == QUERN_TYPE_NONE)
                continue; /* for serving */
            if (recipe->scaling[0].history > 0 && i > 0)
                continue; /* clears histories of 1024 slots each time */
            snprintf(text, sizeof text,
                     "moe %s g=4 m=%d topk=%d hidden=%d ffn=%d activation=%s "
                     "prob=%s bias=%d residual=%d index=%s experts=%d first=%d "
                     "recompute=%d beta=%d%s",
                     recipe->name, 27 + turn % 5, topk, turn % 4 ? 64 : 80,
                     turn % 3 ? 40 : 48,
                     qn_activation_name(1 + turn % ACTIVATIONS), weights[i],
                     turn % 2, turn / 2 % 2, turn % 3 ? "i32" : "i64",
                     turn % 4 == 1 ? 9 : 4, turn % 4 == 1 ? 3 : 0,
                     turn % 5 == 2, turn % 7 == 3, interleaves[turn % 3]);
            host_moe_begin(&j, text);
            try_route(&j, text, QT_SPREAD);
            try_route(&j, text, (enum qt_route)(1 + turn % (QT_ROUTES - 1)));
            qn_moe_job_free(&j);
        }
}

/* Every kind of route, for lines that differ. */
TEST(test_moe_routes)
{
    static const char *const lines[] = {
        "moe bf16 g=3 m=65 topk=2 hidden=64 ffn=32 bias=1",
        "moe fp16 g=1 m=33 topk=1 hidden=32 ffn=32 prob=y residual=1",
        "moe fp8_block g=5 m=40 topk=4 hidden=128 ffn=64 experts=9 index=i64",
        "moe mxfp8 g=65 m=9 topk=32 hidden=64 ffn=64 prob=x",
        "moe bf16 g=256 m=3 topk=8 hidden=16 ffn=8 recompute=1",
        "moe bf16 g=4 m=1 topk=3 hidden=16 ffn=8 grad=0 residual=1",
        "moe bf16 g=3 m=65 topk=1 hidden=64 ffn=32 scatter=1",
        "moe fp16 g=5 m=129 topk=1 hidden=72 ffn=32 scatter=1 prob=x experts=9",
        "moe bf16 g=65 m=64 topk=1 hidden=48 ffn=24 scatter=1 bias=1 prob=none",
        "moe bf16 g=4 m=7 topk=3 hidden=33 ffn=8 scatter=1 prob=y index=i64",
        "moe fp8_block g=3 m=40 topk=1 hidden=128 ffn=64 scatter=1 experts=9",
        "moe mxfp8 g=1 m=1 topk=1 hidden=64 ffn=64 scatter=1 grad=0",
        "moe bf16 g=2 m=20 topk=1 hidden=64 ffn=32 scatter=1 recompute=1",
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct qn_moe_job j;

        host_moe_begin(&j, lines[i]);
        for (int how = 0; how < QT_ROUTES; how++)
            try_route(&j, lines[i], (enum qt_route)how);
        qn_moe_job_free(&j);
    }
}

/* No tokens at all: gradients of weights become zeros. */
TEST(test_moe_empty)
{
    const char *text = "moe bf16 g=4 m=0 topk=2 hidden=64 ffn=32 bias=1";
    struct qn_moe_job j;

    host_moe_begin(&j, text);
    host_moe_run(&j, text);
    check(&j, text, "of no tokens");
    qn_moe_job_free(&j);
}

/* ----------------------------------------------------- tokens or rows of x */

static const int results[] = {QUERN_ARG_Y, QUERN_ARG_DX, QUERN_ARG_DW1,
                              QUERN_ARG_DW2};

/* A run with a factor of 1 for each pair. */
static void begin_ones(struct qn_moe_job *j, const char *recipe,
                       const char *weights_of, const char *rest)
{
    char text[256];

    snprintf(text, sizeof text,
             "moe %s g=5 m=140 topk=3 hidden=%s ffn=48 experts=6 prob=%s",
             recipe, rest, weights_of);
    host_moe_begin(j, text);
    for (int i = 0; i < 140 * 3 && strcmp(weights_of, "none") != 0; i++)
        ((float *)(void *)j->call.memory[QUERN_ARG_PROB].data)[i] = 1;
    host_moe_run(j, text);
}

/* Casts read tokens through indices, but rows where these are not tokens' own
   values: the same bytes, as factors of 1 change none. */
static void gather_or_move(const char *recipe, const char *rest)
{
    struct qn_moe_job tokens, rows;

    begin_ones(&tokens, recipe, "none", rest);
    for (int i = 0; i < 2; i++) {
        begin_ones(&rows, recipe, i ? "x" : "y", rest);
        for (int k = 0; k < 4; k++)
            if (memcmp(tokens.call.memory[results[k]].data,
                       rows.call.memory[results[k]].data,
                       rows.call.memory[results[k]].bytes) != 0)
                fail_msg("%s %s: %s differs from that of prob=%s", recipe, rest,
                         qn_api_name(results[k]), i ? "x" : "y");
        qn_moe_job_free(&rows);
    }
    qn_moe_job_free(&tokens);
}

TEST(test_moe_gathered_casts)
{
    const struct quern_registry *all = &qn_registry_builtin;
    static const char *const rest[] = {"80", "64 in=f32", "128 in=f16"};

    for (int r = 0; r < all->nrecipes; r++)
        if (all->recipes[r].scaling[0].type != QUERN_TYPE_NONE &&
            all->recipes[r].dy != QUERN_TYPE_NONE)
            gather_or_move(all->recipes[r].name, rest[r % 3]);
}

/* A plan whose kernel writes no pre needs no memory for it. */
TEST(test_moe_workspace)
{
    const char *text = "moe bf16 g=4 m=64 topk=4 hidden=64 ffn=96 grad=0";
    struct qn_mlp_description need;
    struct quern_plan_info info;
    struct qn_moe_job j;

    host_moe_begin(&j, text);
    assert_int_equal(qn_moe_needs(host_ctx, &j.moe, &need), QUERN_OK);
    assert_int_equal(quern_plan_info(j.call.plan, &info), QUERN_OK);
    assert_int_equal(need.workspace_bytes - info.workspace_bytes,
                     64 * 4 * (2 * 96) * 2);
    host_moe_run(&j, text);
    check(&j, text, "drawn");
    qn_moe_job_free(&j);
}

/* -------------------------------------------------- dependence on a batch */

/* Recipes that scale within a token, without chance. */
static int is_within(const struct qn_recipe *recipe)
{
    static const char *const names[] = {"bf16",      "fp16",  "fp8_row",
                                        "fp8_block", "mxfp8", "mxfp4"};

    for (int i = 0; i < 6; i++)
        if (!strcmp(names[i], recipe->name))
            return 1;
    return 0;
}

/* A result's bytes of one token. */
static void same_token(const struct qn_moe_job *a, int64_t at,
                       const struct qn_moe_job *b, int64_t other, int arg,
                       const char *text)
{
    const size_t bytes = a->call.memory[arg].bytes / (size_t)a->moe.mlp.m;

    if (memcmp(a->call.memory[arg].data + (size_t)at * bytes,
               b->call.memory[arg].data + (size_t)other * bytes, bytes) != 0)
        fail_msg("%s: %s of token %lld differs with other tokens", text,
                 qn_api_name(arg), (long long)at);
}

static void copy_token(const struct qn_moe_job *a, int64_t at,
                       struct qn_moe_job *b, int64_t to, int arg)
{
    const size_t bytes = a->call.memory[arg].bytes / (size_t)a->moe.mlp.m;

    memcpy(b->call.memory[arg].data + (size_t)to * bytes,
           a->call.memory[arg].data + (size_t)at * bytes, bytes);
}

/* Some tokens of one batch in a batch of another size, in another order, with
   other neighbours: the same bits. */
static void move_tokens(const char *recipe, const char *rest, int m)
{
    static const int read[] = {QUERN_ARG_X, QUERN_ARG_DY, QUERN_ARG_PROB,
                               QUERN_ARG_INDEX};
    static const int made[] = {QUERN_ARG_Y, QUERN_ARG_DX, QUERN_ARG_DPROB};
    struct qn_moe_job all, few;
    char text[2][256];

    for (int i = 0; i < 2; i++)
        snprintf(text[i], sizeof text[i],
                 "moe %s g=8 m=%d topk=2 hidden=128 ffn=64 %s", recipe,
                 i ? m : 150, rest);
    host_moe_begin(&all, text[0]);
    host_moe_begin(&few, text[1]);
    for (int i = 0; i < m; i++)
        for (int k = 0; k < 4; k++)
            copy_token(&all, (i * 7 + 3) % 150, &few, i, read[k]);
    host_moe_run(&all, text[0]);
    host_moe_run(&few, text[1]);
    for (int i = 0; i < m; i++)
        for (int k = 0; k < 3; k++)
            same_token(&few, i, &all, (i * 7 + 3) % 150, made[k], text[1]);
    qn_moe_job_free(&all);
    qn_moe_job_free(&few);
}

TEST(test_moe_batch_invariant)
{
    const struct quern_registry *all = &qn_registry_builtin;
    static const int sizes[] = {1, 2, 17, 149};

    for (int r = 0; r < all->nrecipes; r++)
        for (int i = 0; i < 4 && is_within(&all->recipes[r]); i++)
            move_tokens(all->recipes[r].name,
                        i % 2 ? "prob=y bias=1" : "prob=h recompute=1",
                        sizes[i]);
}

/* Two ranks with half of the experts each: the sums of what they have. */
TEST(test_moe_ranks)
{
    const char *halves[] = {
        "moe bf16 g=4 m=60 topk=1 hidden=64 ffn=32 experts=8",
        "moe bf16 g=4 m=60 topk=1 hidden=64 ffn=32 experts=8 first=4"};
    const char *whole = "moe bf16 g=8 m=60 topk=1 hidden=64 ffn=32";
    struct qn_moe_job all, half;

    host_moe_begin(&all, whole);
    host_moe_run(&all, whole);
    for (int rank = 0; rank < 2; rank++) {
        host_moe_begin(&half, halves[rank]);
        memcpy(half.index, all.index, 60 * sizeof *half.index);
        assert_int_equal(qn_moe_job_route(&half), 0);
        for (int arg = QUERN_ARG_W1; arg <= QUERN_ARG_W2; arg++)
            memcpy(half.call.memory[arg].data,
                   all.call.memory[arg].data +
                       (size_t)rank * half.call.memory[arg].bytes,
                   half.call.memory[arg].bytes);
        host_moe_run(&half, halves[rank]);
        for (int token = 0; token < 60; token++)
            if (all.index[token] / 4 == rank)
                same_token(&half, token, &all, token, QUERN_ARG_Y,
                           halves[rank]);
        qn_moe_job_free(&half);
    }
    qn_moe_job_free(&all);
}

/* ------------------------------------------------------------------ phases */

static int64_t bytes_of(const struct qn_moe_job *j, int arg)
{
    return (int64_t)j->call.memory[arg].bytes;
}

/* Forward keeps no rows of x: maps, pre, and h for the gradient of w2. It
   keeps x's columnwise tensor if backward could make another one. */
TEST(test_moe_keeps_no_rows)
{
    static const char *const recipes[] = {"fp8_row", "fp8_block", "fp8_tensor",
                                          "mxfp8", "bf16"};
    const int64_t rows = 64 * 4, hidden = 2048;
    struct qn_moe_job j;
    char text[128];

    for (int i = 0; i < 6; i++) {
        snprintf(text, sizeof text, "moe %s g=2 m=64 topk=4 hidden=2048 ffn=32",
                 i < 5 ? recipes[i] : "fp8_tensor_delayed");
        host_moe_begin(&j, text);
        if ((bytes_of(&j, QUERN_ARG_SAVED) < rows * hidden) != (i < 5))
            fail_msg("%s: %lld bytes are saved", text,
                     (long long)bytes_of(&j, QUERN_ARG_SAVED));
        j.call.args.phase = QUERN_PHASE_BACKWARD;
        j.call.args.of[QUERN_ARG_X].data = NULL;
        assert_int_equal(
            quern_run(j.call.plan, &j.call.args, NULL) == QUERN_EINVAL, i < 5);
        qn_moe_job_free(&j);
    }
}

/* Gradients of weights at once, later, and from a queue: the same bytes. */
static void postpone(const char *text, int queued)
{
    struct qn_moe_job now, later;
    struct quern_queue *queue;
    struct quern_args args;

    host_moe_begin(&now, text);
    host_moe_begin(&later, text);
    host_moe_run(&now, text);
    args = later.call.args;
    args.rows = later.call.args.rows;
    for (int phase = 3; phase >= 0; phase -= phase == 3 ? 3 : 4) {
        args.phase = phase;
        assert_int_equal(quern_run(later.call.plan, &args, NULL), QUERN_OK);
    }
    args.phase = QUERN_PHASE_BACKWARD;
    args.of[QUERN_ARG_DW1].data = args.of[QUERN_ARG_DW2].data = NULL;
    assert_int_equal(quern_run(later.call.plan, &args, NULL), QUERN_OK);
    qn_memory_clear(&later.call.memory[QUERN_ARG_X], 0xff);
    qn_memory_clear(&later.call.memory[QUERN_ARG_DY], 0xff);
    args = later.call.args;
    args.rows = later.call.args.rows;
    args.phase = QUERN_PHASE_WGRAD;
    if (queued) {
        assert_int_equal(quern_queue_create(host_ctx, 4, &queue), QUERN_OK);
        assert_int_equal(quern_queue_put(queue, later.call.plan, &args, 0),
                         QUERN_OK);
        assert_int_equal(quern_queue_count(queue, 0), 2);
        assert_int_equal(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK);
        quern_queue_destroy(queue);
    } else {
        assert_int_equal(quern_run(later.call.plan, &args, NULL), QUERN_OK);
    }
    for (int arg = QUERN_ARG_DW1; arg <= QUERN_ARG_DW2; arg++)
        assert_memory_equal(now.call.memory[arg].data,
                            later.call.memory[arg].data,
                            now.call.memory[arg].bytes);
    qn_moe_job_free(&now);
    qn_moe_job_free(&later);
}

TEST(test_moe_later)
{
    static const char *const recipes[] = {"bf16", "fp8_block", "mxfp8"};
    char text[128];

    for (int i = 0; i < 6; i++) {
        snprintf(text, sizeof text,
                 "moe %s g=4 m=50 topk=2 hidden=128 ffn=64 prob=%s",
                 recipes[i % 3], weights[i % 4]);
        postpone(text, i > 2);
    }
}

/* Only the gradient of probabilities, none of tokens. */
TEST(test_moe_without_dx)
{
    for (int i = 0; i < 3; i++) {
        struct qn_moe_job with, without;
        char text[128];

        snprintf(text, sizeof text,
                 "moe bf16 g=4 m=50 topk=2 hidden=64 ffn=32 prob=%s",
                 weights[i]);
        host_moe_begin(&with, text);
        host_moe_begin(&without, text);
        without.call.args.of[QUERN_ARG_DX].data = NULL;
        host_moe_run(&with, text);
        host_moe_run(&without, text);
        assert_memory_equal(with.call.memory[QUERN_ARG_DPROB].data,
                            without.call.memory[QUERN_ARG_DPROB].data,
                            with.call.memory[QUERN_ARG_DPROB].bytes);
        for (size_t k = 0; k < without.call.memory[QUERN_ARG_DX].bytes; k++)
            assert_int_equal(
                (unsigned char)without.call.memory[QUERN_ARG_DX].data[k],
                QN_MEMORY_POISON);
        qn_moe_job_free(&with);
        qn_moe_job_free(&without);
    }
}

/* The residual may be y itself; tokens may have strides. */
TEST(test_moe_in_place)
{
    const char *text = "moe bf16 g=4 m=50 topk=2 hidden=64 ffn=32 residual=1";
    static uint16_t apart[50 * 72];
    struct qn_moe_job j, other;

    host_moe_begin(&j, text);
    host_moe_begin(&other, text);
    host_moe_run(&j, text);
    for (int i = 0; i < 50; i++)
        memcpy(apart + (ptrdiff_t)72 * i,
               other.call.memory[QUERN_ARG_C].data + (ptrdiff_t)128 * i, 128);
    other.call.args.of[QUERN_ARG_Y].data =
        other.call.args.of[QUERN_ARG_C].data = apart;
    other.call.args.of[QUERN_ARG_Y].stride =
        other.call.args.of[QUERN_ARG_C].stride = 72;
    host_moe_run(&other, text);
    for (int i = 0; i < 50; i++)
        assert_memory_equal(
            apart + (ptrdiff_t)72 * i,
            j.call.memory[QUERN_ARG_Y].data + (ptrdiff_t)128 * i, 128);
    qn_moe_job_free(&j);
    qn_moe_job_free(&other);
}

/* --------------------------------------------------------------- bad input */

/* The pair is named, counts for nothing, and the layer goes on. */
TEST(test_moe_bad_index)
{
    const char *text = "moe bf16 g=4 m=50 topk=2 hidden=64 ffn=32 index=i64";
    struct qn_moe_job j;

    host_moe_begin(&j, text);
    j.index[77] = 5;
    j.index[78] = INT64_MAX;
    assert_int_equal(qn_moe_job_route(&j), QUERN_OK);
    assert_int_equal(qn_call_run(&j.call), QUERN_ESIZES);
    assert_string_equal(quern_errmsg(),
                        "token 38, k 1: index is 5: at most 3 is expected, or "
                        "4 of a dropped one");
    check(&j, text, "with bad indices");
    assert_int_equal(quern_check(j.call.plan, &j.call.args, NULL), QUERN_OK);
    qn_moe_job_free(&j);
}

TEST(test_moe_refused)
{
    static const char *const lines[][2] = {
        {"moe bf16 g=8 m=4 topk=0 hidden=8 ffn=8", "topk is 0: 1 to 32"},
        {"moe bf16 g=8 m=4 hidden=8 ffn=8", "topk= is missing"},
        {"moe bf16 g=8 m=4 topk=2 hidden=8", "ffn= is missing"},
        {"moe bf16 g=8 m=4 topk=2 hidden=8 ffn=8 experts=7",
         "experts is 7: at least first + g = 8"},
        {"moe bf16 g=8 m=8388609 topk=2 hidden=8 ffn=8",
         "m * topk is 16777218: at most 2^24"},
        {"moe bf16 g=8 m=4 topk=2 hidden=8 ffn=8 prob=1",
         "prob=1: none, x, h or y is expected"},
        {"moe bf16 g=8 m=4 topk=1 hidden=8 ffn=8 scatter=1 residual=1",
         "scatter=1 cannot be combined with residual=1"},
        {"moe bf16 g=8 m=4 topk=1 hidden=8 ffn=8 scatter=2",
         "scatter=2: 0 or 1 is expected"},
        {"moe bf16 g=8 m=4 topk=2 hidden=8 ffn=8 grad=0 recompute=1",
         "recompute=1 is about backward"},
        {"moe bf16 g=8 m=4 topk=2 hidden=8 ffn=8 sizes=host",
         "'sizes' is unknown"},
        {"moe bf61 g=8 m=4 topk=2 hidden=8 ffn=8", "recipe 'bf61' is unknown"},
        {"moo bf16 g=8 m=4 topk=2 hidden=8 ffn=8",
         "'moo': a layer begins with moe"},
    };

    host_refuses(lines, (int)(sizeof lines / sizeof lines[0]));
}

TEST(test_moe_refused_arguments)
{
    static const struct {
        int arg, phase;
        const char *text;
    } missing[] = {
        {QUERN_ARG_INDEX, QUERN_PHASE_FORWARD, "index is NULL"},
        {QUERN_ARG_X, QUERN_PHASE_FORWARD, "x is NULL"},
        {QUERN_ARG_PROB, QUERN_PHASE_FORWARD, "prob is NULL"},
        {QUERN_ARG_W1, QUERN_PHASE_FORWARD, "w1 is NULL"},
        {QUERN_ARG_SAVED, QUERN_PHASE_FORWARD, "saved is NULL"},
        {QUERN_ARG_WORKSPACE, QUERN_PHASE_FORWARD, "workspace is NULL"},
        {QUERN_ARG_DY, QUERN_PHASE_BACKWARD, "dy is NULL"},
        {QUERN_ARG_X, QUERN_PHASE_BACKWARD, "x is NULL"},
        {QUERN_ARG_PENDING, QUERN_PHASE_WGRAD, "pending is NULL"}};
    const char *text = "moe bf16 g=4 m=50 topk=2 hidden=64 ffn=32";
    const int64_t sizes[4] = {0};
    struct quern_args args;
    struct qn_moe_job j;

    host_moe_begin(&j, text);
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        args = j.call.args;
        args.phase = missing[i].phase;
        args.of[missing[i].arg].data = NULL;
        assert_int_equal(quern_run(j.call.plan, &args, NULL), QUERN_EINVAL);
        if (!strstr(quern_errmsg(), missing[i].text))
            fail_msg("%s: %s", missing[i].text, quern_errmsg());
    }
    for (int i = 0; i < 4; i++) {
        static const char *const texts[] = {"host_sizes is not NULL",
                                            "lengths is not NULL",
                                            "args.rows is 51", "y overlaps x"};

        args = j.call.args;
        if (i == 0)
            args.host_sizes = sizes;
        else if (i == 1)
            args.of[QUERN_ARG_LENGTHS].data = j.call.memory[QUERN_ARG_X].data;
        else if (i == 2)
            args.rows = 51;
        else
            args.of[QUERN_ARG_Y].data = j.call.memory[QUERN_ARG_X].data + 128;
        assert_int_equal(quern_run(j.call.plan, &args, NULL), QUERN_EINVAL);
        if (!strstr(quern_errmsg(), texts[i]))
            fail_msg("%s: %s", texts[i], quern_errmsg());
    }
    qn_moe_job_free(&j);
}
