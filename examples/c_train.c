/* SPDX-License-Identifier: Apache-2.0 */
/*
** c_train.c: a training step of one layer in FP8: two microbatches forward and
** backward, their weight gradients later, added to main_grad in fp32.
**
** Prints an element of each result and the same from fp32. A GPU needs no
** options, and a stream where NULL is here.
*/
#include "example.h"

enum { GROUPS = 2, ROWS = 20, N = 128, K = 256, BATCHES = 2 };

struct step {
    struct quern_plan *plan;
    struct quern_args args;
};

static struct quern_context *ctx;
static int32_t lengths[GROUPS] = {12, 8};
static float x[BATCHES][ROWS * K], dy[BATCHES][ROWS * N], w[GROUPS * N * K];

/* The context's plan of a line, and memory for all that runs write or need. */
static struct step make(const char *line)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct step s = {NULL, QUERN_ARGS_INIT};
    const struct quern_operand *o;
    int count;

    options.backend = QUERN_BACKEND_HOST;
    must(quern_plan_get(ctx, line, &options, NULL, &s.plan));
    for (o = quern_plan_operands(s.plan, &count); count > 0; count--, o++)
        if (o->arg == QUERN_ARG_LENGTHS) {
            s.args.of[o->arg].data = lengths;
            s.args.rows = ROWS; /* the plan may take more */
        } else if (o->written || !o->optional) {
            s.args.of[o->arg].data = zeros(quern_extent(&o->bytes, ROWS));
        }
    return s;
}

/* Random values, quantized rowwise and columnwise. */
static struct step quantize(const char *line, float *values, int count)
{
    struct step s = make(line);

    for (int i = 0; i < count; i++)
        values[i] = draw() + 0.5f;
    s.args.of[QUERN_ARG_INPUT].data = values;
    must(quern_run(s.plan, &s.args, NULL));
    return s;
}

/* A tensor and its scale factors, which follow it in enum quern_arg. */
static void pass(const struct step *from, int arg, struct step *to, int as)
{
    to->args.of[as] = from->args.of[arg];
    to->args.of[as + 1] = from->args.of[arg + 1];
}

static float dot(const float *a, int a_step, const float *b, int b_step, int n)
{
    return n ? *a * *b + dot(a + a_step, a_step, b + b_step, b_step, n - 1) : 0;
}

static void show(const char *name, const struct step *s, float expected)
{
    printf("%-9s %6.2f, in fp32 %6.2f\n", name,
           *(const float *)s->args.of[QUERN_ARG_D].data, expected);
}

int main(void)
{
    struct quern_queue *queue;
    struct step qw, qx, qdy, fprop, dgrad, wgrad;

    must(quern_open(NULL, &ctx));
    must(quern_queue_create(ctx, BATCHES, &queue));
    fprop = make("fprop fp8_block g=2 m=20 n=128 k=256 d=f32");
    dgrad = make("dgrad fp8_block g=2 m=20 n=256 k=128 d=f32");
    wgrad = make("wgrad fp8_block g=2 m=128 n=256 k=20 d=f32 beta=1");
    qw = quantize("quantize fp8_block of=w g=2 m=128 k=256 in=f32", w,
                  GROUPS * N * K);
    pass(&qw, QUERN_ARG_ROWWISE, &fprop, QUERN_ARG_B);
    pass(&qw, QUERN_ARG_COLUMNWISE, &dgrad, QUERN_ARG_B);
    for (int i = 0; i < BATCHES; i++) {
        qx = quantize("quantize fp8_block of=x g=2 m=20 k=256 in=f32", x[i],
                      ROWS * K);
        pass(&qx, QUERN_ARG_ROWWISE, &fprop, QUERN_ARG_A);
        must(quern_run(fprop.plan, &fprop.args, NULL));
        show("y", &fprop, dot(x[i], 1, w, 1, K));
        qdy = quantize("quantize fp8_block of=dy g=2 m=20 k=128 in=f32", dy[i],
                       ROWS * N);
        pass(&qdy, QUERN_ARG_ROWWISE, &dgrad, QUERN_ARG_A);
        must(quern_run(dgrad.plan, &dgrad.args, NULL));
        show("dx", &dgrad, dot(dy[i], 1, w, K, N));
        pass(&qdy, QUERN_ARG_COLUMNWISE, &wgrad, QUERN_ARG_A);
        pass(&qx, QUERN_ARG_COLUMNWISE, &wgrad, QUERN_ARG_B);
        must(quern_queue_put(queue, wgrad.plan, &wgrad.args, 0));
    }
    must(quern_queue_flush(queue, 0, 0, NULL));
    show("main_grad", &wgrad,
         dot(dy[0], N, x[0], K, lengths[0]) +
             dot(dy[1], N, x[1], K, lengths[0]));
    quern_queue_destroy(queue);
    quern_close(ctx);
    return 0;
}
