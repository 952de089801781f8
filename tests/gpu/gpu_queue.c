/* SPDX-License-Identifier: Apache-2.0 */
/*
** gpu_queue.c: products that waited, flushed as merged launches: at once, and
** captured and replayed after all their sizes have changed.
**
** Every product is a case of its own that shares D with the first one. The
** reference of D is the sum of theirs. Operands are small integers, so that it
** is right to the bit in any order. Bias gradients of unquantized dy wait with
** the products; the host's bits are theirs.
*/
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Groups: FEW, or more than a warp reads the sizes of at a time. */
enum { FEW = 6, MORE = 35, TOKENS = 384, PARTS = QUERN_MAX_MICROBATCHES };

/* dbias of all dy: overwritten by the first, to which the others are added. */
struct sums {
    struct quern_plan *gpu[2], *host[2];
    int64_t stride; /* of dy's rows */
    struct gpu_buffer dbias, workspace;
    void *host_workspace;
    float *expected;
};

/* The products of one D. */
struct pile {
    int has_sums;
    struct sums sums;
    struct gpu_case parts[PARTS];
    struct gpu_run runs[PARTS]; /* [0] has D; the others their arguments */
    struct quern_queue *queue;
    int count;
};

/* Nothing, all in one group, or any, from row 0 on. */
static void draw_sizes(struct qt_case *c, uint64_t *state)
{
    const int64_t kind = qt_random_below(state, 6);
    const int64_t holder = qt_random_below(state, c->groups);
    int64_t row = 0;

    for (int g = 0; g < c->groups; g++) {
        const int64_t rest = TOKENS - row, each = 2 * TOKENS / c->groups;

        c->start[g] = row;
        c->length[g] =
            kind == 0   ? 0
            : kind == 1 ? (g == holder ? TOKENS : 0)
            : c->groups == FEW
                ? qt_random_below(state, rest + 1) / 2
                : qt_random_below(state, each < rest ? each + 1 : rest + 1);
        row += c->length[g];
    }
    c->start[c->groups] = row;
}

/* The product of `kernel`; only the first may do anything but add. */
static void set_case(struct qt_case *c, const struct gpu_variant *v, int part,
                     int groups, uint64_t *state)
{
    gpu_variant_case(v, c);
    c->what = "queue";
    c->epilogue = part ? &qt_epilogues[0] : gpu_variant_epilogue(v, 0);
    c->groups = groups;
    if (groups == FEW)
        gpu_variant_sides(c, 136, 264, 0);
    else
        gpu_variant_sides(c, 8, 16, 0);
    *qt_axis(c, v->ragged) = TOKENS;
    c->form = QT_FIRST;
    c->sizes_type = part % 2 ? QUERN_I64 : QUERN_I32;
    c->fill = QT_INTEGER;
    c->seed = *state + (uint64_t)part;
    /* every row gets values */
    for (int g = 0; g <= groups; g++)
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
    for (size_t j = 0;
         j < (size_t)(p->parts[0].c.groups * p->parts[0].c.m * p->parts[0].c.n);
         j++)
        for (int i = 1; i < p->count; i++)
            sum->ref[j] += p->parts[i].data.ref[j];
}

/* ---------------------------------------------------------- bias gradients */

static int plan_sums(struct sums *s, const struct qt_case *c, int add)
{
    struct quern_plan_options host = QUERN_PLAN_OPTIONS_INIT, gpu = host;
    char line[160];
    int code;

    host.backend = QUERN_BACKEND_HOST;
    gpu.backend = QUERN_BACKEND_JIT;

    snprintf(line, sizeof line,
             "quantize %s of=dy g=%d m=%d k=%lld copies=rowwise in=%s dbias=%s",
             c->type == QUERN_F16 ? "fp16" : "bf16", c->groups, TOKENS,
             (long long)c->m, c->type == QUERN_F16 ? "f16" : "bf16",
             add ? "add" : "1");
    code = quern_plan_create(gpu_context, line, &gpu, &s->gpu[add]);
    return code ? code
                : quern_plan_create(gpu_context, line, &host, &s->host[add]);
}

/* NULL, or why there are none. */
static const char *open_sums(struct pile *p)
{
    const struct qt_case *c = &p->parts[0].c;
    struct quern_plan_info info;
    struct sums *s = &p->sums;
    struct qt_place place;

    p->has_sums = !c->recipe && c->a_major == QUERN_MAJOR_MN;
    if (!p->has_sums)
        return NULL;
    if (plan_sums(s, c, 0) || plan_sums(s, c, 1) ||
        quern_plan_info(s->gpu[1], &info))
        return gpu_text("dbias: %s", quern_errmsg());
    qt_place_of(c, QT_A, &place);
    s->stride = place.stride;
    gpu_buffer_make(&s->dbias, (size_t)(c->groups * c->m) * sizeof(float),
                    GPU_GUARD);
    gpu_buffer_make(&s->workspace, info.workspace_bytes, GPU_GUARD);
    gpu_buffer_workspace(&s->workspace);
    s->expected = malloc(s->dbias.bytes);
    s->host_workspace =
        aligned_alloc(64, (info.workspace_bytes + 63) / 64 * 64);
    if (!s->expected || !s->host_workspace)
        gpu_lost("host memory ran out");
    memset(s->host_workspace, 0, info.workspace_bytes);
    return NULL;
}

static void close_sums(struct pile *p)
{
    struct sums *s = &p->sums;

    for (int i = 0; i < 2; i++) {
        quern_plan_destroy(s->gpu[i]);
        quern_plan_destroy(s->host[i]);
    }
    gpu_buffer_free(&s->dbias);
    gpu_buffer_free(&s->workspace);
    free(s->expected);
    free(s->host_workspace);
}

/* The arguments of product i's sums. */
static struct quern_args args_of(const struct pile *p, int i, void *dy,
                                 void *lengths, void *dbias, void *workspace)
{
    struct quern_args args = QUERN_ARGS_INIT;

    args.of[QUERN_ARG_INPUT].data = dy;
    args.of[QUERN_ARG_INPUT].stride = p->sums.stride;
    args.of[QUERN_ARG_LENGTHS].data = lengths;
    args.of[QUERN_ARG_LENGTHS].type = p->parts[i].c.sizes_type;
    args.of[QUERN_ARG_DBIAS].data = dbias;
    args.of[QUERN_ARG_WORKSPACE].data = workspace;
    return args;
}

static int put_sums(struct pile *p, int i)
{
    const struct gpu_buffer *parts = p->parts[i].parts;
    const struct quern_args args =
        args_of(p, i, (void *)(uintptr_t)parts[GPU_A].data,
                (void *)(uintptr_t)parts[GPU_FIRST].data,
                (void *)(uintptr_t)p->sums.dbias.data,
                (void *)(uintptr_t)p->sums.workspace.data);

    return quern_queue_put(p->queue, p->sums.gpu[i > 0], &args, 3);
}

/* The host's, of the same dy and sizes, one after the other. */
static const char *check_sums(struct pile *p)
{
    struct sums *s = &p->sums;
    void *seen = malloc(s->dbias.bytes + 1);
    const char *bad = gpu_buffer_guarded(&s->dbias, "dbias");

    if (!seen)
        gpu_lost("host memory ran out");
    bad = bad ? bad : gpu_buffer_guarded(&s->workspace, "its workspace");
    for (int i = 0; i < p->count && !bad; i++) {
        const struct qt_data *data = &p->parts[i].data;
        const struct quern_args args =
            args_of(p, i, data->operand[QT_A], data->first, s->expected,
                    s->host_workspace);

        if (quern_run(s->host[i > 0], &args, NULL))
            bad = gpu_text("dbias: %s", quern_errmsg());
    }
    gpu_buffer_download(&s->dbias, seen);
    if (!bad && memcmp(seen, s->expected, s->dbias.bytes))
        bad = "dbias has other bits than the host's";
    free(seen);
    return bad;
}

/* ---------------------------------------------------------------- products */

/* All of them into the queue; the first with its own plan. */
static const char *put(struct pile *p)
{
    int code = QUERN_OK;

    for (int i = 0; i < p->count && !code; i++) {
        code = quern_queue_put(p->queue, p->runs[i].plan, &p->runs[i].args, 3);
        if (!code && p->has_sums)
            code = put_sums(p, i);
        if (code)
            return gpu_text("put %d: %s", i, quern_errmsg());
    }
    return NULL;
}

/* The outputs of a flush, D and dbias. */
static const char *check_all(struct pile *p)
{
    const char *bad = gpu_run_finish(&p->runs[0], &p->parts[0]);

    return bad || !p->has_sums ? bad : check_sums(p);
}

/* Product i adds to the D of the first. */
static int open_run(struct pile *p, int i, const struct gpu_choice *choice)
{
    static const int shared[] = {QUERN_ARG_D, QUERN_ARG_WORKSPACE};
    const struct gpu_choice any = {"the model's", NULL, QUERN_WGRAD, 0};
    struct gpu_case *part = &p->parts[i];
    struct gpu_run *r = &p->runs[i];
    struct gpu_case adds = *part;
    int code;

    if (i == 0)
        return gpu_run_open(r, part, choice, 0);
    adds.c.epilogue = &qt_epilogues[1];
    code = gpu_run_open(r, &adds, &any, 0);
    for (int k = 0; k < 2; k++)
        r->args.of[shared[k]] = p->runs[0].args.of[shared[k]];
    return code;
}

/* One flush in a graph; NULL if something refused to be captured. */
static void *capture(struct pile *p, const char **bad)
{
    void *stream = p->runs[0].stream;

    *bad = put(p);
    if (*bad)
        return NULL;
    gpu_capture_begin(stream);
    if (quern_queue_flush(p->queue, 3, 0, stream))
        *bad = gpu_text("in a capture: %s", quern_errmsg());
    return gpu_capture_end(stream, !!*bad);
}

/* An invalid size in the last product is told of that one. */
static const char *blame(struct pile *p)
{
    const int last = p->count - 1;
    const struct gpu_case *part = &p->parts[last];
    const char *bad;
    char product[32];
    int code;

    qt_sizes_set(part->data.first, part->c.sizes_type, 2, -9);
    upload(p, last, GPU_FIRST);
    gpu_run_reset(&p->runs[0], &p->parts[0]);
    bad = put(p);
    if (bad)
        return bad;
    if (quern_queue_flush(p->queue, 3, 0, p->runs[0].stream))
        return gpu_text("flush: %s", quern_errmsg());
    gpu_wait(p->runs[0].stream, p->runs[0].label);
    code = quern_check(p->runs[0].plan, &p->runs[0].args, p->runs[0].stream);
    snprintf(product, sizeof product, "product %d of", last);
    if (code == QUERN_ESIZES && strstr(quern_errmsg(), product))
        return NULL;
    return gpu_text("an invalid size of %s the launch: code %d, '%s'", product,
                    code, quern_errmsg());
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
        bad = gpu_text("flush: %s", quern_errmsg());
    if (!bad)
        bad = check_all(p);
    if (!bad)
        bad = blame(p);
    if (bad || !(executable = capture(p, &bad)))
        return bad;
    for (int i = 0; i < replays && !bad; i++) {
        draw(p, state);
        gpu_run_reset(&p->runs[0], &p->parts[0]);
        if (p->has_sums)
            gpu_must(cu.fill_async(p->sums.dbias.data, QT_POISON,
                                   p->sums.dbias.bytes, stream),
                     "poisoning dbias");
        gpu_must(cu.graph_launch(executable, stream), "a replay");
        bad = check_all(p);
        if (bad)
            bad = gpu_text("replay %d: %s", i, bad);
    }
    gpu_must(cu.graph_exec_destroy(executable), "freeing a graph");
    return bad;
}

static void run_choice(const struct gpu_variant *v,
                       const struct gpu_choice *choice, int count, int groups,
                       int replays, uint64_t *state)
{
    struct pile *p = calloc(1, sizeof *p);
    int code = 0;

    if (!p || quern_queue_create(gpu_context, 2 * PARTS, &p->queue))
        gpu_lost("host memory ran out");
    p->count = count;
    for (int i = 0; i < count; i++) {
        set_case(&p->parts[i].c, v, i, groups, state);
        gpu_case_open(&p->parts[i], GPU_GUARD);
    }
    for (int i = 0; !code && i < count; i++) {
        code = open_run(p, i, choice);
        if (code)
            gpu_run_unopened(&p->runs[i], code);
    }
    if (!code) {
        const char *bad = open_sums(p);

        gpu_run_record(&p->runs[0], bad ? bad : run_pile(p, replays, state));
    }
    close_sums(p);
    quern_queue_destroy(p->queue);
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
            int replays = gpu_options.quick || gpu_options.only ? 8
                          : turn == 0                           ? 1000
                                                                : 40;

            if (choices[j].kernel->kernel->microbatches <= 1)
                continue;
            run_choice(&gpu_variants[i], &choices[j], 2 + turn % (PARTS - 1),
                       FEW, replays, &state);
            run_choice(&gpu_variants[i], &choices[j], 3, MORE, 1, &state);
            turn++;
        }
    }
}
