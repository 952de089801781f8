/* SPDX-License-Identifier: Apache-2.0 */
/* play_moe.c: layers from unpermuted tokens, played. */
#include "log.h"
#include "play.h"

#include "choose/select.h"
#include "devices.h"
#include "layer/moe_plan.h"
#include "mlp/mlp_plan.h"
#include "product/plan.h"

/* Tokens have rows in place of groups. */
static void give_moe(struct play *play, const struct qn_moe *moe,
                     const struct qn_mlp_description *need,
                     struct qn_mlp_args *args)
{
    const int weighted = moe->mlp.probability != QUERN_WEIGHTS_NONE;
    const int64_t pairs = moe->mlp.m * moe->topk;
    struct qn_mlp mlp = moe->mlp;

    mlp.probability = 0;
    play_mlp_args(play, &mlp, need, args);
    play_tensor(play, "c", &args->residual, 0, mlp.m, mlp.groups);
    args->first_dims = args->offsets = NULL;
    args->index = play_region(play, "index", 8 * (size_t)pairs);
    args->probability = play_floats(play, "probability", weighted, pairs);
    args->dprob =
        play_floats(play, "dprob", weighted && !mlp.forward_only, pairs);
    args->errors = play_region(play, "errors", QN_WORKSPACE_BYTES);
    if (!moe->scatter)
        return;
    args->y.data = args->dx.data = NULL;
    args->y_addresses = play_region(play, "y_addresses", 8 * (size_t)mlp.m);
    if (!mlp.forward_only)
        args->dx_addresses =
            play_region(play, "dx_addresses", 8 * (size_t)mlp.m);
}

static void run_moe_phase(struct play *play, const struct qn_moe_plan *plan,
                          const struct qn_mlp_args *args, int phase,
                          const char *name)
{
    fprintf(play->log, "  - %s\n", name);
    play_failed(play, name, qn_moe_run(plan, args, phase, NULL));
}

static void run_moe(struct play *play, const struct qn_moe *moe,
                    const struct qn_mlp_description *need,
                    const struct qn_moe_plan *plan)
{
    struct qn_mlp_args args, without;
    struct quern_queue *queue;

    give_moe(play, moe, need, &args);
    without = args;
    without.dw1 = without.dw2 = (struct qn_tensor){.data = NULL};
    run_moe_phase(play, plan, &args, QUERN_PHASE_WEIGHTS, "weights");
    run_moe_phase(play, plan, &args, QUERN_PHASE_FORWARD, "forward");
    if (moe->mlp.forward_only)
        return;
    run_moe_phase(play, plan, &without, QUERN_PHASE_BACKWARD, "backward");
    run_moe_phase(play, plan, &args, QUERN_PHASE_WGRAD, "wgrad");
    if (!play->how.queue)
        return;
    fprintf(play->log, "  - put and flush\n");
    queue = play_queue(play);
    for (; play->part < play->how.queue; play->part++) {
        const struct qn_mlp_args first = args;

        if (play->part)
            give_moe(play, moe, need, &args);
        args.dw1 = first.dw1, args.dw2 = first.dw2;
        play_failed(play, "put", qn_moe_put(plan, &args, queue, 0));
    }
    play_flush(play, queue);
}

void play_moe(struct play *play)
{
    struct qn_mlp_description need;
    struct qn_moe_plan *plan;
    struct qn_moe moe;
    char *why = NULL;

    if (play_failed(play, "parse", qn_moe_parse(play->ctx, play->line, &moe)) ||
        play_failed(play, "describe", qn_moe_needs(play->ctx, &moe, &need)))
        return;
    play_explain(play, qn_moe_why(play->ctx, &moe, &play->options, &why), &why);
    if (play_failed(play, "plan",
                    qn_moe_plan(play->ctx, &moe, &play->options, &plan)))
        return;
    fprintf(play->log, "  workspace %zu, saved %zu, pending %zu\n",
            need.workspace_bytes, need.saved_bytes, need.pending_bytes);
    run_moe(play, &moe, &need, plan);
    qn_moe_plan_free(plan);
}

/* ---------------------------------------------------------- orders of sums */

/* The order in which a product adds along k, whether dh is rounded before, and
   whether it adds the bias, before D is rounded. */
static int order_of(struct quern_context *ctx, const char *recipe,
                    int64_t tokens, int product)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_AOT};
    const struct qn_plan *part;
    struct qn_moe_plan *plan;
    struct qn_moe moe;
    char line[128];
    int order;

    snprintf(line, sizeof line,
             "moe %s g=8 m=%lld topk=2 hidden=2048 ffn=1024 bias=1", recipe,
             (long long)tokens);
    assert_int_equal(qn_moe_parse(ctx, line, &moe), QUERN_OK);
    if (qn_moe_plan(ctx, &moe, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    part = plan->mlp->launches[product].product;
    order = part->problem.dequantize > QUERN_DEQUANTIZE_PASS ? -1
            : part->problem.dequantize == QUERN_DEQUANTIZE_PASS
                ? 0 /* of plain products */
                : qn_select_sums(part->kernel) + 2 * plan->mlp->back;
    order += 4 * part->problem.bias;
    qn_moe_plan_free(plan);
    return order;
}

/* A token's bits depend on no number of tokens, and an expert's gradients on
   nothing but its rows: the kernels of one order serve all numbers. */
static void one_order(struct quern_context *ctx, const char *recipe)
{
    static const int64_t tokens[] = {1, 5, 40, 500, 4000, 60000};

    for (int product = QN_MLP_PRE; product <= QN_MLP_DW1; product++)
        for (int i = 1; i < 6; i++)
            if (order_of(ctx, recipe, tokens[i], product) !=
                order_of(ctx, recipe, tokens[0], product))
                fail_msg("%s: product %d of %lld tokens adds in another order",
                         recipe, product, (long long)tokens[i]);
}

TEST(layers_have_one_order_of_sums)
{
    static const char *const recipes[] = {"bf16",      "fp16",  "fp8_row",
                                          "fp8_block", "mxfp8", "mxfp4"};
    static const int devices[] = {0, 3}; /* of 9.0 and 10.0 */

    for (int d = 0; d < 2; d++) {
        struct quern_context *ctx = device_use(devices[d]);

        log_begin(device_registry(), stderr, 0);
        for (int r = 0; r < 6; r++)
            one_order(ctx, recipes[r]);
        log_end();
        log_forget();
    }
}

/* Products of pre and dh that read tokens, and the strategy of dh. */
struct reads {
    const char *recipe, *more;
    int64_t m;
    int x, dy, strategy;
};

static void read_tokens(struct quern_context *ctx, const struct reads *row)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_AOT};
    struct qn_moe_plan *layer;
    const struct qn_mlp_plan *plan;
    struct qn_moe moe;
    char line[160];
    int strategy;

    snprintf(line, sizeof line,
             "moe %s g=128 m=%lld topk=8 hidden=2048 ffn=768%s", row->recipe,
             (long long)row->m, row->more);
    assert_int_equal(qn_moe_parse(ctx, line, &moe), QUERN_OK);
    assert_int_equal(qn_moe_plan(ctx, &moe, &options, &layer), QUERN_OK);
    plan = layer->mlp;
    strategy = plan->launches[QN_MLP_DH].product->problem.dequantize;
    if (plan->gathers != row->x || plan->gathers_dy != row->dy ||
        strategy != row->strategy)
        fail_msg("%s: %d, %d, %d", line, plan->gathers, plan->gathers_dy,
                 strategy);
    assert_int_equal(!!plan->launches[QN_MLP_DY_LATER].cast, row->dy);
    qn_moe_plan_free(layer);
}

TEST(layers_read_tokens_where_it_pays)
{
    static const struct reads rows[] = {
        {"bf16", "", 8192, 0, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_block", "", 8192, 1, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_row", "", 8192, 1, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_block", " gather=all", 8192, 1, 1, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_row", " gather=all", 8192, 1, 1, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_block", " gather=none", 8192, 0, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"mxfp8", "", 8192, 1, 1, QUERN_DEQUANTIZE_PASS},
        {"mxfp4", "", 8192, 1, 1, QUERN_DEQUANTIZE_PASS},
        {"mxfp8", " bias=1", 8192, 1, 0, QUERN_DEQUANTIZE_PASS},
        {"mxfp8", "", 16, 0, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"mxfp8", " gather=all", 16, 1, 1, QUERN_DEQUANTIZE_PASS},
        {"nvfp4", "", 8192, 0, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"w4a16_mxfp4", "", 1, 0, 0, QUERN_DEQUANTIZE_MAINLOOP},
        /* mma.sync would add in another order */
        {"w8a16_fp8_block", "", 1, 0, 0, QUERN_DEQUANTIZE_PASS},
        {"w4a16_mxfp4", "", 8192, 0, 0, QUERN_DEQUANTIZE_PASS},
    };
    static const struct reads blackwell[] = {
        {"bf16", "", 8192, 0, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_block", "", 8192, 1, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_row", "", 8192, 1, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_block", " gather=all", 8192, 1, 1, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_row", " gather=all", 8192, 1, 1, QUERN_DEQUANTIZE_MAINLOOP},
        {"fp8_block", " gather=none", 8192, 0, 0, QUERN_DEQUANTIZE_MAINLOOP},
        /* scales that are no powers of two: by mma.sync, which gathers none */
        {"fp8_block_any", "", 8192, 0, 0, QUERN_DEQUANTIZE_MAINLOOP},
        {"mxfp8", "", 8192, 0, 0, QUERN_DEQUANTIZE_MAINLOOP},
    };
    struct quern_context *ctx = device_use(0);

    log_begin(device_registry(), stderr, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        read_tokens(ctx, &rows[i]);
    ctx = device_use(3); /* of compute capability 10.0 */
    for (size_t i = 0; i < sizeof blackwell / sizeof *blackwell; i++)
        read_tokens(ctx, &blackwell[i]);
    log_end();
    log_forget();
}
