/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_requantize.c: operands that are requantized to FP8 or converted to f16
   where they fit. Bytes of no group are poison, and must not count. With one
   block that does not fit, a run's bits are those of the fallback; with the
   block as it was, those of the run before. All twice, by runs and by replays
   of one graph, in the same workspace. */
#include "gpu.h"

#include "api/api.h"
#include "product/frame.h"
#include "base/types.h"
#include "choose/model.h"
#include "problem/dequantize_rules.h"
#include "problem/quantize.h"
#include "problem/requantize_rules.h"
#include "problem/scale.h"
#include "product/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 32,
    TOGETHER = 128,
    HALF = 0x11,
    ONE = 0x22,
    LEAST = 0x01, /* of e4m3: 2^-9 */
    MOST = 0xfe,  /* -448 */
    NAN_SCALE = 255
};

/* 32 values of an operand on the host. */
struct block {
    int role;
    unsigned char *codes, *scale;
    int bytes;   /* of codes */
    int largest; /* scale of the others that share a factor; -1: all are 0 */
};

/* The outcome of one. */
static const struct change {
    int strategy; /* of enum quern_dequantize */
    const char *what;
    int codes; /* all of them */
    int below; /* its scale, below the others'; 0: as given */
    int scale;
    int fits;
} changes[] = {
    {QUERN_DEQUANTIZE_FP8, "0.5, 2^14 below the others", HALF, 14, 0, 1},
    {QUERN_DEQUANTIZE_FP8, "0.5, 2^15 below the others", HALF, 15, 0, 0},
    {QUERN_DEQUANTIZE_FP8, "1, 2^15 below the others", ONE, 15, 0, 1},
    {QUERN_DEQUANTIZE_FP8, "NaN times 0", 0, 0, NAN_SCALE, 0},
    {QUERN_DEQUANTIZE_FP8, "0 times 2^-127", 0, 0, 0, 1},
    {QUERN_DEQUANTIZE_F16, "2^-9, 2^21 below the others", LEAST, 21, 0, 1},
    {QUERN_DEQUANTIZE_F16, "2^-9, 2^22 below the others", LEAST, 22, 0, 0},
    {QUERN_DEQUANTIZE_F16, "-448, the others 2^10 below", MOST, -10, 0, 1},
    {QUERN_DEQUANTIZE_F16, "-448 times 2^67", MOST, 0, 194, 0},
    {QUERN_DEQUANTIZE_F16, "NaN times 0", 0, 0, NAN_SCALE, 0},
    {QUERN_DEQUANTIZE_F16, "0 times 2^-127", 0, 0, 0, 1},
    {QUERN_DEQUANTIZE_F16, "0 times 2^-75", 0, 0, 52, 1},
    {QUERN_DEQUANTIZE_F16, "2^-9 times 2^-75", LEAST, 0, 52, 0},
};
enum { CHANGES = sizeof changes / sizeof *changes };

/* Both strategies of a case, and a graph of the first. */
struct pair {
    struct gpu_case p;
    int strategy;
    struct gpu_run fp8, wide; /* fp8: or f16; wide: what stands after */
    void *graph;              /* NULL: runs */
    void *base;               /* D in FP8 of the data as they are */
};

/* ------------------------------------------------------------------- blocks */

/* A copy of an operand, whose scales are row by row. */
struct copy {
    struct qn_quantization q;
    int64_t lines, length; /* of a matrix */
    int64_t pitch, wide;   /* bytes of a line, and its scales */
    int bytes;             /* of a block's codes */
};

static void copy_of(const struct pair *t, int role, struct copy *copy)
{
    const struct qn_problem *p = &t->fp8.plan->of.product->problem;
    const struct qn_recipe *recipe = t->p.c.recipe;
    struct qn_tensor tensor = {.ndim = 0};
    int column, matrices;

    qn_scale_source(p, recipe, role, &copy->q);
    qn_quantize_copy(&copy->q, recipe, copy->q.copies, &tensor);
    column = copy->q.copies == QUERN_COLUMNWISE;
    matrices = copy->q.of == QN_W ? copy->q.groups : 1;
    copy->lines = column ? copy->q.k : copy->q.m;
    copy->length = column ? copy->q.m : copy->q.k;
    copy->bytes = BLOCK * qn_type_bits(tensor.type) / 8;
    copy->pitch =
        (tensor.stride ? tensor.stride : tensor.shape[tensor.ndim - 1]) *
        copy->bytes / BLOCK;
    copy->wide = (int64_t)tensor.sf_bytes / (matrices * copy->lines);
}

/* Lines and blocks from the first up to the last, of one factor or of all. */
struct area {
    int64_t line, lines, block, blocks;
};

/* Elements of a group; 0: it is empty. */
static int area_of(const struct pair *t, const struct copy *copy, int64_t g,
                   struct area *a)
{
    const struct qt_case *c = &t->p.c;
    int column = copy->q.copies == QUERN_COLUMNWISE;
    int64_t first = 0;

    *a = (struct area){0, copy->lines, 0, (copy->length + BLOCK - 1) / BLOCK};
    if (copy->q.of == QN_W) {
        a->line = g * copy->lines;
        return 1;
    }
    for (int64_t i = 0; i < g; i++)
        first += (c->length[i] + TOGETHER - 1) / TOGETHER;
    if (column) {
        a->block = first * (TOGETHER / BLOCK);
        a->blocks = (c->length[g] + BLOCK - 1) / BLOCK;
    } else {
        a->line = c->start[g];
        a->lines = c->length[g];
    }
    return c->length[g] > 0;
}

/* Elements of a group that is not empty; 0: all are. */
static int find_area(const struct pair *t, const struct copy *copy,
                     uint64_t *state, struct area *a)
{
    const int groups = t->p.c.groups;
    int64_t g = qt_random_below(state, groups);

    for (int tries = 0; tries < groups; tries++)
        if (area_of(t, copy, (g + tries) % groups, a))
            return 1;
    return 0;
}

/* A random element, an end every other time. */
static int64_t draw(uint64_t *state, int64_t count)
{
    return qt_random_below(state, 4) < 2 ? qt_random_below(state, count)
           : qt_random_below(state, 2)   ? count - 1
                                         : 0;
}

static struct block block_at(const struct pair *t, int role,
                             const struct copy *copy, int64_t line,
                             int64_t block)
{
    const struct qt_data *d = &t->p.data;

    return (struct block){role,
                          (unsigned char *)d->operand[role] +
                              line * copy->pitch + block * copy->bytes,
                          (unsigned char *)d->sf[role] + line * copy->wide +
                              block,
                          copy->bytes, -1};
}

static int is_zero(const struct block *b)
{
    int any = 0;

    for (int i = 0; i < b->bytes; i++)
        any |= b->codes[i] & (b->bytes < BLOCK ? 0x77 : 0x7f);
    return !any;
}

/* Take the other blocks of an area into account. */
static void see_area(const struct pair *t, int role, const struct copy *copy,
                     const struct area *a, struct block *b)
{
    for (int64_t i = 0; i < a->lines; i++)
        for (int64_t j = 0; j < a->blocks; j++) {
            struct block o = block_at(t, role, copy, a->line + i, a->block + j);

            if (o.scale != b->scale && !is_zero(&o) && *o.scale > b->largest)
                b->largest = *o.scale;
        }
}

/* 0: nothing counts. */
static int find_block(const struct pair *t, int role, uint64_t *state,
                      struct block *b)
{
    struct copy copy;
    struct area a, all;
    int64_t line, block, step, first, last;
    int rows; /* have a factor each */

    if (t->strategy == QUERN_DEQUANTIZE_FP8 &&
        !qn_requantize_does(&t->fp8.plan->of.product->problem, t->p.c.recipe,
                            role))
        return 0;
    copy_of(t, role, &copy);
    if (!find_area(t, &copy, state, &a))
        return 0;
    line = draw(state, a.lines);
    block = draw(state, a.blocks);
    *b = block_at(t, role, &copy, a.line + line, a.block + block);
    if (t->strategy == QUERN_DEQUANTIZE_F16) { /* all groups have one factor */
        for (int64_t g = 0; g < t->p.c.groups; g++)
            if (area_of(t, &copy, g, &all))
                see_area(t, role, &copy, &all, b);
        return 1;
    }
    rows = qn_requantize_sums(t->p.c.recipe);
    step = copy.q.of == QN_W && !rows ? TOGETHER : 1;
    first = line / step * step;
    last = rows ? 0 : block / (TOGETHER / BLOCK) * (TOGETHER / BLOCK);
    all = (struct area){a.line + first, a.lines - first, a.block + last,
                        a.blocks - last};
    all.lines = all.lines < step ? all.lines : step;
    if (!rows && all.blocks > TOGETHER / BLOCK)
        all.blocks = TOGETHER / BLOCK;
    see_area(t, role, &copy, &all, b);
    return 1;
}

static void upload(const struct pair *t, int role)
{
    const int parts[] = {GPU_A + role, GPU_A_SF + role};

    for (int i = 0; i < 2; i++)
        gpu_buffer_upload(&t->p.parts[parts[i]],
                          gpu_case_source(&t->p, parts[i]));
}

/* --------------------------------------------------------------------- runs */

/* D of a run; the caller frees it. */
static void *run_once(struct pair *t, struct gpu_run *r, const char **bad)
{
    void *d = malloc(r->d.bytes + 1);

    if (!d)
        gpu_lost("host memory ran out");
    if (*bad)
        return d;
    if (t->graph && r == &t->fp8) {
        gpu_run_reset(r, &t->p);
        gpu_must(cu.graph_launch(t->graph, r->stream), "a replay");
    } else {
        *bad = gpu_run_start(r, &t->p);
    }
    if (!*bad) {
        gpu_wait(r->stream, r->label);
        *bad = gpu_run_guarded(r, &t->p);
    }
    gpu_buffer_download(&r->d, d);
    return d;
}

/* Did the last run multiply what was tried, and nothing else? By two flags. */
static const char *check_flags(const struct pair *t, int fits)
{
    const struct qn_plan *plan = t->fp8.plan->of.product;
    struct gpu_buffer flags = t->fp8.workspace;
    struct qn_dequantize_space space;
    unsigned int value[2];

    qn_dequantize_lay_out(&plan->problem, plan->recipe, plan->target, &space);
    flags.data += space.flags;
    flags.bytes = sizeof value;
    gpu_buffer_download(&flags, value);
    if (value[0] == !fits && value[1] == (unsigned)fits)
        return NULL;
    return gpu_text("flags are %u, %u: it should%s fit", value[0], value[1],
                    fits ? "" : " not");
}

/* As narrow sums are to wide ones; or the same bits, where the others are as
   narrow. */
static const char *compare(const struct pair *t, const void *fp8,
                           const void *wide)
{
    const struct qt_case *c = &t->p.c;
    const size_t size = c->d_type == QUERN_F32 ? 4 : 2;
    const int64_t count = (int64_t)(t->fp8.d.bytes / size);
    double wrong = 0, norm = 0;

    if (qn_model_rebases(t->wide.plan->of.product->kernel))
        return memcmp(fp8, wide, t->fp8.d.bytes)
                   ? "the bits are not those of dequantize=mainloop"
                   : NULL;
    for (int64_t i = 0; i < count; i++) {
        const double want = (double)qt_load(wide, c->d_type, i);
        const double got = (double)qt_load(fp8, c->d_type, i);
        const double gap = got - want;

        if (isnan(want)) /* poison outside every group */
            continue;
        if (isinf(want) && got == want) /* more than f16 holds */
            continue;
        wrong += gap * gap;
        norm += want * want;
    }
    return wrong <= 2.5e-5 * norm
               ? NULL
               : gpu_text("another product: off by %.3g of %.3g", sqrt(wrong),
                          sqrt(norm));
}

/* A change, the same with what takes its place, and back. */
static const char *run_change(struct pair *t, const struct block *b,
                              const struct change *change)
{
    unsigned char kept[BLOCK], scale = *b->scale;
    const size_t bytes = (size_t)b->bytes;
    const char *bad = NULL;
    void *fp8, *wide, *again;

    memcpy(kept, b->codes, bytes);
    memset(b->codes, change->codes, bytes);
    *b->scale = (unsigned char)(change->below ? b->largest - change->below
                                              : change->scale);
    upload(t, b->role);
    fp8 = run_once(t, &t->fp8, &bad);
    bad = bad ? bad : check_flags(t, change->fits);
    wide = run_once(t, &t->wide, &bad);
    if (!bad && change->fits)
        bad = compare(t, fp8, wide);
    else if (!bad && memcmp(fp8, wide, t->fp8.d.bytes))
        bad = "the bits are not those of the fallback";
    memcpy(b->codes, kept, bytes);
    *b->scale = scale;
    upload(t, b->role);
    again = run_once(t, &t->fp8, &bad);
    bad = bad ? bad : check_flags(t, 1);
    if (!bad && memcmp(again, t->base, t->fp8.d.bytes))
        bad = "the run after it has other bits than the one before";
    free(fp8);
    free(wide);
    free(again);
    return bad;
}

static void run_changes(struct pair *t, uint64_t *state)
{
    struct block b;

    for (int role = QT_A; role <= QT_B; role++)
        for (int i = 0; i < CHANGES && find_block(t, role, state, &b); i++) {
            const char *bad;

            if (changes[i].strategy != t->strategy ||
                (changes[i].below && b.largest < changes[i].below))
                continue;
            bad = run_change(t, &b, &changes[i]);
            gpu_run_record(&t->fp8,
                           bad ? gpu_text("%c, %s, %s: %s", "AB"[role],
                                          changes[i].what,
                                          t->graph ? "a replay" : "a run", bad)
                               : NULL);
        }
}

/* ------------------------------------------------------------------- cases */

static void make_graph(struct pair *t)
{
    int code;

    gpu_capture_begin(t->fp8.stream);
    code = quern_run(t->fp8.plan, &t->fp8.args, t->fp8.stream);
    t->graph = gpu_capture_end(t->fp8.stream, code);
    gpu_must(code, "a captured run");
}

/* The data as they are fit, and what belongs to no group does not count. */
static void run_pair(struct pair *t, uint64_t *state)
{
    const char *bad = gpu_run_start(&t->fp8, &t->p);

    if (!bad)
        bad = gpu_run_finish(&t->fp8, &t->p);
    bad = bad ? bad : check_flags(t, 1);
    gpu_run_record(&t->fp8, bad);
    if (bad)
        return;
    t->base = run_once(t, &t->fp8, &bad);
    run_changes(t, state);
    make_graph(t);
    run_changes(t, state);
    gpu_must(cu.graph_exec_destroy(t->graph), "freeing a graph");
    free(t->base);
}

/* Is the other operand FP8? The recipe's own kernels take any factors. */
static int is_mixed(const struct gpu_variant *v)
{
    return v->recipe->scaling[QN_X].type == QUERN_F32;
}

static void run_case(const struct gpu_variant *v, int op, int strategy,
                     int index)
{
    static const int sides[][2] = {
        {128, 256}, {136, 200}, {264, 392}, {8, 40}, {384, 1000}};
    const int f16 = strategy == QUERN_DEQUANTIZE_F16;
    const struct gpu_choice fp8 = {f16 ? "as f16" : "encoded again", NULL, op,
                                   strategy};
    const struct gpu_choice wide = {
        "what stands behind", NULL, op,
        is_mixed(v) || f16 ? QUERN_DEQUANTIZE_MAINLOOP : QUERN_DEQUANTIZE_PASS};
    const struct qt_pattern *pattern = &qt_patterns[index % qt_npatterns];
    const int *side = sides[index % 5];
    uint64_t state = gpu_options.seed + (uint64_t)index;
    struct pair t = {.strategy = strategy};
    int code;

    gpu_variant_case(v, &t.p.c);
    t.p.c.op = op;
    t.p.c.what = pattern->name;
    t.p.c.form = index % QT_FORMS;
    t.p.c.sizes_type = index % 2 ? QUERN_I64 : QUERN_I32;
    t.p.c.fill = QT_INTEGER; /* a block of one value is no tiny one */
    t.p.c.seed = state;
    gpu_variant_sides(&t.p.c, pattern->groups > 100 ? 8 : side[0],
                      pattern->groups > 100 ? 72 : side[1], side[1]);
    qt_case_layout(&t.p.c, pattern);
    gpu_case_open(&t.p, GPU_GUARD);
    code = gpu_run_open(&t.fp8, &t.p, &fp8, 0);
    if (code)
        gpu_run_unopened(&t.fp8, code);
    if (!code && (code = gpu_run_open(&t.wide, &t.p, &wide, 0)))
        gpu_run_unopened(&t.wide, code);
    if (!code)
        run_pair(&t, &state);
    gpu_run_close(&t.fp8);
    gpu_run_close(&t.wide);
    gpu_case_close(&t.p);
}

static void run_way(const struct gpu_variant *v, int op, int strategy,
                    int first)
{
    const struct qn_problem p = {.op = op, .d_type = v->d_type};

    if (!(v->ops >> op & 1) ||
        qn_dequantize_wrong(gpu_context, &p, v->recipe, strategy))
        return;
    for (int i = first; i < first + 3 * qt_npatterns;
         i += gpu_options.quick ? 2 : 1)
        run_case(v, op, strategy, i);
}

/* Every pattern of groups for each recipe that may be, op and type of D. */
void gpu_requantize(void)
{
    for (int i = 0; i < gpu_nvariants; i++) {
        const struct gpu_variant *v = &gpu_variants[i];

        if (!v->recipe || v->epilogue != (is_mixed(v) ? QN_SCALE : QN_STORE))
            continue;
        for (int op = 0; op < 3; op++)
            for (int strategy = QUERN_DEQUANTIZE_FP8;
                 strategy <= QUERN_DEQUANTIZE_F16; strategy++)
                run_way(v, op, strategy, i);
    }
}
