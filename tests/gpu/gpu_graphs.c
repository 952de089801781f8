/*
** gpu_graphs.c: one captured run, replayed after the sizes on the device have
** changed. Every row of the ragged axis has values, whichever group gets it;
** the reference is computed anew for each replay that is compared.
*/
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS = 8, ROWS = 400, LIE = 23 };

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
    void *graph, *executable;
    int code;

    gpu_must(cu.capture_begin(r->stream, GPU_CAPTURE_RELAXED), "a capture");
    code = quern_run(r->plan, &r->args, r->stream);
    gpu_must(cu.capture_end(r->stream, &graph), "the end of a capture");
    if (code)
        return NULL;
    gpu_must(cu.graph_instantiate(&executable, graph, 0), "a graph");
    gpu_must(cu.graph_destroy(graph), "freeing a graph");
    return executable;
}

static void upload_async(const struct gpu_buffer *b, const void *from,
                         void *stream)
{
    if (b->bytes)
        gpu_must(cu.upload_async(b->data, from, b->bytes, stream),
                 "fresh values");
}

/* Copies lie as the sizes say, so they are made anew for each replay. */
static void upload_copies(struct gpu_run *r, struct gpu_case *p)
{
    static const int parts[] = {GPU_A,    GPU_B,        GPU_A_SF,
                                GPU_B_SF, GPU_A_GLOBAL, GPU_B_GLOBAL};

    for (int role = QT_A; role <= QT_B; role++)
        if (qt_scaled(&p->c, role) &&
            qt_copies_make(&p->c, &p->data, role, NULL))
            gpu_lost("host memory ran out");
    for (int i = 0; p->c.recipe && i < 6; i++)
        upload_async(&p->parts[parts[i]], gpu_case_source(p, parts[i]),
                     r->stream);
}

/* Queue new sizes, D as before a run and the graph. */
static void replay(struct gpu_run *r, struct gpu_case *p, void *executable,
                   int lie)
{
    qt_sizes_write(&p->c, p->data.first, p->data.offsets);
    upload_copies(r, p);
    if (lie)
        qt_sizes_set(p->c.form == QT_OFFSETS ? p->data.offsets : p->data.first,
                     p->c.sizes_type, 2, -9);
    upload_async(&p->parts[GPU_FIRST], p->data.first, r->stream);
    upload_async(&p->parts[GPU_OFFSETS], p->data.offsets, r->stream);
    upload_async(&r->d, p->data.operand[QT_D], r->stream);
    gpu_must(cu.graph_launch(executable, r->stream), "a replay");
}

/* After a lie only its report and the guards matter. */
static const char *check_replay(struct gpu_run *r, struct gpu_case *p, int lie)
{
    if (!lie) {
        free(p->data.ref);
        if (qt_data_reference(&p->c, &p->data, gpu_threads))
            gpu_lost("host memory ran out");
        return gpu_run_finish(r, p);
    }
    gpu_wait(r->stream, r->label);
    if (quern_check(r->plan, &r->args, r->stream) != QUERN_ESIZES)
        return "a negative length in a replay was not reported";
    return gpu_run_guarded(r, p);
}

/* One in `every` is compared; NULL, or what went wrong first. */
static const char *replay_all(struct gpu_run *r, struct gpu_case *p, int count,
                              int every)
{
    void *executable = capture(r);
    uint64_t state = p->c.seed;
    const char *bad = NULL;

    if (!executable)
        return gpu_text("in a capture: %s", quern_errmsg(gpu_context));
    for (int i = 0; i < count && !bad; i++) {
        int lie = i % LIE == LIE - 1;

        draw_sizes(&p->c, i, &state);
        replay(r, p, executable, lie);
        if (lie || i % every == 0)
            bad = check_replay(r, p, lie);
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

/* What is added to must be the same for all sizes: C apart, or a matrix D for
   each group. */
static const struct qt_epilogue *epilogue_of(const struct gpu_variant *v)
{
    return v->epilogue == QN_SCALE ? &qt_epilogues[4]
                                   : gpu_variant_epilogue(v, 0);
}

/* Each kernel in one of the forms. */
void gpu_graphs(void)
{
    for (int i = 0; i < gpu_nvariants; i++) {
        const struct gpu_variant *v = &gpu_variants[i];
        struct gpu_choice choices[GPU_MAX_CHOICES];
        int count = gpu_variant_choices(v, 1, choices);
        struct gpu_case p = {0};

        if (v->ragged == QUERN_AXIS_NONE ||
            (v->epilogue == QN_ADD && v->ragged != QUERN_AXIS_K) ||
            (gpu_options.quick && i % 4))
            continue;
        gpu_variant_case(v, &p.c);
        p.c.what = "graph";
        p.c.epilogue = epilogue_of(v);
        p.c.groups = GROUPS;
        gpu_variant_sides(&p.c, 136, 72, 0);
        *qt_axis(&p.c, v->ragged) = ROWS;
        p.c.form = i % QT_FORMS;
        p.c.sizes_type = i % 2 ? QUERN_I64 : QUERN_I32;
        p.c.fill = QT_INTEGER;
        p.c.seed = gpu_options.seed + (uint64_t)i;
        group_has_all(&p.c, 0); /* every row gets values */
        gpu_case_open(&p, GPU_GUARD);
        for (int j = 0; j < count; j++)
            run_choice(&p, &choices[j]);
        gpu_case_close(&p);
    }
}
