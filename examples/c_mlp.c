/* SPDX-License-Identifier: Apache-2.0 */
/*
** c_mlp.c: the MLP of a mixture-of-experts layer, forward and backward.
**
** y is linear in the routers' probabilities, so sum(dy * y) must be equal to
** sum(dprob * prob), except for rounding. Prints both.
*/
#include "example.h"

enum { ROWS = 40, HIDDEN = 64 };

/* Memory for all operands: inputs in bf16 are random, others are zeros. */
static void provide(const struct quern_plan *plan, struct quern_args *args)
{
    static int32_t lengths[] = {15, 0, 25};
    const struct quern_operand *o;
    int count;

    for (o = quern_plan_operands(plan, &count); count > 0; count--, o++) {
        void **data = &args->of[o->arg].data;

        if (o->arg == QUERN_ARG_LENGTHS)
            *data = lengths;
        else if (o->arg != QUERN_ARG_STARTS && o->arg != QUERN_ARG_ENDS)
            *data = zeros(quern_extent(&o->bytes, ROWS));
        if (o->type == QUERN_BF16 && !o->written)
            for (int64_t i = quern_extent(&o->bytes, ROWS) / 2; i > 0; i--)
                ((uint16_t *)*data)[i - 1] = to_bf16(draw());
    }
}

int main(void)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_args args = QUERN_ARGS_INIT;
    struct quern_context *ctx;
    struct quern_plan *plan;
    const uint16_t *dy, *y;
    float *prob, *dprob;
    double by_y = 0, by_prob = 0;

    options.backend = QUERN_BACKEND_HOST;
    must(quern_open(NULL, &ctx));
    must(quern_plan_create(ctx, "mlp bf16 g=3 m=40 hidden=64 ffn=32 prob=1",
                           &options, &plan));
    provide(plan, &args);
    dy = (const uint16_t *)args.of[QUERN_ARG_DY].data;
    y = (const uint16_t *)args.of[QUERN_ARG_Y].data;
    prob = (float *)args.of[QUERN_ARG_PROB].data;
    dprob = (float *)args.of[QUERN_ARG_DPROB].data;
    for (int i = 0; i < ROWS; i++)
        prob[i] = 0.5f + draw() / 2;
    args.phase = QUERN_PHASE_FORWARD;
    must(quern_run(plan, &args, NULL));
    args.phase = QUERN_PHASE_BACKWARD;
    must(quern_run(plan, &args, NULL));
    must(quern_check(plan, &args, NULL));
    for (int i = 0; i < ROWS * HIDDEN; i++)
        by_y += (double)(from_bf16(dy[i]) * from_bf16(y[i]));
    for (int i = 0; i < ROWS; i++)
        by_prob += (double)(dprob[i] * prob[i]);
    printf("sum(dy * y) = %.1f, sum(dprob * prob) = %.1f\n", by_y, by_prob);
    quern_plan_destroy(plan);
    quern_close(ctx);
    return 0;
}
