/*
** gpu_graphs.c: one captured run, replayed after the sizes on the device have
** changed.
**
** Each row of A is multiplied with every group's matrix once, in float64, so
** that the result for any split of the rows is put together from that table.
*/
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS = 8, ROWS = 640, COLUMNS = 136, DEPTH = 72, LIE = 333 };

/* products[g]: all rows times the matrix of group g */
static double *products[GROUPS];

/* All rows to one group, none to the others. */
static void group_has_all(struct qt_case *c, int group)
{
    for (int g = 0; g <= c->groups; g++)
        c->start[g] = g <= group ? 0 : ROWS;
    for (int g = 0; g < c->groups; g++)
        c->length[g] = g == group ? ROWS : 0;
}

/* Once for each group: about 50 million products in float64 in all. */
static void make_products(struct gpu_case *p)
{
    for (int g = 0; g < GROUPS; g++) {
        group_has_all(&p->c, g);
        if (qt_data_reference(&p->c, &p->data, gpu_threads))
            gpu_lost("host memory ran out");
        products[g] = p->data.ref;
        p->data.ref = NULL;
    }
    p->data.ref = calloc(ROWS * COLUMNS, sizeof(double));
    if (!p->data.ref)
        gpu_lost("host memory ran out");
}

/* Sizes of one replay: none, all in one group, or drawn. */
static void draw_sizes(struct qt_case *c, int replay, uint64_t *state)
{
    int64_t row = c->form == QT_FIRST ? 0 : qt_random_below(state, 20);

    if (replay % 50 == 7) {
        group_has_all(c, replay / 50 % GROUPS);
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
        c->length[g] = replay % 50 == 3 ? 0 : qt_random_below(state, most);
        row += c->length[g];
    }
    c->start[GROUPS] = row;
}

/* The reference for these sizes, row by row from the table. */
static void expect_sizes(struct gpu_case *p)
{
    for (int g = 0; g < GROUPS; g++)
        memcpy(p->data.ref + p->c.start[g] * COLUMNS,
               products[g] + p->c.start[g] * COLUMNS,
               (size_t)p->c.length[g] * COLUMNS * sizeof(double));
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

/* Queue new sizes, fresh poison and the graph. */
static void replay(struct gpu_run *r, struct gpu_case *p, void *executable,
                   int lie)
{
    qt_sizes_write(&p->c, p->data.first, p->data.offsets);
    if (lie)
        qt_sizes_set(p->c.form == QT_OFFSETS ? p->data.offsets : p->data.first,
                     p->c.sizes_type, 2, -9);
    if (p->data.first_bytes)
        gpu_must(cu.upload_async(p->first.data, p->data.first,
                                 p->data.first_bytes, r->stream),
                 "new sizes");
    if (p->data.offsets_bytes)
        gpu_must(cu.upload_async(p->offsets.data, p->data.offsets,
                                 p->data.offsets_bytes, r->stream),
                 "new offsets");
    gpu_must(cu.fill_async(r->d.data, QT_POISON, r->d.bytes, r->stream),
             "fresh poison");
    gpu_must(cu.graph_launch(executable, r->stream), "a replay");
}

/* After a lie only its report and the guards matter. */
static const char *check_replay(struct gpu_run *r, struct gpu_case *p, int lie)
{
    if (!lie) {
        expect_sizes(p);
        return gpu_run_finish(r, p);
    }
    gpu_wait(r->stream, r->label);
    if (quern_check(r->plan, &r->args, r->stream) != QUERN_ESIZES)
        return "a negative length in a replay was not reported";
    return gpu_run_guarded(r, p);
}

/* All replays of one choice; NULL, or what went wrong first. */
static const char *replay_all(struct gpu_run *r, struct gpu_case *p, int every)
{
    int count = gpu_options.quick ? 100 : 1000;
    void *executable = capture(r);
    uint64_t state = p->c.seed;
    const char *bad = NULL;

    if (!executable)
        return gpu_text("in a capture: %s", quern_errmsg(gpu_context));
    for (int i = 0; i < count && !bad; i++) {
        draw_sizes(&p->c, i, &state);
        replay(r, p, executable, i % LIE == LIE - 1);
        if (i % every == 0 || i % 50 == 3 || i % 50 == 7 || i % LIE == LIE - 1)
            bad = check_replay(r, p, i % LIE == LIE - 1);
        else
            gpu_wait(r->stream, r->label); /* the sizes are to be rewritten */
        if (bad)
            bad = gpu_text("replay %d: %s", i, bad);
    }
    gpu_must(cu.graph_exec_destroy(executable), "freeing a graph");
    return bad;
}

static void run_choice(struct gpu_case *p, const struct gpu_choice *choice)
{
    struct gpu_run r;
    const char *bad = NULL;

    if (gpu_run_open(&r, p, choice, 0))
        bad = gpu_text("quern_plan: %s", quern_errmsg(gpu_context));
    if (!bad) /* the model's choice is compared after every replay */
        bad = replay_all(&r, p, choice->kernel ? 10 : 1);
    gpu_record(bad ? gpu_text("%s: %s", r.label, bad) : NULL);
    gpu_run_close(&r);
}

/* Each kernel in one of the forms, the model's choice in all three. */
void gpu_graphs(void)
{
    for (int form = 0; form < QT_FORMS; form++) {
        struct gpu_case p = {0};

        p.c.what = "graph";
        p.c.groups = GROUPS;
        p.c.m = ROWS;
        p.c.n = COLUMNS;
        p.c.k = DEPTH;
        p.c.form = form;
        p.c.sizes_type = form % 2 ? QUERN_I64 : QUERN_I32;
        p.c.fill = QT_INTEGER;
        p.c.seed = gpu_options.seed + (uint64_t)form;
        group_has_all(&p.c, 0); /* every row of A gets values */
        gpu_case_open(&p, GPU_GUARD);
        free(p.data.ref);
        make_products(&p);
        for (int i = 0; i < gpu_nchoices; i++)
            if (!gpu_choices[i].kernel || i % QT_FORMS == form)
                run_choice(&p, &gpu_choices[i]);
        for (int g = 0; g < GROUPS; g++)
            free(products[g]);
        gpu_case_close(&p);
    }
}
