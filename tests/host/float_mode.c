/* SPDX-License-Identifier: Apache-2.0 */
/*
** float_mode.c: a caller's floating-point mode. Threads of XLA, and of PyTorch
** after torch.set_flush_denormal(True), take denormals for zero; results are
** the same bytes there, and the mode is as it was after each run.
*/
#include "host.h"

#include "base/context.h"

#include <stdint.h>

enum { GROUPS = 2, ROWS = 70, MOST = 64 };

#if defined(__x86_64__)
/* Denormal operands and results are zero; rounds toward zero. */
enum { OTHER_MODE = 0x8000 | 0x0040 | 0x6000 };

static unsigned int mode(void)
{
    return __builtin_ia32_stmxcsr();
}

static void set_mode(unsigned int value)
{
    __builtin_ia32_ldmxcsr(value);
}
#elif defined(__aarch64__)
enum { OTHER_MODE = 1 << 24 | 3 << 22 };

static unsigned int mode(void)
{
    return __builtin_aarch64_get_fpcr();
}

static void set_mode(unsigned int value)
{
    __builtin_aarch64_set_fpcr(value);
}
#else
enum { OTHER_MODE = 0 };
static unsigned int mode(void)
{
    return 0;
}

static void set_mode(unsigned int value)
{
    (void)value;
}
#endif

/* A plan's operands. */
struct buffers {
    struct quern_args args;
    const struct quern_operand *table;
    size_t bytes[MOST];
    int count;
};

/* BF16 from its least denormal to 1, of both signs; numbers of fp32 are 1. */
static void fill(const struct quern_operand *o, void *data, size_t bytes)
{
    uint16_t *halves = data;
    float *floats = data;

    for (size_t i = 0; i < bytes / 2 && o->type == QUERN_BF16; i++)
        halves[i] =
            (uint16_t)((i % 3 << 15) | i * 2654435761u % 0x3f80 %
                                           (i % 70 < 35 ? 0x90 : 0x3f80));
    for (size_t i = 0; i < bytes / 4 && o->type == QUERN_F32; i++)
        floats[i] = 1;
}

static void make(struct buffers *b, const struct quern_plan *plan)
{
    static int64_t lengths[GROUPS] = {33, ROWS - 33};

    b->args = (struct quern_args)QUERN_ARGS_INIT;
    b->table = quern_plan_operands(plan, &b->count);
    assert_true(b->count <= MOST);
    for (int i = 0; i < b->count; i++) {
        const struct quern_operand *o = &b->table[i];

        b->bytes[i] = 0;
        if (o->arg == QUERN_ARG_LENGTHS)
            b->args.of[o->arg] =
                (struct quern_buffer){.data = lengths, .type = QUERN_I64};
        if (o->arg <= QUERN_ARG_ENDS || o->arg == QUERN_ARG_NOOP)
            continue;
        b->bytes[i] = (size_t)quern_extent(&o->bytes, ROWS);
        b->args.of[o->arg].data =
            aligned_alloc(256, (b->bytes[i] + 256) / 256 * 256);
        assert_non_null(b->args.of[o->arg].data);
        memset(b->args.of[o->arg].data, 0, b->bytes[i]);
        if (o->read && o->arg != QUERN_ARG_WORKSPACE)
            fill(o, b->args.of[o->arg].data, b->bytes[i]);
    }
}

static void release(struct buffers *b)
{
    for (int i = 0; i < b->count; i++)
        if (b->bytes[i])
            free(b->args.of[b->table[i].arg].data);
}

static void run(const struct quern_plan *plan, struct buffers *b)
{
    if (quern_run(plan, &b->args, NULL) || quern_check(plan, &b->args, NULL))
        fail_msg("%s", quern_errmsg());
}

/* Returns the bytes of results that are not zero. */
static size_t compare(const struct buffers *a, const struct buffers *b,
                      const char *line)
{
    size_t set = 0;

    for (int i = 0; i < a->count; i++) {
        const struct quern_operand *o = &a->table[i];
        const unsigned char *x = a->args.of[o->arg].data;

        if (!a->bytes[i] || !o->written || o->arg == QUERN_ARG_WORKSPACE)
            continue;
        if (memcmp(x, b->args.of[o->arg].data, a->bytes[i]))
            fail_msg("%s: %s is another one in the caller's mode", line,
                     o->name);
        for (size_t j = 0; j < a->bytes[i]; j++)
            set += x[j] != 0;
    }
    return set;
}

TEST(test_float_mode)
{
    static const char *const lines[] = {
        "quantize mxfp8 of=x g=2 m=70 k=64",
        "quantize mxfp4 of=x g=2 m=70 k=64",
        "quantize nvfp4 of=w g=2 m=70 k=64",
        "quantize fp8_block of=x g=2 m=70 k=64",
        "quantize fp8_tensor of=x g=2 m=70 k=64 activation=swiglu",
        "fprop bf16 g=2 m=70 n=16 k=64 d=f32",
        "mlp bf16 g=2 m=70 hidden=16 ffn=16 grad=0 prob=1",
    };
    const unsigned int before = mode();

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct quern_plan_options host = QUERN_PLAN_OPTIONS_INIT;
        struct quern_plan *plan;
        struct buffers usual, other;

        host.backend = QUERN_BACKEND_HOST;
        if (quern_plan_create(host_ctx, lines[i], &host, &plan))
            fail_msg("%s: %s", lines[i], quern_errmsg());
        make(&usual, plan);
        make(&other, plan);
        run(plan, &usual);
        set_mode(before | OTHER_MODE);
        run(plan, &other);
        assert_int_equal(mode() & OTHER_MODE, OTHER_MODE);
        set_mode(before);
        assert_true(compare(&usual, &other, lines[i]) > 0);
        release(&usual);
        release(&other);
        quern_plan_destroy(plan);
    }
}

/* Rules of specs are tried when a context opens, in the caller's thread. */
TEST(test_float_mode_rules)
{
    const unsigned int before = mode();
    struct host_specs specs;

    set_mode(before | OTHER_MODE);
    host_specs_open(&specs, "examples/specs");
    set_mode(before);
    assert_non_null(qn_context_recipe(host_ctx, "mxfp6"));
    host_specs_close(&specs);
}
