/* SPDX-License-Identifier: Apache-2.0 */
/* play_moe.c: layers from unpermuted tokens, played. */
#include "play.h"

#include "layer/moe_plan.h"

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
    struct qn_queue *queue;

    give_moe(play, moe, need, &args);
    without = args;
    without.dw1 = without.dw2 = (struct qn_tensor){.data = NULL};
    run_moe_phase(play, plan, &args, QN_MLP_WEIGHTS, "weights");
    run_moe_phase(play, plan, &args, QN_MLP_FORWARD, "forward");
    if (moe->mlp.forward_only)
        return;
    run_moe_phase(play, plan, &without, QN_MLP_BACKWARD, "backward");
    run_moe_phase(play, plan, &args, QN_MLP_WGRAD, "wgrad");
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
