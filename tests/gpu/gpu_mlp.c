/* SPDX-License-Identifier: Apache-2.0 */
/*
** gpu_mlp.c: the grouped MLP, forward and backward: every recipe with every
** activation, with biases and without, against a chain in double, the same
** bytes at each run and from each buffer, packed or with rows apart, with pre
** kept and computed again, and graphs whose sizes change between replays.
*/
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "oracle/layer.h"

enum { MOST_LINES = 1024, MOST_TOKENS = 4096, REPLAYS = 24 };

struct line {
    char text[256];
    int again;                        /* the first layer computes pre again */
    const struct qt_pattern *pattern; /* NULL: as the line's split says */
    int graph;                        /* replays, too */
    int late;                         /* it was not run: time was over */
    char result[700];                 /* the error, or "" */
};

static struct {
    int count;
    struct line lines[MOST_LINES];
} work;

static void fail(struct line *line, const char *what, const char *more)
{
    snprintf(line->result, sizeof line->result, "%s%s%s: %s%s", line->text,
             line->pattern ? ", " : "",
             line->pattern ? line->pattern->name : "", what, more);
}

/* -------------------------------------------------------------------- runs */

/* Every value that was computed, the guards and what belongs to no group. */
static void judge(struct line *line, struct qn_layer *l)
{
    struct qn_layer_verdict v;
    char text[200];

    if (qn_layer_judge(l, MOST_TOKENS, &v)) {
        fail(line, quern_errmsg(), "");
        return;
    }
    for (int i = 0; v.results[i].name && !*line->result; i++)
        if (!(v.results[i].error <= v.results[i].tolerance)) {
            snprintf(text, sizeof text, "%.2e away, at most %.0e",
                     v.results[i].error, v.results[i].tolerance);
            fail(line, v.results[i].name, text);
        }
    if (!*line->result && !v.passed)
        fail(line,
             v.guards ? "what belongs to no group was written"
                      : "bytes around a buffer were written",
             "");
}

/* Results of both must be the same, padding and poison included. */
static void compare(struct line *line, const struct qn_layer *a,
                    const struct qn_layer *b, const char *what)
{
    const char *where;

    if (*line->result)
        return;
    if (qn_layer_compare(a, b, &where))
        fail(line, quern_errmsg(), "");
    else if (where)
        fail(line, where, what);
}

static void run(struct line *line, struct qn_layer *l)
{
    if (!*line->result && (qn_call_reset(&l->call) || qn_call_run(&l->call)))
        fail(line, quern_errmsg(), "");
}

/* ------------------------------------------------------------------ graphs */

/* Other sizes with the same sum bound, on the device and for the judge. */
static int set_sizes(struct qn_layer *l, int replay, uint64_t *state)
{
    int64_t left = l->mlp.m;

    l->rows = 0;
    for (int i = 0; i < l->mlp.groups; i++) {
        int64_t size = replay % 7 == 3 ? (i == replay % l->mlp.groups) * left
                       : left          ? qt_random_below(state, left / 2 + 2)
                                       : 0;

        l->sizes[i] = size < left ? size : left;
        l->starts[i] = l->rows;
        l->rows += l->sizes[i];
        left -= l->sizes[i];
    }
    return qn_memory_write(&l->call.memory[QUERN_ARG_LENGTHS], 0, l->sizes,
                           l->call.memory[QUERN_ARG_LENGTHS].bytes);
}

static int run_phase(struct qn_layer *l, int phase, void *stream)
{
    l->call.args.phase = phase;
    return quern_run(l->call.plan, &l->call.args, stream);
}

/* Its phases in a graph; NULL if they refused to be captured. */
static void *capture(struct qn_layer *l, void *stream)
{
    int code;

    gpu_capture_begin(stream);
    code = run_phase(l, QUERN_PHASE_FORWARD, stream);
    if (!code && !l->mlp.forward_only)
        code = run_phase(l, QUERN_PHASE_BACKWARD, stream);
    return gpu_capture_end(stream, code);
}

/* A replay, next to a run of its own with the same sizes. */
static void replay_all(struct line *line, struct qn_layer *l,
                       struct qn_layer *eager)
{
    uint64_t one = 1, two = 1;
    void *stream, *executable;

    gpu_must(cu.stream_create(&stream, GPU_NON_BLOCKING), "a stream");
    executable = capture(l, stream);
    if (!executable)
        fail(line, "in a capture: ", quern_errmsg());
    for (int i = 0; i < REPLAYS && !*line->result; i++) {
        int code = set_sizes(l, i, &one);

        code = code ? code : set_sizes(eager, i, &two);
        code = code ? code : qn_call_reset(&l->call);
        code = code ? code : run_phase(l, QUERN_PHASE_WEIGHTS, NULL);
        gpu_must(cu.synchronize(), "new sizes");
        gpu_must(cu.graph_launch(executable, stream), "a replay");
        gpu_wait(stream, line->text);
        if (code || quern_check(l->call.plan, &l->call.args, stream))
            fail(line, "in a replay: ", quern_errmsg());
        run(line, eager);
        compare(line, l, eager, " differs between a replay and a run");
        if (i % 8 == 0 && !*line->result)
            judge(line, l);
    }
    if (executable)
        gpu_must(cu.graph_exec_destroy(executable), "freeing a graph");
    gpu_must(cu.stream_destroy(stream), "freeing a stream");
}

/* ------------------------------------------------------------------- lines */

static void run_line(struct line *line)
{
    static const struct qn_options options = {.command = "gpu_suite",
                                              .seed = 1};
    const int64_t *sizes = NULL;
    struct qn_layer one = {0}, two = {0};
    struct qt_case c = {.what = "mlp", .type = QUERN_BF16, .seed = 3};
    struct qn_mlp mlp, other;
    int64_t gap;

    if (line->pattern) {
        qt_case_op(&c, QUERN_FPROP);
        qt_case_layout(&c, line->pattern);
        sizes = c.length;
    }
    if (qn_mlp_parse(gpu_context, line->text, &mlp)) {
        fail(line, quern_errmsg(), "");
        return;
    }
    mlp.recompute = line->again && !mlp.forward_only;
    mlp.outside = mlp.groups % 2;
    other = mlp;
    other.recompute = !line->again && !mlp.forward_only;
    gap = (mlp.hidden + 15) / 8 * 8 - mlp.hidden; /* to whole 16 bytes */
    if (qn_layer_begin(&one, &options, gpu_context, &mlp, QUERN_BACKEND_JIT,
                       sizes, 0) ||
        qn_layer_begin(&two, &options, gpu_context, &other, QUERN_BACKEND_JIT,
                       sizes, gap))
        fail(line, "it cannot be planned: ", quern_errmsg());
    run(line, &one);
    if (!*line->result)
        judge(line, &one);
    run(line, &two);
    compare(line, &one, &two, " differs from buffer to buffer");
    run(line, &two);
    compare(line, &one, &two, " differs from run to run");
    if (line->graph && !*line->result)
        replay_all(line, &one, &two);
    qn_call_free(&two.call);
    qn_call_free(&one.call);
}

static void add(const char *text, const struct qt_pattern *pattern, int graph)
{
    struct line *line = &work.lines[work.count];

    if (work.count == MOST_LINES)
        gpu_lost("gpu_mlp.c: MOST_LINES is too small");
    work.count++;
    snprintf(line->text, sizeof line->text, "%s", text);
    line->pattern = pattern;
    line->graph = graph;
    line->again = work.count % 2;
}

/* Every activation, and what a line may say in turns. */
static void add_activations(const struct qn_recipe *recipe, int r)
{
    static const char *const turns[2][5] = {
        {"", " interleave=32 dw=f32 beta=1", " interleave=1", " dw=f32",
         " pointers=both dw=f32 beta=1"},
        {" grad=0", " grad=0 interleave=32", " grad=0 interleave=1",
         " grad=0 interleave=8", " grad=0 pointers=w"},
    };
    const int forward = recipe->dy == QUERN_TYPE_NONE;
    char text[256];

    for (int i = 0; i < QUERN_ACTIVATION_COUNT - 1; i++) {
        snprintf(text, sizeof text,
                 "mlp %s g=5 m=%d hidden=256 ffn=%d activation=%s prob=%d "
                 "bias=%d split=skew%s",
                 recipe->name, 700 + i, i % 3 ? 128 : 160,
                 qn_activation_name(1 + i), (r + i) % 3 > 0, (r + i) % 5 > 0,
                 turns[forward][(r + i) % 5]);
        add(text, NULL, i == 0);
    }
    snprintf(text, sizeof text,
             "mlp %s g=3 m=333 hidden=97 ffn=41 split=mild prob=1 bias=1%s",
             recipe->name, forward ? " grad=0" : "");
    add(text, NULL, 0); /* unaligned rows */
}

static void add_patterns(const struct qn_recipe *recipe)
{
    char text[256];

    for (int i = 0; i < qt_npatterns; i++) {
        struct qt_case c = {.what = "mlp", .type = QUERN_BF16, .seed = 3};

        qt_case_op(&c, QUERN_FPROP);
        qt_case_layout(&c, &qt_patterns[i]);
        snprintf(text, sizeof text,
                 "mlp %s g=%d m=%lld hidden=%d ffn=%d prob=1 bias=%d%s",
                 recipe->name, c.groups, (long long)c.m,
                 c.groups > 100 ? 32 : 136, c.groups > 100 ? 16 : 72, i % 2,
                 recipe->dy == QUERN_TYPE_NONE ? " grad=0" : "");
        add(text, &qt_patterns[i], 0);
    }
}

static void run_one(int i, void *unused)
{
    struct line *line = &work.lines[i];

    (void)unused;
    line->late = gpu_late();
    if (!line->late)
        run_line(line);
}

/* --only names kernels of products. Lines run side by side, as most of the
   time is the host's. */
void gpu_mlp(void)
{
    const struct quern_registry *registry = gpu_registry();

    for (int r = 0; r < registry->nrecipes; r++) {
        add_activations(&registry->recipes[r], r);
        if (!gpu_options.quick)
            add_patterns(&registry->recipes[r]);
    }
    gpu_spread(work.count, run_one, NULL);
    for (int i = 0; i < work.count; i++)
        gpu_record_line(work.lines[i].text, work.lines[i].late,
                        work.lines[i].result);
}
