/* SPDX-License-Identifier: Apache-2.0 */
/*
** gpu_moe.c: layers from unpermuted tokens: every recipe over routes that are
** made to break them, against a chain in double, the same bytes at each run;
** graphs whose routes change between replays; products that gather tokens,
** whose bytes are those of permuted ones; and routes and moves alone, byte for
** byte against the host.
*/
#include "gpu_moe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/random.h"
#include "base/types.h"
#include "support/route.h"

enum { MOST_LINES = 512, MOST_TOKENS = 256, REPLAYS = 24 };

/* Kinds of lines: the first are routes, of enum qt_route. */
enum {
    DRAWS = QT_LAST,
    GRAPH = DRAWS,
    INVARIANT,
    TOKENS, /* that a product gathers, or that are permuted */
    ALONE   /* a line about routes */
};

static struct {
    int count;
    struct layer_line lines[MOST_LINES];
} work;

static const struct qn_options options = {.command = "gpu_suite", .seed = 1};

void layer_fail(struct layer_line *line, const char *what, const char *more)
{
    if (!*line->result)
        snprintf(line->result, sizeof line->result, "%s, routes %s: %s%s",
                 line->text,
                 line->draw < DRAWS ? qt_routes[line->draw] : "drawn", what,
                 more);
}

void layer_must(struct layer_line *line, int code, const char *what)
{
    if (code)
        layer_fail(line, what, quern_errmsg());
}

/* ------------------------------------------------------------------ layers */

int layer_begin(struct layer_line *line, struct qn_moe_job *j, const char *text,
                int backend)
{
    struct qn_moe moe;

    memset(j, 0, sizeof *j);
    if (qn_moe_parse(gpu_context, text, &moe) ||
        qn_moe_job_begin(j, &options, gpu_context, &moe, backend, NULL))
        layer_fail(line, "it cannot be planned: ", quern_errmsg());
    return !*line->result;
}

static void judge(struct layer_line *line, struct qn_moe_job *j)
{
    struct qn_layer_verdict v;
    char text[200];

    if (*line->result)
        return;
    layer_must(line, qn_moe_job_judge(j, MOST_TOKENS, &v), "the oracle: ");
    for (int i = 0; !*line->result && v.results[i].name; i++)
        if (!(v.results[i].error <= v.results[i].tolerance)) {
            snprintf(text, sizeof text, " is %.2e away, at most %.0e",
                     v.results[i].error, v.results[i].tolerance);
            layer_fail(line, v.results[i].name, text);
        }
    if (!v.passed)
        layer_fail(line,
                   "bytes around a buffer, or past the tokens, were written",
                   "");
}

static void compare(struct layer_line *line, const struct qn_moe_job *a,
                    const struct qn_moe_job *b, const char *what)
{
    const char *where = NULL;

    if (*line->result)
        return;
    layer_must(line, qn_moe_job_compare(a, b, &where), "");
    if (where)
        layer_fail(line, where, what);
}

void layer_run(struct layer_line *line, struct qn_moe_job *j)
{
    if (!*line->result)
        layer_must(line, qn_call_reset(&j->call), "");
    if (!*line->result)
        layer_must(line, qn_call_run(&j->call), "");
}

static void run_layer(struct layer_line *line)
{
    struct qn_moe_job one = {0}, two = {0};

    if (layer_begin(line, &one, line->text, QUERN_BACKEND_JIT) &&
        layer_begin(line, &two, line->text, QUERN_BACKEND_JIT)) {
        qt_route_draw(&one, (enum qt_route)line->draw);
        qt_route_draw(&two, (enum qt_route)line->draw);
        layer_must(line, qn_moe_job_route(&one), "");
        layer_must(line, qn_moe_job_route(&two), "");
        layer_run(line, &one);
        judge(line, &one);
        layer_run(line, &two);
        compare(line, &one, &two, " differs from buffer to buffer");
        layer_run(line, &two);
        compare(line, &one, &two, " differs from run to run");
    }
    qn_moe_job_free(&two);
    qn_moe_job_free(&one);
}

/* The same x where no kernel can copy 16 bytes from. */
static void move_x(struct layer_line *line, struct qn_moe_job *j,
                   struct qn_memory *odd)
{
    const struct qn_memory *x = &j->call.memory[QUERN_ARG_X];

    layer_must(line, qn_memory_new(odd, x->gpu, x->bytes + 2), "");
    if (*line->result)
        return;
    layer_must(
        line, qn_memory_write(odd, 2, j->call.host[QUERN_ARG_X], x->bytes), "");
    j->call.args.of[QUERN_ARG_X].data = odd->data + 2;
}

static void run_tokens(struct layer_line *line)
{
    struct qn_moe_job one = {0}, two = {0};
    struct qn_memory odd = {0};
    char text[2][300];

    snprintf(text[0], sizeof text[0], "%s gather=all", line->text);
    snprintf(text[1], sizeof text[1], "%s gather=none", line->text);
    if (layer_begin(line, &one, text[0], QUERN_BACKEND_JIT) &&
        layer_begin(line, &two, text[1], QUERN_BACKEND_JIT)) {
        const int64_t m = one.moe.mlp.m;

        for (int i = 0; i < 4; i++) { /* all, at odd addresses, half, none */
            if (i == 1)
                move_x(line, &one, &odd);
            one.call.args.rows = two.call.args.rows =
                i < 2 ? m : m / 2 * (3 - i);
            layer_run(line, &one);
            layer_run(line, &two);
            compare(line, &one, &two, " differs with permuted tokens");
        }
    }
    qn_memory_free(&odd);
    qn_moe_job_free(&two);
    qn_moe_job_free(&one);
}

/* ------------------------------------------------------------------ graphs */

static int queue(struct qn_moe_job *j, void *stream)
{
    int code;

    j->call.args.phase = QUERN_PHASE_FORWARD;
    code = quern_run(j->call.plan, &j->call.args, stream);
    if (code || j->moe.mlp.forward_only)
        return code;
    j->call.args.phase = QUERN_PHASE_BACKWARD;
    return quern_run(j->call.plan, &j->call.args, stream);
}

/* Its phases in a graph; NULL if they refused to be captured. */
static void *capture(struct qn_moe_job *j, void *stream)
{
    gpu_capture_begin(stream);
    return gpu_capture_end(stream, queue(j, stream));
}

/* Other experts for each replay; every fifth time all of them are one. */
static void change(struct qn_moe_job *j, int replay)
{
    uint64_t seed = (uint64_t)replay;
    const int64_t pairs = j->moe.mlp.m * j->moe.topk;

    for (int64_t i = 0; i < pairs; i++)
        j->index[i] =
            replay % 5 == 3
                ? replay % j->moe.mlp.groups
                : (int64_t)(qn_random_next(&seed) %
                            (uint64_t)(j->moe.mlp.groups + replay % 3)) -
                      replay % 3;
}

static void replay(struct layer_line *line, struct qn_moe_job *j,
                   struct qn_moe_job *eager, void *executable, int turn)
{
    void *stream = NULL;

    change(j, turn);
    change(eager, turn);
    layer_must(line, qn_call_reset(&j->call), "");
    layer_must(line, qn_moe_job_route(j), "");
    layer_must(line, qn_moe_job_route(eager), "");
    j->call.args.phase = QUERN_PHASE_WEIGHTS;
    layer_must(line, quern_run(j->call.plan, &j->call.args, NULL), "");
    gpu_must(cu.stream_create(&stream, GPU_NON_BLOCKING), "a stream");
    gpu_must(cu.synchronize(), "new routes");
    gpu_must(cu.graph_launch(executable, stream), "a replay");
    gpu_wait(stream, line->text);
    layer_must(
        line,
        quern_check(j->call.plan, &j->call.args, (struct CUstream_st *)stream),
        "in a replay: ");
    gpu_must(cu.stream_destroy(stream), "freeing a stream");
    layer_run(line, eager);
    compare(line, j, eager, " differs between a replay and a run");
    if (turn % 8 == 0)
        judge(line, j);
}

static void run_graph(struct layer_line *line)
{
    struct qn_moe_job one = {0}, two = {0};
    void *stream = NULL, *executable = NULL;

    if (layer_begin(line, &one, line->text, QUERN_BACKEND_JIT) &&
        layer_begin(line, &two, line->text, QUERN_BACKEND_JIT)) {
        gpu_must(cu.stream_create(&stream, GPU_NON_BLOCKING), "a stream");
        executable = capture(&one, stream);
        if (!executable)
            layer_fail(line, "in a capture: ", quern_errmsg());
    }
    for (int i = 0; i < REPLAYS && !*line->result; i++)
        replay(line, &one, &two, executable, i);
    if (executable)
        gpu_must(cu.graph_exec_destroy(executable), "freeing a graph");
    if (stream)
        gpu_must(cu.stream_destroy(stream), "freeing a stream");
    qn_moe_job_free(&two);
    qn_moe_job_free(&one);
}

/* ------------------------------------------------- routes and moves, alone */

/* Experts around those of the rank, rows in an odd order; else values. */
static int fill(void *unused, const struct quern_operand *o, void *to,
                size_t bytes)
{
    uint64_t seed = (uint64_t)o->arg + 7;
    const size_t width = o->type == QUERN_I64 ? 8 : 4;

    (void)unused;
    memset(to, 0x3c, bytes);
    if (o->read && (o->type == QUERN_I32 || o->type == QUERN_I64)) {
        for (size_t i = 0; i < bytes / width; i++) {
            const int64_t value =
                o->arg == QUERN_ARG_INDEX
                    ? (int64_t)(qn_random_next(&seed) % 70) - 2
                : i % 5 == 1 ? -1
                             : (int64_t)(i * 13 % (bytes / width));

            memcpy((char *)to + i * width, &value, width);
        }
    } else if (o->read) {
        qn_random_fill(to, o->type, bytes / (o->type == QUERN_F32 ? 4 : 2), 0,
                       seed, 1);
    }
    return QUERN_OK;
}

/* A line on a backend, in its memory. */
static void begin_alone(struct layer_line *line, struct qn_call *a, int backend)
{
    static const struct qn_call_data data = {.fill = fill};
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    struct qn_line read;

    o.backend = backend;
    layer_must(line, qn_api_line(gpu_context, line->text, &read), "");
    if (!*line->result)
        layer_must(line, qn_call_plan(a, gpu_context, &read, &o), "");
    if (!*line->result)
        layer_must(line, qn_call_make(a, &data), "");
    if (!*line->result)
        layer_must(line, qn_call_run(a), "");
}

static void compare_alone(struct layer_line *line, const struct qn_call *a,
                          const struct qn_call *b)
{
    for (int i = 0; i < QUERN_ARGS_COUNT && !*line->result; i++) {
        int intact = 1, same = 1;

        if (!a->memory[i].bytes || i == QUERN_ARG_WORKSPACE)
            continue;
        layer_must(line, qn_memory_same(&a->memory[i], &b->memory[i], &same),
                   "");
        layer_must(line, qn_memory_guards(&a->memory[i], &intact), "");
        if (!same)
            layer_fail(line, qn_api_name(i), " differs from the host's");
        if (!intact)
            layer_fail(line, qn_api_name(i), ": bytes around it were written");
    }
}

static void run_alone(struct layer_line *line)
{
    struct qn_call device = {.rows = 0}, host = {.rows = 0};

    begin_alone(line, &device, QUERN_BACKEND_JIT);
    if (!*line->result)
        begin_alone(line, &host, QUERN_BACKEND_HOST);
    if (!*line->result)
        compare_alone(line, &device, &host);
    qn_call_free(&host);
    qn_call_free(&device);
}

/* ------------------------------------------------------------------- lines */

static void add(int how, const char *text)
{
    struct layer_line *line = &work.lines[work.count];

    if (work.count == MOST_LINES)
        gpu_lost("gpu_moe.c: MOST_LINES is too small");
    work.count++;
    snprintf(line->text, sizeof line->text, "%s", text);
    line->draw = how;
}

static void add_all(int how, const char *const *lines, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add(how, lines[i]);
}

/* The keys that a line may have, in turns. */
static void add_recipe(const struct qn_recipe *recipe, int r)
{
    enum { ACTIVATIONS = QUERN_ACTIVATION_COUNT - 1 }; /* all but none */
    static const char *const weights[] = {"h", "y", "x", "none"};
    static const char *const interleaves[] = {"", " interleave=32",
                                              " interleave=1"};
    const int forward = recipe->dy == QUERN_TYPE_NONE;
    const char *rest = forward ? " grad=0" : "";
    char text[256];

    for (int i = 0; i < 2 * DRAWS; i++) {
        const int n = r * 5 + i;

        snprintf(text, sizeof text,
                 "moe %s g=%d m=%d topk=%d hidden=%d ffn=%d activation=%s "
                 "prob=%s bias=%d residual=%d index=%s recompute=%d experts=%d "
                 "first=%d%s%s",
                 recipe->name, i % 3 == 2 ? 65 : 5, i % 3 == 1 ? 129 : 300 + i,
                 n % 4 == 3 ? 8 : 1 + n % 3, n % 5 == 4 ? 97 : 256,
                 n % 3 ? 128 : 96, qn_activation_name(1 + n % ACTIVATIONS),
                 weights[n % 4], n % 2, n / 2 % 2, n % 3 ? "i32" : "i64",
                 n % 4 == 2 && !forward, n % 4 == 1 ? 200 : 0,
                 n % 4 == 1 ? 13 : 0, interleaves[n % 3], rest);
        add(i % DRAWS, text);
    }
    snprintf(text, sizeof text,
             "moe %s g=8 m=257 topk=2 hidden=256 ffn=128 bias=1%s",
             recipe->name, rest);
    add(GRAPH, text);
}

/* Those that scale within a token, without chance. COUPLED: sums */
static void add_invariant(void)
{
    static const char *const recipes[] = {"bf16",        "fp16",      "fp8_row",
                                          "fp8_block",   "mxfp8",     "mxfp4",
                                          "w4a16_mxfp4", "w4a16_int4"};
    static const char *const rest[] = {"hidden=512 ffn=256",
                                       "hidden=1024 ffn=384 prob=y bias=1"};
    char text[256];

    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(text, sizeof text, "moe %s g=8 topk=2 %s%s", recipes[i],
                     rest[k], i < 6 ? "" : " grad=0");
            add(INVARIANT, text);
        }
}

static void add_tokens(void)
{
    static const char *const lines[] = {
        "moe bf16 g=5 m=44 topk=3 hidden=264 ffn=96 recompute=1",
        "moe bf16 g=65 m=129 topk=2 hidden=256 ffn=128 prob=y bias=1",
        "moe fp16 g=3 m=64 topk=4 hidden=192 ffn=64 grad=0 prob=none",
        "moe fp8_block g=5 m=43 topk=3 hidden=272 ffn=128 bias=1",
        "moe fp8_block g=3 m=300 topk=2 hidden=256 ffn=96 recompute=1 prob=y",
        "moe fp8_block g=65 m=65 topk=8 hidden=384 ffn=256 grad=0",
        "moe fp8_row g=5 m=43 topk=3 hidden=272 ffn=96 recompute=1",
        "moe fp8_row g=3 m=1 topk=2 hidden=256 ffn=128 grad=0 prob=none",
        "moe fp8_block g=5 m=65 topk=3 hidden=272 ffn=128 experts=6",
        "moe mxfp8 g=5 m=43 topk=3 hidden=288 ffn=128 recompute=1",
        "moe mxfp4 g=65 m=129 topk=2 hidden=256 ffn=96",
    };

    add_all(TOKENS, lines, sizeof lines / sizeof lines[0]);
}

/* Tokens of y and dx at addresses, for every kind of route. */
static void add_scattered(void)
{
    static const char *const lines[] = {
        "moe bf16 g=5 m=300 topk=1 hidden=264 ffn=96 scatter=1",
        "moe bf16 g=65 m=129 topk=1 hidden=256 ffn=128 prob=none scatter=1",
        "moe fp16 g=3 m=777 topk=1 hidden=1032 ffn=64 scatter=1 experts=5",
        "moe bf16 g=4 m=130 topk=1 hidden=256 ffn=128 bias=1 scatter=1",
        "moe bf16 g=4 m=130 topk=3 hidden=97 ffn=64 prob=y scatter=1",
        "moe fp8_block g=5 m=129 topk=1 hidden=272 ffn=128 scatter=1",
        "moe fp8_row g=3 m=300 topk=1 hidden=256 ffn=96 bias=1 scatter=1",
        "moe mxfp8 g=1 m=64 topk=1 hidden=256 ffn=64 grad=0 scatter=1",
    };

    for (int i = 0; i < DRAWS; i++)
        add_all(i, lines, sizeof lines / sizeof lines[0]);
}

static void add_alone(void)
{
    static const char *const lines[] = {
        "route g=1 m=1 topk=1 experts=70",
        "route g=64 m=1000 topk=8 experts=70 index=i64",
        "route g=1024 m=4099 topk=6 experts=2000",
        "route g=60 m=300000 topk=4 experts=70 first=3",
        "route g=65 m=8192 topk=32 first=3 index=i64",
        "permute m=1000 topk=3 k=256",
        "permute m=77 topk=8 k=1003 in=f16 prob=1",
        "permute m=513 topk=2 k=97 in=f32 prob=1 dprob=1",
        "permute m=100000 topk=1 k=1 in=f32",
        "combine m=1000 topk=3 k=256 prob=1",
        "combine m=77 topk=32 k=1003 in=f16",
        "combine m=513 topk=2 k=97 in=f32 prob=1 residual=1",
        "combine m=100000 topk=1 k=1 in=f32",
    };

    add_all(ALONE, lines, sizeof lines / sizeof lines[0]);
}

static void run_one(int i, void *unused)
{
    struct layer_line *line = &work.lines[i];

    (void)unused;
    line->late = gpu_late();
    if (line->late)
        return;
    if (line->draw == ALONE)
        run_alone(line);
    else if (line->draw == INVARIANT)
        layer_invariant(line);
    else if (line->draw == TOKENS)
        run_tokens(line);
    else if (line->draw == GRAPH)
        run_graph(line);
    else
        run_layer(line);
}

/* --only names kernels of products. Lines run side by side, as most of the
   time is the host's. */
void gpu_moe(void)
{
    const struct quern_registry *registry = gpu_registry();

    add_alone();
    add_invariant();
    add_tokens();
    add_scattered();
    for (int r = 0; r < registry->nrecipes; r++)
        add_recipe(&registry->recipes[r], r);
    gpu_spread(work.count, run_one, NULL);
    for (int i = 0; i < work.count; i++)
        gpu_record_line(work.lines[i].text, work.lines[i].late,
                        work.lines[i].result);
}
