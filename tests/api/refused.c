/* SPDX-License-Identifier: Apache-2.0 */
/* refused.c: arguments of runs that break a rule: each refusal names argument
   and rule, and nothing is written. */
#include "api.h"
#include "api/api_use.h"

#define PRODUCT "fprop bf16 g=4 m=40 n=64 k=64 beta=any alpha=any"
#define BIASED  "fprop bf16 g=4 m=40 n=64 k=64 bias=1 activation=swiglu saved=1"
#define PACKED  "fprop mxfp8 g=4 m=40 n=64 k=64"
#define POINTED "wgrad bf16 g=4 m=64 n=64 k=40 d=f32 beta=1 pointers=d"
#define CAST    "quantize mxfp8 of=x g=4 m=40 k=64"
#define WEIGHTS "quantize mxfp8 of=w g=4 m=64 k=64"
#define MLP     "mlp mxfp8 g=4 m=40 hidden=64 ffn=64 bias=1"
#define CLAMPED "mlp bf16 g=4 m=40 hidden=64 ffn=64 activation=clamped_swiglu"
#define MOE     "moe bf16 g=4 m=40 topk=2 hidden=64 ffn=64"
#define ROUTE   "route g=4 m=40 topk=2"
#define COMBINE "combine m=40 topk=2 k=64"
#define HOST    "fprop bf16 g=4 m=40 n=64 k=64 sizes=host"

/* The change of a field of the arguments. */
enum how { KEEP, SET, SET32, ADD, FROM /* another field, by its offset */ };

struct change {
    size_t at;
    enum how how;
    int64_t value;
};

#define FIELD(arg, field)                                                      \
    (offsetof(struct quern_args, of) +                                         \
     QUERN_ARG_##arg * sizeof(struct quern_buffer) +                           \
     offsetof(struct quern_buffer, field))
#define SELF(field, how, value)                                                \
    {                                                                          \
        offsetof(struct quern_args, field), how, value                         \
    }
#define OF(arg, field, how, value)                                             \
    {                                                                          \
        FIELD(arg, field), how, value                                          \
    }
#define STRIDE(arg, value)   OF(arg, stride, SET, value)
#define PITCH(arg, value)    OF(arg, group_stride, SET, value)
#define MOVED(arg, value)    OF(arg, data, ADD, value)
#define DATA(arg, from)      OF(arg, data, FROM, (int64_t)FIELD(from, data))
#define NO(arg)              OF(arg, data, SET, 0)
#define ADDRESSES(arg, from) OF(arg, pointers, FROM, (int64_t)FIELD(from, data))
#define TYPE(arg, value)     OF(arg, type, SET32, value)

static const struct broken {
    const char *line, *part; /* the message's beginning */
    struct change changes[2];
} broken[] = {
    {PRODUCT,
     "args.size is 0: begin with QUERN_ARGS_INIT",
     {SELF(size, SET, 0)}},
    {PRODUCT, "args.size is 8", {SELF(size, SET, 8)}},
    {PRODUCT, "args.size is ", {SELF(size, ADD, 8)}},
    {PRODUCT, "args.size is ", {SELF(size, SET, -1)}},
    {PRODUCT, "args.phase is 1: 0 is", {SELF(phase, SET32, 1)}},
    {PRODUCT, "args.phase is -1: 0 is", {SELF(phase, SET32, -1)}},
    {CAST, "args.phase is 2", {SELF(phase, SET32, QUERN_PHASE_WGRAD)}},
    {MLP, "args.phase is 4", {SELF(phase, SET32, QUERN_PHASES)}},
    {MLP, "args.phase is -1", {SELF(phase, SET32, -1)}},
    {PRODUCT, "args.rows is -2: -1 or 0 to 40", {SELF(rows, SET, -2)}},
    {PRODUCT, "args.rows is 41: -1 or 0 to 40", {SELF(rows, SET, 41)}},
    {CAST, "args.rows is 9223372036854775807", {SELF(rows, SET, INT64_MAX)}},
    {CAST, "args.rows is -9223372036854775808", {SELF(rows, SET, INT64_MIN)}},
    {WEIGHTS, "args.rows is 1: -1 is", {SELF(rows, SET, 1)}},
    {MLP, "args.rows is 41", {SELF(rows, SET, 41)}},
    {PRODUCT, "scalars is 3", {SELF(scalars, SET32, 3)}},
    {PRODUCT, "scalars is -1", {SELF(scalars, SET32, -1)}},
    {CAST, "args.scalars is 3: 0 or 1", {SELF(scalars, SET32, 3)}},
    {MLP, "args.scalars is 4: 0 or 1", {SELF(scalars, SET32, 4)}},
    {MOE, "args.scalars is -1: 0 or 1", {SELF(scalars, SET32, -1)}},
    {ROUTE, "args.scalars is 3: 0 or 1", {SELF(scalars, SET32, 3)}},
    {COMBINE, "args.scalars is 2: 0 or 1", {SELF(scalars, SET32, 2)}},
    /* fp32's -1 and NaN */
    {CLAMPED, "args.limit is -1: 0 or more", {SELF(limit, SET32, -0x40800000)}},
    {CLAMPED, "args.limit is nan: 0", {SELF(limit, SET32, 0x7fc00000)}},
    {CLAMPED, "args.slope is nan and", {SELF(slope, SET32, 0x7fc00000)}},
    {CLAMPED,
     "args.slope is 1.702 and args.shift nan",
     {SELF(shift, SET32, 0x7fc00000)}},
    /* operands that are not there */
    {PRODUCT, "bias is not NULL: the plan has no", {DATA(BIAS, A)}},
    {PRODUCT, "a.sf is not NULL: the plan has no", {DATA(A_SF, A)}},
    {PRODUCT, "x is not NULL: the plan has no", {ADDRESSES(X, A)}},
    {WEIGHTS, "lengths is not NULL", {DATA(LENGTHS, ROWWISE)}},
    /* sizes */
    {PRODUCT, "lengths, starts and ends are NULL", {NO(LENGTHS)}},
    {POINTED, "lengths, starts and ends are NULL", {NO(LENGTHS)}},
    {CAST, "lengths, starts and ends are NULL", {NO(LENGTHS)}},
    {MLP, "lengths, starts and ends are NULL", {NO(LENGTHS)}},
    {CAST,
     "lengths.type and starts.type differ",
     {DATA(STARTS, LENGTHS), TYPE(STARTS, QUERN_I64)}},
    {PRODUCT, "lengths.type is bf16: i32 or i64", {TYPE(LENGTHS, QUERN_BF16)}},
    {PRODUCT, "lengths.type is ", {TYPE(LENGTHS, -1)}},
    {PRODUCT, "lengths.type is ", {TYPE(LENGTHS, QUERN_I32 + 64)}},
    {MLP, "lengths.type is ", {TYPE(LENGTHS, 1000000)}},
    {PRODUCT, "ends and lengths are both given", {DATA(ENDS, LENGTHS)}},
    {PRODUCT, "lengths is 0x", {MOVED(LENGTHS, 2)}},
    {CAST, "lengths is 0x", {MOVED(LENGTHS, 4), TYPE(LENGTHS, QUERN_I64)}},
    {PRODUCT, "lengths.stride is 1", {STRIDE(LENGTHS, 1)}},
    {PRODUCT, "lengths.pointers is not NULL", {ADDRESSES(LENGTHS, A)}},
    {PRODUCT,
     "lengths and host_sizes",
     {SELF(host_sizes, FROM, FIELD(LENGTHS, data))}},
    {WEIGHTS, "host_sizes", {SELF(host_sizes, FROM, FIELD(ROWWISE, data))}},
    {MLP,
     "lengths and host_sizes",
     {SELF(host_sizes, FROM, FIELD(LENGTHS, data))}},
    {HOST, "lengths, starts and ends are NULL", {SELF(host_sizes, SET, 0)}},
    {HOST, "lengths and host_sizes are both", {DATA(LENGTHS, A)}},
    /* strides */
    {PRODUCT, "a.stride is 63", {STRIDE(A, 63)}},
    {PRODUCT, "a.stride is -64", {STRIDE(A, -64)}},
    {PRODUCT, "a.stride is 9223372036854775807", {STRIDE(A, INT64_MAX)}},
    {PRODUCT, "a.stride is -9223372036854775808", {STRIDE(A, INT64_MIN)}},
    {PRODUCT, "c.stride is 1", {STRIDE(C, 1)}},
    {PRODUCT, "d.stride is 1", {STRIDE(D, 1)}},
    {PRODUCT, "b.group_stride is -1", {PITCH(B, -1)}},
    {PRODUCT, "b.group_stride is 1", {PITCH(B, 1)}},
    {PRODUCT, "b", {PITCH(B, INT64_MAX)}},
    {PRODUCT, "b.group_stride is -9223372036854775808", {PITCH(B, INT64_MIN)}},
    {PRODUCT, "b", {STRIDE(B, INT32_MAX), PITCH(B, INT64_MAX / 8)}},
    {PRODUCT, "a.group_stride is 4096", {PITCH(A, 4096)}},
    {POINTED, "d.group_stride is 4096", {PITCH(D, 4096)}},
    {BIASED, "pre.stride is 8", {STRIDE(PRE, 8)}},
    {BIASED, "pre.group_stride is 8", {PITCH(PRE, 8)}},
    {PACKED, "a.stride is 128", {STRIDE(A, 128)}},
    {PACKED, "b.group_stride is 4096", {PITCH(B, 4096)}},
    {PACKED, "a.sf.stride is 1", {STRIDE(A_SF, 1)}},
    {PRODUCT, "alpha.stride is 1", {STRIDE(ALPHA, 1)}},
    {PRODUCT, "workspace.stride is 1", {STRIDE(WORKSPACE, 1)}},
    {CAST, "rowwise.stride is 64", {STRIDE(ROWWISE, 64)}},
    {CAST, "input.stride is 63", {STRIDE(INPUT, 63)}},
    {CAST, "input.group_stride is 1", {PITCH(INPUT, 1)}},
    {WEIGHTS, "input.group_stride is 8192", {PITCH(INPUT, 8192)}},
    {MLP, "x.stride is 63", {STRIDE(X, 63)}},
    {MLP, "x.stride is 65", {STRIDE(X, 65)}},
    {MLP, "x.group_stride is 1", {PITCH(X, 1)}},
    {MLP, "w1_rowwise.stride is 7", {STRIDE(W1_ROWWISE, 7)}},
    /* addresses */
    {PRODUCT, "a is 0x", {MOVED(A, 8)}},
    {PRODUCT, "d is 0x", {MOVED(D, 2)}},
    {PRODUCT, "workspace is 0x", {MOVED(WORKSPACE, 8)}},
    {PRODUCT, "alpha is 0x", {MOVED(ALPHA, 2)}},
    {PRODUCT, "noop is 0x", {MOVED(NOOP, 1)}},
    {BIASED, "bias is 0x", {MOVED(BIAS, 4)}},
    {BIASED, "pre is 0x", {MOVED(PRE, 4)}},
    {PACKED, "a.sf is 0x", {MOVED(A_SF, 4)}},
    {CAST, "columnwise is 0x", {MOVED(COLUMNWISE, 8)}},
    {MLP, "saved is 0x", {MOVED(SAVED, 8)}},
    {MLP, "b1 is 0x", {MOVED(B1, 4)}},
    {PRODUCT, "b.pointers is not NULL", {ADDRESSES(B, A), NO(B)}},
    {PRODUCT, "a.pointers is not NULL", {ADDRESSES(A, B)}},
    {PACKED, "a.sf.pointers is not NULL", {ADDRESSES(A_SF, B)}},
    {PRODUCT, "alpha.pointers is not NULL", {ADDRESSES(ALPHA, B)}},
    {POINTED, "d.pointers and d are both given", {DATA(D, A)}},
    {POINTED, "d.pointers is 0x", {OF(D, pointers, ADD, 4)}},
    /* overlap; the message names both */
    {PRODUCT, " overlaps ", {DATA(D, A)}},
    {PRODUCT, " overlaps ", {DATA(D, LENGTHS)}},
    {BIASED, " overlaps ", {DATA(PRE, BIAS)}},
    {CAST, " overlaps ", {DATA(ROWWISE, INPUT)}},
    {CAST, " overlaps ", {DATA(COLUMNWISE, ROWWISE)}},
    {MLP, " overlaps ", {DATA(Y, X)}},
    {MLP, " overlaps ", {DATA(W1_ROWWISE, Y)}},
};
enum { BROKEN = sizeof broken / sizeof broken[0] };

static void apply(struct quern_args *args, const struct change *c)
{
    char *at = (char *)args + c->at;
    int64_t value = c->value;

    if (c->how == FROM)
        memcpy(&value, (char *)args + c->value, sizeof value);
    if (c->how == ADD)
        value += *(int64_t *)(void *)at;
    if (c->how != KEEP)
        memcpy(at, &value, c->how == SET32 ? 4 : 8);
}

static int says(const char *text, const char *part)
{
    return *part == ' ' ? strstr(text, part) != NULL
                        : !strncmp(text, part, strlen(part));
}

static int refuse(struct api_run *run, const struct broken *b)
{
    const uint64_t before = api_run_digest(run);
    const struct quern_args right = run->args;
    int code, bad;

    apply(&run->args, &b->changes[0]);
    apply(&run->args, &b->changes[1]);
    code = quern_run(run->plan, &run->args, NULL);
    bad = code != QUERN_EINVAL || !says(quern_errmsg(), b->part);
    if (bad)
        print_error("%s\n    expected: %s\n    said (%d): %s\n", b->line,
                    b->part, code, quern_errmsg());
    run->args = right;
    if (api_run_digest(run) != before)
        print_error("%s: %s: something is written\n", b->line, b->part);
    return bad || api_run_digest(run) != before;
}

TEST(refuses_arguments)
{
    struct quern_context *ctx = api_open();
    int bad = 0;

    (void)state;
    for (int i = 0; i < BROKEN; i++) {
        struct api_run run;

        api_run_open(&run, ctx, broken[i].line);
        api_run_usual(&run);
        bad += refuse(&run, &broken[i]);
        if (quern_run(run.plan, &run.args, NULL)) /* right without it */
            fail_msg("%s: %s", broken[i].line, quern_errmsg());
        api_run_guarded(&run);
        api_run_close(&run);
    }
    quern_close(ctx);
    assert_int_equal(bad, 0);
}

/* Host sizes that are negative, or more than there are rows. */
TEST(refuses_host_sizes)
{
    static const int64_t wrong[][API_GROUPS] = {{0, -1, 0, 0},
                                                {10, 10, 10, 11},
                                                {0, 0, 0, INT64_MAX},
                                                {INT64_MAX, INT64_MAX, 2, 0},
                                                {INT64_MIN, 0, 0, 0}};
    struct quern_context *ctx = api_open();
    struct api_run run;
    uint64_t before;

    (void)state;
    api_run_open(&run, ctx, HOST);
    before = api_run_digest(&run);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        api_run_sizes(&run, wrong[i], API_LENGTHS, QUERN_I64);
        test_expect(quern_run(run.plan, &run.args, NULL), QUERN_EINVAL,
                    "host_sizes[");
    }
    assert_true(api_run_digest(&run) == before);
    api_run_close(&run);
    quern_close(ctx);
}

/* No type is int32, in one of both arrays, too. */
TEST(takes_int32_by_default)
{
    const int64_t lengths[API_GROUPS] = {0, 1, 7, 20};
    struct quern_context *ctx = api_open();
    struct api_run run;

    (void)state;
    api_run_open(&run, ctx, CAST);
    api_run_sizes(&run, lengths, API_BOTH, QUERN_I32);
    run.args.of[QUERN_ARG_LENGTHS].type = 0;
    test_expect(quern_run(run.plan, &run.args, NULL), QUERN_OK, "");
    test_expect(quern_check(run.plan, &run.args, NULL), QUERN_OK, "");
    api_run_close(&run);
    quern_close(ctx);
}

/* ------------------------------------------------------------------- names */

/* Is the first word of a text the name of an operand, perhaps with a field? */
static int begins_with_name(const char *text, size_t *length)
{
    *length = 0;
    for (int i = 0; i < QUERN_ARGS_COUNT; i++) {
        const char *name = qn_api_name(i);
        const size_t n = strlen(name);

        if (n > *length && !strncmp(text, name, n))
            *length = n;
    }
    if (*length && !strncmp(text + *length, ".pointers", 9))
        *length += 9;
    return *length && strchr(" [:", text[*length]);
}

/* "D overlaps A", both by the names of quern.h. */
static int names_both(const char *text)
{
    size_t length;

    if (!begins_with_name(text, &length))
        return 0;
    text = strstr(text, " overlaps ");
    if (!text)
        return 0;
    text += strlen(" overlaps ");
    return begins_with_name(text, &length) || !text[length];
}

/* Would a run write wherever other values say? */
static int has_addresses(const struct quern_operand *o)
{
    return o->arg == QUERN_ARG_Y_ADDRESSES ||
           o->arg == QUERN_ARG_DX_ADDRESSES || o->arg == QUERN_ARG_D_ADDRESSES;
}

/* Does the phase use both, and may the first be where the second is? */
static int can_move(const struct api_run *run, const struct quern_operand *to,
                    const struct quern_operand *from)
{
    const int bit = 1 << run->args.phase;

    return to != from && !has_addresses(to) && run->args.of[to->arg].data &&
           run->args.of[from->arg].data &&
           (to->read | to->written) & (from->read | from->written) & bit &&
           run->bytes[from->arg] >= run->bytes[to->arg] &&
           !((uintptr_t)run->memory[from->arg] % to->alignment);
}

/* Each operand at the place of each other one. */
static int overlap_each(struct api_run *run, int *refused)
{
    int bad = 0;

    for (int i = 0; i < run->count; i++)
        for (int j = 0; j < run->count; j++) {
            const struct quern_operand *to = &run->table[i];
            const struct quern_operand *from = &run->table[j];

            if (!can_move(run, to, from))
                continue;
            run->args.of[to->arg].data = run->memory[from->arg];
            if (quern_run(run->plan, &run->args, NULL)) {
                ++*refused;
                if (!names_both(quern_errmsg()) && bad++ < 3)
                    print_error("%s, %s at %s: %s\n", run->text, to->name,
                                from->name, quern_errmsg());
            }
            run->args.of[to->arg].data = run->memory[to->arg];
        }
    return bad;
}

TEST(names_what_overlaps)
{
    struct quern_context *ctx = api_open();
    struct api_line line = {.index = 0};
    int bad = 0, seen = 0, refused = 0;

    (void)state;
    while (api_line_next(ctx, API_GROUPS, 40, 64, &line)) {
        struct api_run run;

        if (seen++ % 3)
            continue;
        api_run_open(&run, ctx, line.text);
        for (int phase = 0; phase < QUERN_PHASES; phase++) {
            if (!(qn_api_phases(&run.plan->line) >> phase & 1))
                continue;
            api_run_usual(&run);
            run.args.phase = phase;
            bad += overlap_each(&run, &refused);
        }
        api_run_close(&run);
    }
    api_line_enough(&line);
    quern_close(ctx);
    assert_int_equal(bad, 0);
    assert_true(refused > seen);
}
