/* SPDX-License-Identifier: Apache-2.0 */
/*
** hand.c: scale rules at the inputs where they bend, by formulas written here.
**
** Each special value is the largest of a block of its own: fp32, so that it
** can be any, in a matrix of which every row is a group. The library quantizes
** on the host; its stored scale and the code of the value itself are compared.
*/
#include "numbers.h"

#include <math.h>
#include <stdio.h>

#include "internal.h"

enum { K = 128, MOST = 512 };

static float inputs[MOST];
static int count;

static void put_near(float x)
{
    inputs[count++] = x;
    inputs[count++] = nextafterf(x, INFINITY);
    if (x > 0)
        inputs[count++] = nextafterf(x, 0);
}

/* Zero, denormals, powers of two, largest elements times those, the ends. */
static void put_inputs(void)
{
    static const float most[] = {448, 57344, 6, 7.5f, 28, 2688, 65504};
    static const int powers[] = {-149, -148, -133, -128, -127, -126,
                                 -125, -118, -60,  -9,   0,    1,
                                 8,    100,  119,  126,  127};

    count = 0;
    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++) {
        put_near(ldexpf(1, powers[i]));
        for (size_t j = 0; j < sizeof most / sizeof *most; j++)
            if (powers[i] > -140 && powers[i] < 112)
                put_near(ldexpf(most[j], powers[i]));
    }
    inputs[count++] = 0;
    inputs[count++] = -0.0f;
    inputs[count++] = -448;
    inputs[count++] = 0x1.fffffep127f;
    inputs[count++] = INFINITY;
    inputs[count++] = -INFINITY;
    inputs[count++] = NAN;
    assert_true(count <= MOST);
}

/* ------------------------------------------------------------ the formulas */

/* The stored scale, as bits, and the factor of values. */
struct answer {
    uint32_t stored;
    float factor;
};

/* amax 0, infinite or NaN gives 1; an infinite quotient the largest number. */
static struct answer common(float amax, float most, int power)
{
    volatile float quotient = most / amax, inverse;
    float scale = quotient;

    if (amax == 0 || isinf(amax))
        scale = 1;
    else if (isinf(scale))
        scale = 0x1.fffffep127f;
    if (power)
        scale = ldexpf(1, ilogbf(scale));
    inverse = 1 / scale;
    return (struct answer){bits_from(inverse), scale};
}

static struct answer fp8_tensor(float amax)
{
    return common(amax, 448, 0);
}

static struct answer fp8_block(float amax)
{
    return common(amax, 448, 1);
}

/* The first power of two from 2^-127 on that is not below v. */
static struct answer power_from(double v)
{
    int e = 0;

    while (e < 254 && ldexp(1, e - 127) < v)
        e++;
    return (struct answer){(uint32_t)e, (float)ldexp(1, 127 - e)};
}

static struct answer mxfp8(float amax)
{
    volatile float v = amax * (float)(1 / 448.0);

    return power_from((double)v);
}

static struct answer mxfp4(float amax)
{
    volatile float v = amax * (float)(1 / 6.0);

    return power_from((double)v);
}

/* floor(log2(amax)) - 8, within what e8m0 has. */
static struct answer mxfp8_ocp(float amax)
{
    int e = isinf(amax) ? 254 : amax > 0 ? ilogbf(amax) - 8 + 127 : 0;

    e = e < 0 ? 0 : e;
    return (struct answer){(uint32_t)e, (float)ldexp(1, 127 - e)};
}

/* Blocks of one value each: the group's largest is the block's. */
static struct answer nvfp4(float amax)
{
    const struct format *e4m3 = &formats[0];
    volatile float outer = amax == 0 || isinf(amax) ? 1 : 2688 / amax;
    volatile float sixth, inverse, product, factor;
    struct answer answer;

    outer = isinf(outer) ? 0x1.fffffep127f : outer;
    sixth = outer * (float)(1 / 6.0);
    product = amax * sixth;
    answer.stored = format_round(e4m3, product);
    inverse = 1 / outer;
    product = (float)format_value(e4m3, (int)answer.stored) * inverse;
    factor = 1 / product;
    answer.factor = isinf(factor) ? 0x1.fffffep127f : factor;
    return answer;
}

static const struct rule {
    const char *recipe;
    struct answer (*formula)(float amax);
    int element; /* of formats */
    int bytes;   /* of a stored scale */
    int step;    /* stored scales from one row's first to the next */
} rules[] = {
    {"fp8_tensor", fp8_tensor, 0, 4, 1},
    {"fp8_row", fp8_tensor, 0, 4, 1},
    {"fp8_block_any", fp8_tensor, 0, 4, 1},
    {"fp8_block", fp8_block, 0, 4, 1},
    {"mxfp8", mxfp8, 0, 1, K / 32},
    {"mxfp8_ocp", mxfp8_ocp, 0, 1, K / 32},
    {"mxfp4", mxfp4, 4, 1, K / 32},
    {"nvfp4", nvfp4, 4, 1, K / 16},
};

/* -------------------------------------------------------------- the library */

/* The rowwise tensor and its scales; the caller frees all four. */
struct made {
    unsigned char *row, *sf;
    float *global, *x;
};

static void *room(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);

    assert_non_null(memory);
    return memory;
}

/* Row g holds inputs[g], and nothing else but zeros. */
static float *make_matrix(void)
{
    float *x = room(sizeof(float) * K * (size_t)count);

    for (int g = 0; g < count; g++)
        x[g * K] = inputs[g];
    return x;
}

static void must(int code)
{
    if (code)
        fail_msg("%s", quern_errmsg());
}

/* One row in each group. */
static void quantize(struct quern_context *ctx, const char *recipe,
                     struct made *made)
{
    struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct qn_quantize_description need;
    struct qn_quantization problem;
    struct qn_quantize_plan *plan;
    int32_t *sizes = room(sizeof *sizes * (size_t)count);
    char text[128];

    for (int g = 0; g < count; g++)
        sizes[g] = 1;
    snprintf(text, sizeof text, "quantize %s of=x g=%d m=%d k=%d in=f32 %s",
             recipe, count, count, K, "copies=rowwise");
    must(qn_quantize_parse(ctx, text, &problem));
    must(qn_quantize_needs(ctx, &problem, &need));
    must(qn_quantize_plan(ctx, &problem, &options, &plan));
    made->x = need.args.in.data = make_matrix();
    made->row = need.args.row.data = room(need.args.row.bytes);
    made->sf = need.args.row.sf = room(need.args.row.sf_bytes);
    made->global = room(need.args.row.global_bytes);
    need.args.row.global = need.args.row.global_bytes ? made->global : NULL;
    need.args.first_dims = sizes;
    need.args.sizes_type = QUERN_I32;
    need.args.workspace = room(need.workspace_bytes);
    must(qn_quantize_run(plan, &need.args, NULL));
    qn_quantize_plan_free(plan);
    free(need.args.workspace);
    free(sizes);
}

/* The scale of row g, and the code of its first value. */
static void check_row(const struct rule *rule, const struct made *made, int g)
{
    const struct format *element = &formats[rule->element];
    float amax = isnan(inputs[g]) ? 0 : fabsf(inputs[g]);
    struct answer answer = rule->formula(amax);
    int row_bytes = K * element->width / 8;
    volatile float scaled = inputs[g] * answer.factor;
    uint32_t stored = 0, code = made->row[g * row_bytes];

    memcpy(&stored, made->sf + (size_t)g * (size_t)(rule->step * rule->bytes),
           (size_t)rule->bytes);
    if (stored != answer.stored)
        fail_msg("%s, amax %a: scale %08x instead of %08x", rule->recipe,
                 (double)amax, stored, answer.stored);
    code &= (1u << element->width) - 1;
    if (code != format_round(element, scaled))
        fail_msg("%s, %a: code %02x instead of %02x", rule->recipe,
                 (double)inputs[g], code, format_round(element, scaled));
}

TEST(test_scale_rules)
{
    struct quern_open_options options = {.cache = ""};
    struct quern_context *ctx;

    put_inputs();
    must(qn_open(&options, &ctx));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct made made;

        quantize(ctx, rules[i].recipe, &made);
        for (int g = 0; g < count; g++)
            check_row(&rules[i], &made, g);
        free(made.x);
        free(made.row);
        free(made.sf);
        free(made.global);
    }
    qn_close(ctx);
}
