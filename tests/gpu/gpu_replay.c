/* SPDX-License-Identifier: Apache-2.0 */
/*
** gpu_replay.c: all that may be captured, in graphs: casts with all their
** outputs, products of each recipe and strategy, merged launches, MLPs.
**
** Each is captured once and replayed with sizes that change: two different ones
** at a time, on two streams. One replay in five is compared to the byte with an
** eager run of the same in other buffers, on the other stream. Whether the
** bytes are right is for other families to say.
*/
#define _GNU_SOURCE /* FNM_EXTMATCH */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "gpu_call.h"

enum { MOST_LINES = 1024, EVERY = 5 };

/* Kinds of replays that are compared, in turn. */
enum phase {
    DRAWN,
    NO_ROWS,
    ONE_GROUP,
    BAD_SIZE, /* a negative length */
    SKIPPED,  /* a flag on the device says so */
    ZEROS,    /* in place of what a cast reads */
    DRAWN_TOO,
    PHASES
};

struct line {
    char text[256];
    int later;        /* enum gpu_call_later */
    int refused;      /* a capture must be refused */
    int late;         /* it was not run: time was over */
    char result[700]; /* the error, or "" */
};

struct twins {
    struct line *line;
    struct gpu_call graph, eager;
    void *executable, *stream;
    int64_t lengths[QUERN_MAX_GROUPS];
    uint64_t state;
    unsigned char *seen[2]; /* a part of either */
};

static struct {
    int count;
    struct line lines[MOST_LINES];
} work;

static void fail(struct line *line, const char *what, const char *more)
{
    snprintf(line->result, sizeof line->result, "%s%s: %s%s", line->text,
             line->later == GPU_QUEUED  ? ", wgrad queued"
             : line->later == GPU_LATER ? ", wgrad later"
                                        : "",
             what, more);
}

static int is_well(const struct twins *t)
{
    return t->line && !*t->line->result;
}

/* ----------------------------------------------------------------- replays */

static void upload(const struct qn_memory *m, const void *from, void *stream)
{
    gpu_must(cu.upload_async((gpu_address)(uintptr_t)m->data, from, m->bytes,
                             stream),
             "an upload");
}

/* The kind of each replay; any, if not compared. */
static void draw_sizes(struct twins *t, enum phase phase, int i)
{
    const int groups = t->graph.groups;
    int64_t left = t->graph.rows;

    for (int g = 0; g < groups; g++) {
        int64_t size = phase == NO_ROWS ? 0
                       : phase == ONE_GROUP
                           ? (g == i / EVERY % groups) * left
                           : qt_random_below(&t->state, left / 2 + 2);

        t->lengths[g] = size < left ? size : left;
        left -= t->lengths[g];
    }
    if (phase == BAD_SIZE)
        t->lengths[i % groups] = -9;
}

/* The sizes; and, before a run that is compared, all as before any. */
static void prepare(struct twins *t, struct gpu_call *c, enum phase phase,
                    int compared, void *stream)
{
    const struct qn_memory *in = &c->cast.call.memory[QUERN_ARG_INPUT];
    const int flag = phase == SKIPPED ? 3 : 0;

    if (c->sizes)
        upload(c->sizes, t->lengths, stream);
    if (!compared)
        return;
    for (int i = 0; i < c->count; i++)
        upload(c->parts[i].memory, c->parts[i].before, stream);
    upload(&c->noop, &flag, stream);
    if (c->kind == GPU_CAST && in->bytes && phase == ZEROS)
        gpu_must(cu.fill_async((gpu_address)(uintptr_t)in->data, 0, in->bytes,
                               stream),
                 "zeros");
    else if (c->kind == GPU_CAST && in->bytes)
        upload(in, c->cast.call.host[QUERN_ARG_INPUT], stream);
}

/* The graph of a call; NULL if it refused. */
static void *capture(struct gpu_call *c, void *stream, int *code)
{
    gpu_capture_begin(stream);
    *code = gpu_call_run(c, stream);
    return gpu_capture_end(stream, *code);
}

static int downloaded(const struct qn_memory *m, unsigned char *to)
{
    return !cu.download(to, (gpu_address)(uintptr_t)m->data, m->bytes);
}

/* Every part of both; skipped outputs are unchanged, and outputs with rows
   were written. */
static void compare(struct twins *t, enum phase phase)
{
    const struct gpu_call *a = &t->graph, *b = &t->eager;
    const int has_flag = a->kind != GPU_MLP;
    int written = 0;

    for (int i = 0; i < a->count; i++) {
        const struct qn_memory *m = a->parts[i].memory;

        if (!downloaded(m, t->seen[0]) ||
            !downloaded(b->parts[i].memory, t->seen[1])) {
            fail(t->line, "its buffers cannot be read", "");
            return;
        }
        if (memcmp(t->seen[0], t->seen[1], m->bytes))
            fail(t->line, "other bytes than those of a run", "");
        written |= !!memcmp(t->seen[0], a->parts[i].before, m->bytes);
    }
    if (written && phase == SKIPPED && has_flag)
        fail(t->line, "noop was set, and it wrote", "");
    if (!written && (phase == DRAWN || phase == DRAWN_TOO))
        fail(t->line, "it wrote nothing", "");
}

/* Both have run. */
static void judge(struct twins *t, enum phase phase, int i)
{
    const int bad_size = phase == BAD_SIZE && t->graph.sizes;
    const int expected = bad_size ? QUERN_ESIZES : QUERN_OK;
    char which[40];

    snprintf(which, sizeof which, " (replay %d)", i);
    if (gpu_call_check(&t->graph, t->stream) != expected ||
        gpu_call_check(&t->eager, t->stream) != expected)
        fail(t->line,
             bad_size ? "a negative length was not reported" : quern_errmsg(),
             which);
    else if (!bad_size)
        compare(t, phase);
    if (*t->line->result && !strstr(t->line->result, which))
        strncat(t->line->result, which,
                sizeof t->line->result - strlen(t->line->result) - 1);
}

/* Both graphs run at once, and so are both eager runs. */
static void replay(struct twins t[2], int i)
{
    const int compared = i % EVERY == EVERY - 1;
    const enum phase phase = compared ? i / EVERY % PHASES : DRAWN;

    for (int j = 0; j < 2; j++) {
        if (!is_well(&t[j]))
            continue;
        draw_sizes(&t[j], phase, i);
        prepare(&t[j], &t[j].graph, phase, compared, t[j].stream);
        gpu_must(cu.graph_launch(t[j].executable, t[j].stream), "a replay");
    }
    for (int j = 0; j < 2 && compared; j++) {
        if (!is_well(&t[j]))
            continue;
        prepare(&t[j], &t[j].eager, phase, 1, t[!j].stream);
        if (gpu_call_run(&t[j].eager, t[!j].stream))
            fail(t[j].line, "a run: ", quern_errmsg());
    }
    for (int j = 0; j < 2 && compared; j++)
        gpu_wait(t[j].stream, t[j].line ? t[j].line->text : "nothing");
    for (int j = 0; j < 2 && compared; j++)
        if (is_well(&t[j]))
            judge(&t[j], phase, i);
}

/* ------------------------------------------------------------------- lines */

/* The graph; sizes that it is to keep are gone from the host then. */
static void make_graph(struct twins *t)
{
    int code;

    t->executable = capture(&t->graph, t->stream, &code);
    if (t->line->refused && code != QUERN_ECAPTURE)
        fail(t->line, "a graph would have frozen sizes that are not fixed", "");
    else if (code && !t->line->refused)
        fail(t->line, "in a capture: ", quern_errmsg());
    if (code || t->graph.sizes)
        return;
    memset(t->graph.lengths, 0, (size_t)t->graph.groups * sizeof(int64_t));
}

static void open_twins(struct twins *t)
{
    if (gpu_call_open(&t->graph, t->line->text, t->line->later) ||
        gpu_call_open(&t->eager, t->line->text, t->line->later)) {
        fail(t->line, "it cannot be planned: ", quern_errmsg());
        return;
    }
    t->state = gpu_options.seed;
    for (int i = 0; i < 2; i++) {
        t->seen[i] = malloc(t->graph.most + 1);
        if (!t->seen[i])
            gpu_lost("host memory ran out");
    }
    gpu_must(cu.synchronize(), "what was written at first");
}

static void check_guards(struct twins *t)
{
    struct gpu_call *calls[] = {&t->graph, &t->eager};

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < calls[i]->count && is_well(t); j++) {
            int intact = 1;

            if (qn_memory_guards(calls[i]->parts[j].memory, &intact))
                fail(t->line, "a guard: ", quern_errmsg());
            else if (!intact)
                fail(t->line, "bytes around a buffer were written", "");
        }
}

/* The first call that was opened has made the context current: it is the last
   one that is closed. */
static void close_twins(struct twins *t)
{
    if (t->executable)
        gpu_must(cu.graph_exec_destroy(t->executable), "freeing a graph");
    gpu_call_close(&t->eager);
    gpu_call_close(&t->graph);
    free(t->seen[0]);
    free(t->seen[1]);
}

/* Two lines next to each other, or the last one only. */
static void run_pair(struct line *first, struct line *second)
{
    const int count = gpu_options.quick ? 2 * PHASES * EVERY : 1000;
    struct twins *t = calloc(2, sizeof *t);

    if (!t)
        gpu_lost("host memory ran out");
    t[0].line = first;
    t[1].line = second;
    for (int j = 0; j < 2; j++)
        if (t[j].line)
            open_twins(&t[j]);
    if (is_well(&t[0]) || is_well(&t[1])) {
        for (int j = 0; j < 2; j++)
            gpu_must(cu.stream_create(&t[j].stream, GPU_NON_BLOCKING),
                     "a stream");
        for (int j = 0; j < 2; j++)
            if (is_well(&t[j]))
                make_graph(&t[j]);
        for (int i = 0; i < count && !first->refused; i++)
            replay(t, i);
        for (int j = 0; j < 2; j++)
            gpu_must(cu.stream_destroy(t[j].stream), "freeing a stream");
    }
    for (int j = 0; j < 2; j++)
        check_guards(&t[j]);
    for (int j = 1; j >= 0; j--)
        close_twins(&t[j]);
    free(t);
}

/* ------------------------------------------------------------------- lists */

/* Kinds of these recipes; %s is the recipe. */
struct list {
    const char *recipes, *line;
};

#define TOKENS    "g=8 m=400 k=136"
#define FPROP     "fprop %s g=8 m=400 n=256 k=128"
#define DGRAD     "dgrad %s g=8 m=400 n=256 k=128"
#define WGRAD     "wgrad %s g=8 m=256 n=128 k=400 d=f32"
#define PLAIN     "@(bf16|fp16)"
#define SCALED    "!(bf16|fp16)"
#define ACTIVATED "@(bf16|fp16|fp8_*)"
#define MADE      "@(fp8_block*|fp8_row|fp8_tensor|mx*|nvfp4)"

static const struct list lists[] = {
    {"*", FPROP},
    {"*", DGRAD},
    {"*", WGRAD " beta=1"},
    {"*", FPROP " alpha=any beta=any"},
    {PLAIN, DGRAD " pointers=b"},
    {"*", FPROP " sizes=fixed"},
    {"*", WGRAD " sizes=fixed"},
    {"*", WGRAD " beta=1 microbatches=4"},
    {"*", WGRAD " beta=1 microbatches=4 sizes=fixed"},
    {PLAIN, "fprop %s g=8 m=400 n=256 k=128 layout=nn"},
    {PLAIN, "fprop %s g=8 m=256 n=400 k=128 ragged=n layout=tt"},
    {PLAIN, WGRAD " layout=tn"},
    {ACTIVATED, FPROP " bias=1 activation=swiglu prob=1 saved=1"},
    {ACTIVATED, DGRAD " activation=swiglu prob=1 dbias=1 dprob=1"},
    {SCALED, FPROP " activation=swiglu prob=1 saved=1 copies=both"},
    {SCALED, DGRAD " activation=swiglu prob=1 dbias=add copies=both"},
    {SCALED, FPROP " bias=1 sizes=fixed copies=both"},
    {SCALED, DGRAD " copies=rowwise"},
    {MADE, FPROP " quantize=mainloop"},
    {"fp8_block*", DGRAD " quantize=mainloop dbias=add"},
    {"fp8_block*", DGRAD " quantize=mainloop sizes=fixed"},
    {"@(mx*|nvfp4)", FPROP " dequantize=mainloop"},
    {"@(mx*|nvfp4)", DGRAD " dequantize=pass"},
    {"@(mx*|nvfp4)", WGRAD " beta=1 dequantize=pass sizes=fixed"},
    {"mxfp4", FPROP " dequantize=fp8"},
    {"mxfp4", WGRAD " beta=1 dequantize=fp8"},
    {"mxfp8*", FPROP " dequantize=f16"},
    {"mxfp8*", DGRAD " dequantize=f16 sizes=fixed"},
    {SCALED, "quantize %s of=x " TOKENS},
    {SCALED, "quantize %s of=x " TOKENS " sizes=fixed"},
    {SCALED, "quantize %s of=dy in=f32 dbias=1 " TOKENS},
    {SCALED, "quantize %s of=dy in=f16 dbias=add " TOKENS},
    {SCALED, "quantize %s of=x activation=swiglu prob=1 " TOKENS},
    {SCALED,
     "quantize %s of=dy activation=swiglu prob=1 dbias=1 dprob=1 " TOKENS},
    {SCALED, "quantize %s of=w g=3 m=136 k=264"},
    {SCALED, "dequantize %s of=x " TOKENS},
    {SCALED, "dequantize %s of=dy copies=columnwise out=f32 " TOKENS},
    {SCALED, "dequantize %s of=w g=3 m=136 k=264"},
    {SCALED, "dequantize %s of=x sizes=fixed " TOKENS},
    {SCALED, "transpose %s of=x " TOKENS},
    {SCALED, "transpose %s of=dy sizes=fixed " TOKENS},
    {SCALED, "transpose %s of=w g=3 m=136 k=264"},
    {"fp8_tensor_delayed", "rescale %s of=x"},
    {PLAIN, "bias %s of=x prob=1 " TOKENS},
    {PLAIN, "bias %s of=x sizes=fixed " TOKENS},
    {PLAIN, "quantize %s of=dy copies=rowwise dbias=add " TOKENS},
    {PLAIN, "quantize %s of=dy copies=rowwise prob=1 dbias=1 dprob=1 " TOKENS},
    {PLAIN, "quantize %s of=x copies=rowwise activation=situ prob=1 " TOKENS},
    {PLAIN,
     "quantize %s of=dy copies=rowwise activation=geglu dbias=1 " TOKENS},
    {"*", "mlp %s g=5 m=300 hidden=136 ffn=128 prob=1 bias=1"},
    {"*", "mlp %s g=5 m=300 hidden=136 ffn=128 dw=f32 beta=1 recompute=1 "
          "sizes=fixed"},
};

static const char *const refusals[] = {
    "fprop bf16 g=8 m=400 n=256 k=128 sizes=host",
    "wgrad bf16 g=8 m=256 n=128 k=400 d=f32 beta=1 microbatches=4 sizes=host",
    "fprop mxfp8 g=8 m=400 n=256 k=128 dequantize=pass sizes=host",
    "fprop fp8_block g=8 m=400 n=256 k=128 quantize=mainloop sizes=host",
    "quantize fp8_block of=dy g=8 m=400 k=136 dbias=1 sizes=host",
    "mlp fp8_block g=5 m=300 hidden=136 ffn=128 sizes=host"};

static void add(const char *line, const char *recipe, int later)
{
    struct line *new = &work.lines[work.count++];

    if (work.count > MOST_LINES)
        gpu_lost("gpu_replay.c: MOST_LINES is too small");
    snprintf(new->text, sizeof new->text, line, recipe);
    new->later = later;
}

/* One in six in a quick run: their kernels take most of the time. */
static void add_all(void)
{
    const struct quern_registry *registry = gpu_registry();
    int turn = (int)gpu_options.seed;

    for (int r = 0; r < registry->nrecipes; r++)
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
            const char *recipe = registry->recipes[r].name;
            const int mlp = !strncmp(lists[i].line, "mlp ", 4);

            if (!gpu_variant_wants(&registry->recipes[r]) ||
                fnmatch(lists[i].recipes, recipe, FNM_EXTMATCH) ||
                (gpu_options.quick && turn++ % 6))
                continue;
            add(lists[i].line, recipe, 0);
            for (int later = GPU_LATER; mlp && later <= GPU_QUEUED; later++)
                if (later == GPU_LATER || !strstr(lists[i].line, "fixed"))
                    add(lists[i].line, recipe, later);
        }
}

/* The i-th two of the lines. */
static void run_two(int i, void *unused)
{
    struct line *first = &work.lines[2 * i];
    struct line *second = 2 * i + 1 < work.count ? first + 1 : NULL;

    (void)unused;
    if (gpu_late())
        first->late = first[second != NULL].late = 1;
    else
        run_pair(first, second);
}

/* Side by side, as most of the time is the compiler's. */
void gpu_replays(void)
{
    add_all();
    gpu_spread((work.count + 1) / 2, run_two, NULL);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        add(refusals[i], "", 0);
        work.lines[work.count - 1].refused = 1;
        run_pair(&work.lines[work.count - 1], NULL);
    }
    for (int i = 0; i < work.count; i++)
        gpu_record_line(work.lines[i].text, work.lines[i].late,
                        work.lines[i].result);
}
