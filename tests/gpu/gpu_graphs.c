/* SPDX-License-Identifier: Apache-2.0 */
/*
** gpu_graphs.c: captured runs, replayed after the sizes on the device have
** changed. Every row of the ragged axis has values, whichever group gets it;
** the reference is computed anew for each replay that is compared.
**
** One run of each kernel; pairs of layouts on two streams in one graph, against
** runs out of one, too; and sizes from the host, which a graph keeps.
*/
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS = 8, ROWS = 400, BAD_SIZE = 23 };

/* All rows to one group, none to the others. */
static void group_has_all(struct qt_case *c, int group)
{
    for (int g = 0; g <= c->groups; g++)
        c->start[g] = g <= group ? 0 : ROWS;
    for (int g = 0; g < c->groups; g++)
        c->length[g] = g == group ? ROWS : 0;
}

/* Sizes of one replay: none, all in one group, or drawn. */
static void draw_sizes(struct qt_case *c, int replay, uint64_t *state)
{
    int64_t row = c->form == QT_FIRST ? 0 : qt_random_below(state, 20);

    if (replay % 20 == 7) {
        group_has_all(c, replay / 20 % GROUPS);
        return;
    }
    for (int g = 0; g < GROUPS; g++) {
        int64_t left = ROWS - row;
        int64_t most = 1 + left / (1 + qt_random_below(state, GROUPS - g));

        if (c->form == QT_BOTH && left)
            row += qt_random_below(state, left < 6 ? left : 6);
        if (most > ROWS - row + 1)
            most = ROWS - row + 1;
        c->start[g] = row;
        c->length[g] = replay % 20 == 3 ? 0 : qt_random_below(state, most);
        row += c->length[g];
    }
    c->start[GROUPS] = row;
}

/* One quern_run in a graph; NULL if it refused to be captured. */
static void *capture(struct gpu_run *r)
{
    gpu_capture_begin(r->stream);
    return gpu_capture_end(r->stream, quern_run(r->plan, &r->args, r->stream));
}

static void upload_async(const struct gpu_buffer *b, const void *from,
                         void *stream)
{
    if (b->bytes)
        gpu_must(cu.upload_async(b->data, from, b->bytes, stream),
                 "fresh values");
}

/* Copies are as the sizes say, so they are made anew for each replay. */
static void upload_copies(struct gpu_case *p, void *stream)
{
    static const int parts[] = {GPU_A,    GPU_B,        GPU_A_SF,
                                GPU_B_SF, GPU_A_GLOBAL, GPU_B_GLOBAL};

    for (int role = QT_A; role <= QT_B; role++)
        if (qt_scaled(&p->c, role) &&
            qt_copies_make(&p->c, &p->data, role, NULL))
            gpu_lost("host memory ran out");
    for (int i = 0; p->c.recipe && i < 6; i++)
        upload_async(&p->parts[parts[i]], gpu_case_source(p, parts[i]), stream);
}

/* Queue new sizes, and copies that are as these say. */
static void refresh(struct gpu_case *p, int bad_size, void *stream)
{
    qt_sizes_write(&p->c, p->data.first, p->data.offsets);
    upload_copies(p, stream);
    if (bad_size)
        qt_sizes_set(p->c.form == QT_OFFSETS ? p->data.offsets : p->data.first,
                     p->c.sizes_type, 2, -9);
    upload_async(&p->parts[GPU_FIRST], p->data.first, stream);
    upload_async(&p->parts[GPU_OFFSETS], p->data.offsets, stream);
}

/* Queue new sizes, D as before a run and the graph. */
static void replay(struct gpu_run *r, struct gpu_case *p, void *executable,
                   int bad_size)
{
    refresh(p, bad_size, r->stream);
    upload_async(&r->d, p->data.operand[QT_D], r->stream);
    gpu_must(cu.graph_launch(executable, r->stream), "a replay");
}

static void compute_reference(struct gpu_case *p)
{
    free(p->data.ref);
    if (qt_data_reference(&p->c, &p->data, gpu_threads))
        gpu_lost("host memory ran out");
}

/* After an invalid size only its report and the guards matter. */
static const char *check_replay(struct gpu_run *r, struct gpu_case *p,
                                int bad_size)
{
    if (!bad_size) {
        compute_reference(p);
        return gpu_run_finish(r, p);
    }
    gpu_wait(r->stream, r->label);
    if (quern_check(r->plan, &r->args, r->stream) != QUERN_ESIZES)
        return "a negative length in a replay was not reported";
    return gpu_run_guarded(r, p);
}

/* One in `every`, which is 4 or 12: those without rows, and those with all of
   them in one group, are among them. */
static int is_compared(int replay, int every)
{
    return replay % every == every - 1;
}

/* NULL, or the first error. */
static const char *replay_all(struct gpu_run *r, struct gpu_case *p, int count,
                              int every)
{
    void *executable = capture(r);
    uint64_t state = p->c.seed;
    const char *bad = NULL;

    if (!executable)
        return gpu_text("in a capture: %s", quern_errmsg());
    for (int i = 0; i < count && !bad; i++) {
        int bad_size = i % BAD_SIZE == BAD_SIZE - 1;

        draw_sizes(&p->c, i, &state);
        replay(r, p, executable, bad_size);
        if (bad_size || is_compared(i, every))
            bad = check_replay(r, p, bad_size);
        else
            gpu_wait(r->stream, r->label); /* the sizes are to be rewritten */
        if (bad)
            bad = gpu_text("replay %d: %s", i, bad);
    }
    gpu_must(cu.graph_exec_destroy(executable), "freeing a graph");
    return bad;
}

/* The model's choice is replayed more often. */
static void run_choice(struct gpu_case *p, const struct gpu_choice *choice)
{
    int count = choice->kernel ? 24 : 120;
    struct gpu_run r;
    int code = gpu_run_open(&r, p, choice, 0);

    if (gpu_options.quick)
        count = 24;
    if (code)
        gpu_run_unopened(&r, code);
    else
        gpu_run_record(&r, replay_all(&r, p, count, 4));
    gpu_run_close(&r);
}

/* Does the variant have sizes, and a D that may be as before a run for all of
   them? */
static int is_replayed(const struct gpu_variant *v)
{
    return v->ragged != QUERN_AXIS_NONE &&
           (v->epilogue != QN_ADD || v->ragged == QUERN_AXIS_K);
}

static void open_case(struct gpu_case *p, const struct gpu_variant *v,
                      const char *what, int i)
{
    gpu_variant_case(v, &p->c);
    p->c.what = what;
    /* what is added to must be the same for all sizes */
    p->c.epilogue = gpu_variant_epilogue(v, GPU_APART);
    p->c.groups = GROUPS;
    gpu_variant_sides(&p->c, 136, 72, 0);
    *qt_axis(&p->c, v->ragged) = ROWS;
    p->c.form = i % QT_FORMS;
    p->c.sizes_type = i % 2 ? QUERN_I64 : QUERN_I32;
    p->c.fill = QT_INTEGER;
    p->c.seed = gpu_options.seed + (uint64_t)i;
    group_has_all(&p->c, 0); /* every row gets values */
    gpu_case_open(p, GPU_GUARD);
}

/* ------------------------------------------------------------------- pairs */

/* Two layouts, each run on both streams; runs i and i + 2 are of case i. */
struct pair {
    struct gpu_case cases[2];
    struct gpu_run runs[4];
};

/* Stream 0 runs both cases, and so does stream 1 next to it, the other way
   round. */
static void *capture_pair(struct pair *p)
{
    static const int order[] = {0, 1, 3, 2};
    void *streams[] = {p->runs[0].stream, p->runs[1].stream}, *events[2];
    void *executable;
    int code = 0;

    for (int i = 0; i < 2; i++)
        gpu_must(cu.event_create(&events[i], 0), "an event");
    gpu_capture_begin(streams[0]);
    gpu_must(cu.event_record(events[0], streams[0]), "a fork");
    gpu_must(cu.stream_wait(streams[1], events[0], 0), "a fork");
    for (int i = 0; i < 4 && !code; i++) {
        struct gpu_run *r = &p->runs[order[i]];

        code = quern_run(r->plan, &r->args, streams[i % 2]);
    }
    gpu_must(cu.event_record(events[1], streams[1]), "a join");
    gpu_must(cu.stream_wait(streams[0], events[1], 0), "a join");
    executable = gpu_capture_end(streams[0], code);
    for (int i = 0; i < 2; i++)
        gpu_must(cu.event_destroy(events[i]), "freeing an event");
    return executable;
}

/* The same bits as an eager run's, which are right. */
static const char *check_eager(struct gpu_run *r, struct gpu_case *p)
{
    void *of[2] = {malloc(r->d.bytes + 1), malloc(r->d.bytes + 1)};
    const char *bad;

    if (!of[0] || !of[1])
        gpu_lost("host memory ran out");
    bad = gpu_run_finish(r, p);
    gpu_buffer_download(&r->d, of[0]);
    upload_async(&r->d, p->data.operand[QT_D], r->stream);
    if (!bad && quern_run(r->plan, &r->args, r->stream))
        bad = gpu_text("quern_run: %s", quern_errmsg());
    if (!bad)
        bad = gpu_run_finish(r, p);
    gpu_buffer_download(&r->d, of[1]);
    if (!bad && memcmp(of[0], of[1], r->d.bytes))
        bad = "the replay's bits differ from an eager run's";
    free(of[0]);
    free(of[1]);
    return bad;
}

/* New sizes for both cases, then the graph; one in `every` is compared. */
static const char *replay_pair(struct pair *p, void *executable, int i,
                               int every, uint64_t *state)
{
    void *stream = p->runs[0].stream;
    const char *bad = NULL;

    for (int j = 0; j < 2; j++) {
        draw_sizes(&p->cases[j].c, i + j * 4, state);
        refresh(&p->cases[j], 0, stream);
    }
    for (int j = 0; j < 4; j++)
        upload_async(&p->runs[j].d, p->cases[j % 2].data.operand[QT_D], stream);
    gpu_must(cu.graph_launch(executable, stream), "a replay");
    gpu_wait(stream, p->runs[0].label);
    if (!is_compared(i, every))
        return NULL;
    for (int j = 0; j < 2; j++)
        compute_reference(&p->cases[j]);
    for (int j = 0; j < 4 && !bad; j++)
        bad = check_eager(&p->runs[j], &p->cases[j % 2]);
    return bad ? gpu_text("replay %d: %s", i, bad) : NULL;
}

static const char *replay_pairs(struct pair *p, int count, int every)
{
    uint64_t state = p->cases[0].c.seed;
    void *executable = capture_pair(p);
    const char *bad = NULL;

    if (!executable)
        return gpu_text("in a capture: %s", quern_errmsg());
    for (int i = 0; i < count && !bad; i++)
        bad = replay_pair(p, executable, i, every, &state);
    gpu_must(cu.graph_exec_destroy(executable), "freeing a graph");
    return bad;
}

/* The model's choice for each of two variants. */
static void run_pair(int first, int second, int count)
{
    const int variants[] = {first, second};
    struct gpu_choice choices[2][GPU_MAX_CHOICES];
    struct pair *p = calloc(1, sizeof *p);
    int code = 0, failed = 0;

    if (!p)
        gpu_lost("host memory ran out");
    for (int i = 0; i < 2; i++) {
        const struct gpu_variant *v = &gpu_variants[variants[i]];

        if (!gpu_variant_choices(v, 1, choices[i]))
            code = QUERN_ENOKERNEL;
        open_case(&p->cases[i], v, "pair", variants[i]);
    }
    for (int i = 0; i < 4 && !code; i++) {
        failed = i;
        code = gpu_run_open(&p->runs[i], &p->cases[i % 2], choices[i % 2], 64);
    }
    if (code)
        gpu_run_unopened(&p->runs[failed], code);
    else
        gpu_run_record(&p->runs[0],
                       replay_pairs(p, count, count < 100 ? 4 : 12));
    for (int i = 0; i < 4; i++)
        gpu_run_close(&p->runs[i]);
    for (int i = 0; i < 2; i++)
        gpu_case_close(&p->cases[i]);
    free(p);
}

/* The next variant that is replayed in another form, or -1. */
static int partner_of(int first)
{
    const struct gpu_variant *v = &gpu_variants[first];

    for (int i = first + 1; i < gpu_nvariants; i++) {
        const struct gpu_variant *w = &gpu_variants[i];

        if (is_replayed(w) && w->count &&
            (w->a_major != v->a_major || w->b_major != v->b_major ||
             w->ragged != v->ragged))
            return i;
    }
    return -1;
}

/* The first pair a thousand times, one variant in three with its partner. */
static void replay_layouts(void)
{
    int turn = 0;

    for (int i = 0; i < gpu_nvariants; i++) {
        int partner = partner_of(i);

        if (partner < 0 || !is_replayed(&gpu_variants[i]) ||
            !gpu_variants[i].count)
            continue;
        if (turn % 3 == 0 && !(gpu_options.quick && turn))
            run_pair(i, partner, gpu_options.quick ? 24 : turn ? 40 : 1000);
        turn++;
    }
}

/* -------------------------------------------------------- sizes on the host */

/* The plan for a problem that says `word`, in place of the run's. */
static const char *plan_again(struct gpu_run *r, const struct gpu_case *p,
                              const char *word)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan_info info;
    char line[280];

    options.backend = QUERN_BACKEND_JIT;
    qt_case_text(&p->c, line, 256);
    strcat(line, word);
    quern_plan_destroy(r->plan);
    r->plan = NULL;
    gpu_buffer_free(&r->workspace);
    if (quern_plan_create(gpu_context, line, &options, &r->plan) ||
        quern_plan_info(r->plan, &info))
        return gpu_text("%s: %s", line, quern_errmsg());
    gpu_buffer_make(&r->workspace, info.workspace_bytes, GPU_GUARD);
    gpu_buffer_workspace(&r->workspace);
    gpu_must(cu.synchronize(), "zeroing"); /* the stream does not wait */
    r->args.of[QUERN_ARG_WORKSPACE].data = (void *)(uintptr_t)r->workspace.data;
    return NULL;
}

/* Eagerly with two lists of sizes, and a graph that keeps the second. */
static const char *run_host_sizes(struct gpu_run *r, struct gpu_case *p)
{
    uint64_t state = p->c.seed;
    const char *bad = plan_again(r, p, " sizes=host");
    void *executable;

    r->args.of[QUERN_ARG_LENGTHS].data = NULL;
    r->args.host_sizes = p->c.length;
    for (int i = 4; i < 6 && !bad; i++) {
        draw_sizes(&p->c, i, &state);
        refresh(p, 1, r->stream); /* device memory is not read */
        compute_reference(p);
        gpu_wait(r->stream, r->label);
        bad = gpu_run_start(r, p);
        bad = bad ? bad : gpu_run_finish(r, p);
    }
    if (bad)
        return bad;
    if ((executable = capture(r)))
        return "a graph would have frozen sizes that are not fixed";
    bad = plan_again(r, p, " sizes=fixed");
    if (bad || !(executable = capture(r)))
        return bad ? bad : gpu_text("captured: %s", quern_errmsg());
    for (int i = 0; i < 3 && !bad; i++) {
        gpu_run_reset(r, p);
        gpu_must(cu.graph_launch(executable, r->stream), "a replay");
        bad = gpu_run_finish(r, p);
    }
    gpu_must(cu.graph_exec_destroy(executable), "freeing a graph");
    return bad;
}

/* Cases that no kernel's name says. */
static void replay_choice(const struct gpu_variant *v, int i,
                          const struct gpu_choice *choice)
{
    struct gpu_case p = {0};
    struct gpu_run r;
    int code;

    p.c.dequantize = choice->dequantize;
    open_case(&p, v, "sizes on the host", i / QT_FORMS * QT_FORMS);
    code = gpu_run_open(&r, &p, choice, 0);
    if (code)
        gpu_run_unopened(&r, code);
    else
        gpu_run_record(&r, run_host_sizes(&r, &p));
    gpu_run_close(&r);
    gpu_case_close(&p);
}

/* The model's choices for each variant with groups from row 0 on. */
static void replay_host_sizes(void)
{
    for (int i = 0; i < gpu_nvariants; i++) {
        const struct gpu_variant *v = &gpu_variants[i];
        struct gpu_choice choices[GPU_MAX_CHOICES];
        int count = gpu_variant_choices(v, 1, choices);

        if (!is_replayed(v) || (gpu_options.quick && i % 4))
            continue;
        for (int j = 0; j < count && !choices[j].kernel; j++)
            if (j == 0 || choices[j].dequantize)
                replay_choice(v, i, &choices[j]);
    }
}

/* Each kernel in one of the forms. */
void gpu_graphs(void)
{
    for (int i = 0; i < gpu_nvariants; i++) {
        const struct gpu_variant *v = &gpu_variants[i];
        struct gpu_choice choices[GPU_MAX_CHOICES];
        int count = gpu_variant_choices(v, 1, choices);
        struct gpu_case p = {0};

        if (!is_replayed(v) || (gpu_options.quick && i % 4))
            continue;
        open_case(&p, v, "graph", i);
        for (int j = 0; j < count; j++)
            run_choice(&p, &choices[j]);
        gpu_case_close(&p);
    }
    replay_layouts();
    replay_host_sizes();
}
