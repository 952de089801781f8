/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_casts.c: every quantization of every recipe, byte for byte against the
   host: all buffers, whether they are written or not, over poison. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/cast.h"
#include "base/types.h"

#define TORTURE "g=11 m=623 split=0,1,7,63,64,65,127,128,129,0,33"

/* Group sizes around the tiles, many groups, few, one that has all; features
   that fill no tile, odd ones. `of` x and dy; NULL ends the list. */
static const char *const tokens[] = {
    TORTURE " k=256",
    TORTURE " k=384 dbias=1",
    "g=1 m=1000 k=96 dbias=1",
    "g=3 m=333 k=173 split=skew",
    "g=9 m=700 k=128 dbias=add split=one",
    "g=65 m=4000 k=32 split=zipf dbias=1",
    "g=256 m=3000 k=64 split=mild",
    "g=2 m=0 k=64 dbias=1",
    TORTURE " k=384 copies=rowwise",
    "g=3 m=333 k=173 split=skew copies=rowwise",
    "g=4 m=5000 k=2312 split=mild copies=rowwise", /* several pieces of a row */
    "g=2 m=7 k=60000 copies=rowwise", /* of fp32, longer than shared memory */
    "g=5 m=700 k=512 copies=columnwise",
    "g=4 m=9000 k=640 split=mild dbias=1", /* many tiles for each CTA */
    NULL};
static const char *const weights[] = {"g=3 m=160 k=288", "g=1 m=1 k=40",
                                      "g=2 m=129 k=257", "g=65 m=40 k=128",
                                      NULL};
static const char *const forward[] = {
    "g=4 m=300 k=128 activation=swiglu prob=1",
    "g=3 m=200 k=96 activation=clamped_swiglu",
    "g=3 m=200 k=64 activation=situ prob=1 interleave=32",
    "g=3 m=200 k=130 activation=geglu interleave=1",
    "g=3 m=200 k=96 activation=reglu",
    "g=3 m=200 k=97 activation=squared_relu prob=1",
    "g=3 m=200 k=96 activation=gelu prob=1",
    "g=3 m=200 k=98 activation=gelu_tanh",
    "g=3 m=200 k=97 activation=silu prob=1",
    "g=3 m=200 k=96 activation=relu",
    NULL};
static const char *const backward[] = {
    "g=4 m=300 k=256 activation=swiglu prob=1 dbias=1 dprob=1",
    "g=3 m=200 k=192 activation=clamped_swiglu",
    "g=3 m=200 k=128 activation=situ prob=1 interleave=32 dbias=1",
    "g=3 m=200 k=260 activation=geglu interleave=1",
    "g=3 m=200 k=192 activation=reglu dbias=1",
    "g=3 m=200 k=97 activation=squared_relu prob=1 dprob=1",
    "g=3 m=200 k=96 activation=gelu prob=1 dprob=1 dbias=1",
    "g=3 m=200 k=98 activation=gelu_tanh dbias=1",
    "g=3 m=200 k=97 activation=silu prob=1 dprob=1",
    "g=3 m=200 k=96 activation=relu prob=1",
    "g=65 m=900 k=200 activation=clamped_swiglu prob=1 dprob=1 split=zipf",
    NULL};
static const char *const sums[] = {
    TORTURE " k=384 dbias=1", "g=65 m=4000 k=33 split=zipf dbias=add", NULL};
static const char *const biases[] = {TORTURE " k=384",
                                     "g=65 m=4000 k=33 split=zipf prob=1",
                                     "g=3 m=500 k=130 split=skew prob=1", NULL};
static const char *const weighted[] = {
    TORTURE " k=384 prob=1 dbias=1 dprob=1",
    "g=65 m=4000 k=33 split=zipf prob=1 dbias=add dprob=1",
    "g=3 m=500 k=130 split=skew prob=1 dbias=1", NULL};
static const char *const others[] = {TORTURE " k=256", "g=2 m=300 k=97",
                                     "g=65 m=4000 k=200 split=zipf", NULL};

/* Bits of bf16 and, 16 to the left, of fp32: each starts a block of its own
   kind. */
static const uint16_t specials[] = {
    0x0000, 0x8000, 0x3f80, 0x3f81, 0x3f7f, 0x43e0, 0x43e1, 0x0001, 0x8001,
    0x007f, 0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x40c0};

/* In f16 the same bits are other values, and as special. */
static void set_special(void *data, int type, size_t i, uint16_t bits)
{
    if (type == QUERN_F32)
        ((uint32_t *)data)[i] = (uint32_t)bits << 16 | (i % 7 == 0);
    else
        ((uint16_t *)data)[i] = bits;
}

/* Blocks of 16 that are all zero, or have one special value. */
static void make_special(struct qn_cast *c)
{
    const int type = c->q.type;
    const size_t count =
        c->call.memory[QUERN_ARG_INPUT].bytes * 8 / (size_t)qn_type_bits(type);
    void *data = c->call.host[QUERN_ARG_INPUT];

    for (size_t i = 0; data && i + 16 <= count; i += 16) {
        const size_t kind = i / 16 * 7 % 23;

        for (size_t j = 0; j < 16 && kind % 3 == 0; j++)
            set_special(data, type, i + j, 0);
        if (kind < sizeof specials / sizeof specials[0])
            set_special(data, type, i + kind % 16, specials[kind]);
    }
    if (data)
        qn_memory_write(&c->call.memory[QUERN_ARG_INPUT], 0, data,
                        c->call.memory[QUERN_ARG_INPUT].bytes);
}

/* ------------------------------------------------------------------- lines */

struct line {
    char text[300];
    int special;      /* blocks with special values, twice */
    int late;         /* it was not run: time was over */
    char result[700]; /* the error, or "" */
};

static void fail(struct line *line, const char *what, const char *more)
{
    snprintf(line->result, sizeof line->result, "%s%s: %s%s", line->text,
             line->special ? ", special" : "", what, more);
}

/* Both run. */
static void compare(struct line *line, struct qn_cast *gpu,
                    struct qn_cast *host)
{
    char where[160];
    double bytes;
    int intact = 1;

    for (int i = 0; i < 1 + line->special; i++)
        if (qn_call_run(&gpu->call) || qn_call_run(&host->call)) {
            fail(line, "quern_run: ", quern_errmsg());
            return;
        }
    if (qn_call_guards(&gpu->call, &intact) ||
        qn_cast_compare(gpu, host, &bytes, where, sizeof where))
        fail(line, "the buffers cannot be read", "");
    else if (!intact)
        fail(line, "a guard was written", "");
    else if (bytes > 0)
        fail(line, "bytes differ", where);
}

/* One quantization on both. */
static void run_line(struct line *line)
{
    static const struct qn_options options = {.command = "gpu_suite",
                                              .seed = 1};
    struct qn_cast gpu = {0}, host = {0};
    struct qn_quantization q;

    if (qn_quantize_parse(gpu_context, line->text, &q)) {
        fail(line, quern_errmsg(), "");
        return;
    }
    if (qn_cast_begin(&gpu, &options, gpu_context, &q, QUERN_BACKEND_JIT) ||
        qn_cast_begin(&host, &options, gpu_context, &q, QUERN_BACKEND_HOST)) {
        fail(line, "it cannot be planned: ", quern_errmsg());
    } else {
        if (line->special) {
            make_special(&gpu);
            make_special(&host);
        }
        compare(line, &gpu, &host);
    }
    qn_call_free(&gpu.call);
    qn_call_free(&host.call);
}

/* ------------------------------------------------------------------- lists */

/* All that is to be run, by many threads. */
enum { MOST_LINES = 8192 };

struct work {
    int count;
    struct line lines[MOST_LINES];
};

static void add(struct work *w, const char *text, int special)
{
    if (w->count == MOST_LINES)
        gpu_lost("gpu_casts.c: MOST_LINES is too small");
    strcpy(w->lines[w->count].text, text);
    w->lines[w->count++].special = special;
}

/* A work of one tensor, in each shape. */
static void add_shapes(struct work *w, const char *work, const char *recipe,
                       const char *of, const char *more,
                       const char *const *shapes)
{
    for (int i = 0; shapes[i] && !(gpu_options.quick && i > 2); i++) {
        char text[300];

        snprintf(text, sizeof text, "%s %s of=%s %s%s", work, recipe, of,
                 shapes[i], more);
        add(w, text, 0);
        if (!strcmp(work, "quantize") && i < 2)
            add(w, text, 1);
    }
}

/* The same of a tensor that the recipe scales. */
static void add_scaled(struct work *w, const char *work,
                       const struct qn_recipe *recipe, int of, const char *more,
                       const char *const *shapes)
{
    static const char *const names[] = {"x", "w", "dy"};

    if (recipe->scaling[of].type != QUERN_TYPE_NONE)
        add_shapes(w, work, recipe->name, names[of], more, shapes);
}

/* All that a recipe makes of one type of input. */
static void add_type(struct work *w, const struct qn_recipe *recipe,
                     const char *type)
{
    char more[32];

    snprintf(more, sizeof more, " in=%s", type);
    add_scaled(w, "quantize", recipe, QN_X, more, tokens);
    add_scaled(w, "quantize", recipe, QN_DY, more, tokens);
    add_scaled(w, "quantize", recipe, QN_W, more, weights);
    add_scaled(w, "quantize", recipe, QN_X, more, forward);
    add_scaled(w, "quantize", recipe, QN_DY, more, backward);
    snprintf(more, sizeof more, " out=%s", type);
    add_scaled(w, "dequantize", recipe, QN_X, more, others);
    add_scaled(w, "dequantize", recipe, QN_W, more, weights);
    strcat(more, " copies=columnwise");
    add_scaled(w, "dequantize", recipe, QN_W, more, weights);
    add_scaled(w, "dequantize", recipe, QN_DY, more, others);
}

/* Casts of a recipe without scales: activations, and sums. */
static void add_numbers(struct work *w, const char *recipe)
{
    static const char *const inputs[] = {" in=bf16 copies=rowwise",
                                         " in=f16 copies=rowwise",
                                         " in=f32 copies=rowwise"};

    static const char *const types[] = {" in=bf16", " in=f16", " in=f32"};

    for (int i = 0; i < 3; i++) {
        add_shapes(w, "bias", recipe, "x", types[i], biases);
        add_shapes(w, "quantize", recipe, "dy", inputs[i], sums);
        add_shapes(w, "quantize", recipe, "dy", inputs[i], weighted);
        add_shapes(w, "quantize", recipe, "x", inputs[i], forward);
        add_shapes(w, "quantize", recipe, "dy", inputs[i], backward);
    }
}

static void add_recipe(struct work *w, const struct qn_recipe *recipe)
{
    static const char *const types[] = {"bf16", "f16", "f32"};
    static const char *const ofs[] = {"x", "w", "dy"};
    char text[80];

    for (int i = 0; i < 3; i++)
        add_type(w, recipe, types[i]);
    add_scaled(w, "transpose", recipe, QN_X, "", others);
    add_scaled(w, "transpose", recipe, QN_W, "", weights);
    add_scaled(w, "transpose", recipe, QN_DY, "", others);
    for (int of = 0; of < QN_TENSORS; of++) {
        if (!recipe->scaling[of].history)
            continue;
        snprintf(text, sizeof text, "rescale %s of=%s", recipe->name, ofs[of]);
        add(w, text, 0);
    }
}

/* ----------------------------------------------------------------- threads */

/* Lines of one kernel are side by side: in strides, threads that begin together
   compile different ones. Most of the time is the host's: it compiles for both,
   and is the oracle. */
static void run_one(int i, void *user)
{
    enum { STRIDE = 7919 }; /* a prime that is no factor of the count */
    struct work *w = user;
    struct line *line = &w->lines[(int)((long long)i * STRIDE % w->count)];

    line->late = gpu_late();
    if (!line->late)
        run_line(line);
}

static void run_lines(struct work *w)
{
    gpu_spread(w->count, run_one, w);
    for (int i = 0; i < w->count; i++)
        gpu_record_line(w->lines[i].text, w->lines[i].late, w->lines[i].result);
}

/* -------------------------------------------------------------- bad sizes */

/* NULL if the group is blamed and nothing around the buffers was touched. */
static const char *bad_size(struct qn_cast *c, int group, int64_t length)
{
    char expected[32];
    int intact = 1, code;

    if (qn_memory_write(&c->call.memory[QUERN_ARG_LENGTHS], (size_t)group * 8,
                        &length, sizeof length))
        return "sizes cannot be written";
    code = qn_call_run(&c->call);
    snprintf(expected, sizeof expected, "group %d", group);
    if (code != QUERN_ESIZES)
        return gpu_text("quern_check returned %d, not ESIZES", code);
    if (!strstr(quern_errmsg(), expected))
        return gpu_text("expected %s in '%s'", expected, quern_errmsg());
    if (qn_call_guards(&c->call, &intact) || !intact)
        return "a guard was written";
    return NULL;
}

static void run_lies(const char *recipe)
{
    static const int64_t lengths[] = {-1, 1000, INT64_MAX, INT64_MIN};
    static const struct qn_options options = {.command = "gpu_suite",
                                              .seed = 1};
    struct qn_quantization q;
    struct qn_cast c = {0};
    char text[160];

    snprintf(text, sizeof text,
             "quantize %s of=dy g=5 m=700 k=128 dbias=1 split=mild", recipe);
    if (qn_quantize_parse(gpu_context, text, &q) ||
        qn_cast_begin(&c, &options, gpu_context, &q, QUERN_BACKEND_JIT)) {
        gpu_record(gpu_text("%s: %s", text, quern_errmsg()));
        return;
    }
    for (int i = 0; i < 4; i++) {
        const char *bad = bad_size(&c, i, lengths[i]);

        gpu_record(bad ? gpu_text("%s, group %d of %lld rows: %s", text, i,
                                  (long long)lengths[i], bad)
                       : NULL);
        qn_memory_write(&c.call.memory[QUERN_ARG_LENGTHS], 0, c.sizes,
                        (size_t)q.groups * 8);
    }
    qn_call_free(&c.call);
}

/* ---------------------------------------------------------------- pointers */

/* Weights allocated one by one, and the list of their addresses. */
struct apart {
    struct qn_memory matrices, addresses;
};

/* The same values, in backward order; every other matrix begins where no 16
   bytes do, so that one run reads them in both forms. */
static int take_apart(struct qn_cast *c, struct apart *a)
{
    const int groups = c->q.groups;
    const size_t element = (size_t)qn_type_bits(c->q.type) / 8;
    const size_t bytes = c->call.memory[QUERN_ARG_INPUT].bytes / (size_t)groups;
    const size_t slot = (bytes + element + 255) / 256 * 256;
    const char *from = c->call.host[QUERN_ARG_INPUT];
    int code = qn_memory_new(&a->matrices, c->call.gpu, slot * (size_t)groups);

    if (!code)
        code = qn_memory_new(&a->addresses, c->call.gpu,
                             (size_t)groups * sizeof(void *));
    for (int g = 0; !code && g < groups; g++) {
        const size_t at =
            slot * (size_t)(groups - 1 - g) + (size_t)(g % 2) * element;
        const void *address = a->matrices.data + at;

        code =
            qn_memory_write(&a->matrices, at, from + (size_t)g * bytes, bytes);
        if (!code)
            code = qn_memory_write(&a->addresses, (size_t)g * sizeof address,
                                   &address, sizeof address);
    }
    c->call.args.of[QUERN_ARG_INPUT].data = NULL;
    c->call.args.of[QUERN_ARG_INPUT].pointers =
        (void *const *)(void *)a->addresses.data;
    return code;
}

/* Byte for byte what the host makes of one buffer. */
static void run_pointers(const char *recipe, const char *type,
                         const char *shape)
{
    static const struct qn_options options = {.command = "gpu_suite",
                                              .seed = 1};
    struct qn_cast gpu = {0}, host = {0};
    struct qn_quantization q;
    struct apart apart = {0};
    struct line line = {.special = 0};

    snprintf(line.text, sizeof line.text, "quantize %s of=w %s in=%s", recipe,
             shape, type);
    if (qn_quantize_parse(gpu_context, line.text, &q) ||
        qn_cast_begin(&gpu, &options, gpu_context, &q, QUERN_BACKEND_JIT) ||
        qn_cast_begin(&host, &options, gpu_context, &q, QUERN_BACKEND_HOST) ||
        take_apart(&gpu, &apart))
        fail(&line, "by pointers: ", quern_errmsg());
    else
        compare(&line, &gpu, &host);
    gpu_record(*line.result ? gpu_text("by pointers: %s", line.result) : NULL);
    qn_memory_free(&apart.matrices);
    qn_memory_free(&apart.addresses);
    qn_call_free(&gpu.call);
    qn_call_free(&host.call);
}

/* --only names kernels of products. */
void gpu_casts(void)
{
    const struct quern_registry *registry = gpu_registry();
    struct work *work;

    work = calloc(1, sizeof *work);
    if (!work)
        gpu_lost("host memory ran out");
    for (int i = 0; i < registry->nrecipes; i++) {
        const struct qn_recipe *recipe = &registry->recipes[i];

        if (gpu_variant_wants(recipe) && recipe->scaled)
            add_recipe(work, recipe);
        else if (gpu_variant_wants(recipe))
            add_numbers(work, recipe->name);
    }
    run_lines(work);
    for (int i = 0; i < registry->nrecipes; i++) {
        const struct qn_recipe *recipe = &registry->recipes[i];

        if (!recipe->scaled || !gpu_variant_wants(recipe))
            continue;
        if (recipe->scaling[QN_DY].type != QUERN_TYPE_NONE)
            run_lies(recipe->name);
        for (int j = 0; weights[j]; j++)
            run_pointers(recipe->name, j % 2 ? "f32" : "bf16", weights[j]);
    }
    free(work);
}
