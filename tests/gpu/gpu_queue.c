/*
** gpu_queue.c: products that waited, flushed as merged launches: at once, and
** captured and replayed after all their sizes have changed.
**
** Every product is a case of its own that shares D with the first one. The
** reference of D is the sum of theirs. Operands are small integers, so that it
** is right to the bit in any order.
*/
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS = 6, TOKENS = 384, PARTS = QUERN_MAX_PARTS };

/* The products of one D. */
struct pile {
    struct gpu_case parts[PARTS];
    struct gpu_run runs[PARTS]; /* [0] has D; the others their arguments */
    struct quern_queue *queue;
    int count;
};

/* Nothing, all in one group, or whatever comes, from row 0 on. */
static void draw_sizes(struct qt_case *c, uint64_t *state)
{
    const int64_t kind = qt_random_below(state, 6);
    const int64_t holder = qt_random_below(state, GROUPS);
    int64_t row = 0;

    for (int g = 0; g < GROUPS; g++) {
        c->start[g] = row;
        c->length[g] = kind == 0 ? 0
                       : kind == 1
                           ? (g == holder ? TOKENS : 0)
                           : qt_random_below(state, TOKENS - row + 1) / 2;
        row += c->length[g];
    }
    c->start[GROUPS] = row;
}

/* The product of `kernel`; only the first may do anything but add. */
static void set_case(struct qt_case *c, const struct gpu_variant *v, int part,
                     uint64_t *state)
{
    gpu_variant_case(v, c);
    c->what = "queue";
    c->epilogue = part ? &qt_epilogues[0] : gpu_variant_epilogue(v, 0);
    c->groups = GROUPS;
    gpu_variant_sides(c, 136, 264, 0);
    *qt_axis(c, v->ragged) = TOKENS;
    c->form = QT_FIRST;
    c->sizes_type = part % 2 ? QUERN_I64 : QUERN_I32;
    c->fill = QT_INTEGER;
    c->seed = *state + (uint64_t)part;
    /* every row gets values */
    for (int g = 0; g <= GROUPS; g++)
        c->start[g] = g ? TOKENS : 0;
    c->length[0] = TOKENS;
}

static void upload(struct pile *p, int part, int what)
{
    const struct gpu_buffer *b = &p->parts[part].parts[what];

    if (b->bytes)
        gpu_must(cu.upload_async(b->data,
                                 gpu_case_source(&p->parts[part], what),
                                 b->bytes, p->runs[0].stream),
                 "fresh values");
}

/* New sizes, new copies, and the sum of the references. */
static void draw(struct pile *p, uint64_t *state)
{
    static const int what[] = {GPU_FIRST, GPU_A,        GPU_B,       GPU_A_SF,
                               GPU_B_SF,  GPU_A_GLOBAL, GPU_B_GLOBAL};
    struct qt_data *sum = &p->parts[0].data;

    for (int i = 0; i < p->count; i++) {
        struct gpu_case *part = &p->parts[i];

        draw_sizes(&part->c, state);
        qt_sizes_write(&part->c, part->data.first, part->data.offsets);
        for (int role = QT_A; role <= QT_B; role++)
            if (qt_scaled(&part->c, role) &&
                qt_copies_make(&part->c, &part->data, role, NULL))
                gpu_lost("host memory ran out");
        for (int j = 0; j < (part->c.recipe ? 7 : 1); j++)
            upload(p, i, what[j]);
        free(part->data.ref);
        if (qt_data_reference(&part->c, &part->data, gpu_threads))
            gpu_lost("host memory ran out");
    }
    for (size_t j = 0; j < (size_t)(GROUPS * p->parts[0].c.m * p->parts[0].c.n);
         j++)
        for (int i = 1; i < p->count; i++)
            sum->ref[j] += p->parts[i].data.ref[j];
}

/* All of them into the queue; the first with its own plan. */
static const char *put(struct pile *p)
{
    for (int i = 0; i < p->count; i++)
        if (quern_queue_put(p->queue, p->runs[i].plan, &p->runs[i].args, 3))
            return gpu_text("put %d: %s", i, quern_errmsg(gpu_context));
    return NULL;
}

/* Product i adds to the D of the first. */
static int open_run(struct pile *p, int i, const struct gpu_choice *choice)
{
    const struct gpu_choice any = {"the model's", NULL, QUERN_WGRAD};
    struct gpu_case *part = &p->parts[i];
    struct gpu_run *r = &p->runs[i];
    struct gpu_case adds = *part;
    int code;

    if (i == 0)
        return gpu_run_open(r, part, choice, 0);
    adds.c.epilogue = &qt_epilogues[1];
    code = gpu_run_open(r, &adds, &any, 0);
    r->args.d = p->runs[0].args.d;
    r->args.workspace = p->runs[0].args.workspace;
    return code;
}

/* One flush in a graph; NULL if something refused to be captured. */
static void *capture(struct pile *p, const char **bad)
{
    void *stream = p->runs[0].stream, *graph, *executable;

    *bad = put(p);
    if (*bad)
        return NULL;
    gpu_must(cu.capture_begin(stream, GPU_CAPTURE_RELAXED), "a capture");
    if (quern_queue_flush(p->queue, 3, 0, stream))
        *bad = gpu_text("in a capture: %s", quern_errmsg(gpu_context));
    gpu_must(cu.capture_end(stream, &graph), "the end of a capture");
    if (*bad)
        return NULL;
    gpu_must(cu.graph_instantiate(&executable, graph, 0), "a graph");
    gpu_must(cu.graph_destroy(graph), "freeing a graph");
    return executable;
}

/* The flush itself, then its replays. */
static const char *run_pile(struct pile *p, int replays, uint64_t *state)
{
    void *stream = p->runs[0].stream, *executable;
    const char *bad;

    draw(p, state);
    gpu_run_reset(&p->runs[0], &p->parts[0]);
    bad = put(p);
    if (!bad && quern_queue_flush(p->queue, 3, 0, stream))
        bad = gpu_text("flush: %s", quern_errmsg(gpu_context));
    if (!bad)
        bad = gpu_run_finish(&p->runs[0], &p->parts[0]);
    if (bad || !(executable = capture(p, &bad)))
        return bad;
    for (int i = 0; i < replays && !bad; i++) {
        draw(p, state);
        gpu_run_reset(&p->runs[0], &p->parts[0]);
        gpu_must(cu.graph_launch(executable, stream), "a replay");
        bad = gpu_run_finish(&p->runs[0], &p->parts[0]);
        if (bad)
            bad = gpu_text("replay %d: %s", i, bad);
    }
    gpu_must(cu.graph_exec_destroy(executable), "freeing a graph");
    return bad;
}

static void run_choice(const struct gpu_variant *v,
                       const struct gpu_choice *choice, int count, int replays,
                       uint64_t *state)
{
    struct pile *p = calloc(1, sizeof *p);
    int code = 0;

    if (!p || quern_queue(gpu_context, PARTS, &p->queue))
        gpu_lost("host memory ran out");
    p->count = count;
    for (int i = 0; i < count; i++) {
        set_case(&p->parts[i].c, v, i, state);
        gpu_case_open(&p->parts[i], GPU_GUARD);
    }
    for (int i = 0; !code && i < count; i++) {
        code = open_run(p, i, choice);
        if (code)
            gpu_run_unopened(&p->runs[i], code);
    }
    if (!code)
        gpu_run_record(&p->runs[0], run_pile(p, replays, state));
    quern_queue_free(p->queue);
    for (int i = 0; i < count; i++) {
        gpu_run_close(&p->runs[i]);
        gpu_case_close(&p->parts[i]);
    }
    free(p);
}

/* Each kernel that merges, with 2 to 8 products; the first of all replayed a
   thousand times. */
void gpu_queue(void)
{
    uint64_t state = gpu_options.seed;
    int turn = 0;

    for (int i = 0; i < gpu_nvariants; i++) {
        struct gpu_choice choices[GPU_MAX_CHOICES];
        int count = gpu_variant_choices(&gpu_variants[i], 0, choices);

        for (int j = 0; j < count; j++) {
            int replays = gpu_options.quick ? 8 : turn == 0 ? 1000 : 40;

            if (choices[j].kernel->kernel->parts <= 1)
                continue;
            run_choice(&gpu_variants[i], &choices[j], 2 + turn % (PARTS - 1),
                       replays, &state);
            turn++;
        }
    }
}
