/* SPDX-License-Identifier: Apache-2.0 */
/*
** The device code's protocol on the host: each Hopper kernel is generated with
** shim.h in place of the instructions, compiled as plain C and launched over
** many group sizes. Each tile is stored once, with coordinates in its group.
*/
#include "share.h"
#include "test_protocol.h"
#include "test_protocol_forms.h"
#include "base/types.h"

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* --------------------------------------------------------------- tests */

static void expect_right(const char *wrong)
{
    if (*wrong)
        fail_msg("%s", wrong);
}

/* What is drawn anew each time. */
static const char *run_drawn(const struct twin *twin)
{
    const int ragged = twin->kernel->ragged != QUERN_AXIS_NONE;
    const char *wrong = twin_run_crowd(twin, 6);

    if (!*wrong && ragged)
        wrong = twin_run_many_groups(twin);
    if (!*wrong && ragged)
        wrong = twin_run_lies(twin);
    return wrong;
}

/* What shows every defect below, in the order of what it costs. */
static const char *run_telling(const struct twin *twin)
{
    const char *wrong = run_drawn(twin);

    if (!*wrong)
        wrong = twin_run_small_sizes(twin, 0, 37);
    if (!*wrong)
        wrong = twin_run_bands(twin);
    return wrong;
}

static void run_everything(const struct twin *twin)
{
    expect_right(run_telling(twin));
    expect_right(twin_run_small_sizes(twin, 0, 13));
    if (twin->kernel->ragged == QUERN_AXIS_NONE)
        return;
    expect_right(twin_run_one_group_holds_all(twin));
    expect_right(twin_run_gaps(twin, 3));
}

/* Of kernels that share the walk and the stores with those above. */
static void run_enough(const struct twin *twin)
{
    expect_right(twin_run_crowd(twin, 1));
    expect_right(twin_run_small_sizes(twin, twin->number % 97, 97));
    if (twin->number % 3 == 0)
        expect_right(twin_run_lies(twin));
}

/*
** Twins are compiled without sanitizers, which watch the generator and the
** runtime's maps instead: with them each form is launched a few times, and the
** rest is left to the other configuration.
*/
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1, FORMS_APART = 4 };
#else
enum { SANITIZED = 0, FORMS_APART = 1 };
#endif

static void run_few(const struct twin *twin)
{
    expect_right(twin_run_crowd(twin, 1));
    expect_right(twin_run_small_sizes(twin, twin->number % 97, 97));
    if (twin->kernel->ragged != QUERN_AXIS_NONE)
        expect_right(twin_run_lies(twin));
}

/* One is compiled while another runs. */
static void run_forms(const struct form *const *forms, int count,
                      void (*run)(const struct twin *))
{
    struct qg *gen = twin_open_generator(NULL, NULL);
    struct twin next = {0}, twin;

    for (int i = 0; i <= count; i++) {
        if (i < count && !share_has(i))
            continue;
        twin = next;
        if (i < count)
            twin_begin(gen, find_kernel(gen, *forms[i]),
                       SANITIZED ? "-O0" : "-O2", i, &next);
        if (!twin.kernel)
            continue;
        twin_finish(&twin);
        (SANITIZED ? run_few : run)(&twin);
    }
    qg_close(gen);
}

static void test_ragged_m(void **state)
{
    const struct form *forms[] = {&M_STORE,  &M_TURNS,        &M_PAIRS,
                                  &M_STACKS, &M_STACKS_TURNS, &M_ALPHA,
                                  &M_SCALE};

    (void)state;
    run_forms(forms, COUNT(forms), run_everything);
}

static void test_activations(void **state)
{
    const struct form *forms[] = {&M_HALVES,     &M_HALVES_TURNS, &M_RUNS,
                                  &M_RUNS_SHORT, &M_SINGLE,       &M_BIAS};

    (void)state;
    run_forms(forms, COUNT(forms), run_enough);
}

static void test_ragged_k(void **state)
{
    const struct form *forms[] = {&K_STORE, &K_TURNS, &K_PAIRS,     &K_ADD,
                                  &K_READ,  &K_FETCH, &K_FETCH_SIX, &K_SCALE};

    (void)state;
    run_forms(forms, COUNT(forms), run_everything);
}

static void test_scaled_m(void **state)
{
    const struct form *forms[] = {
        &TENSOR_M,     &TENSOR_M_TURNS, &ROW_M,         &ROW_M_SCALE, &BLOCK_M,
        &BLOCK_M_TALL, &BLOCK_M_HALVES, &BLOCK_M_WHOLE, &ROW_M_WHOLE};

    (void)state;
    run_forms(forms, COUNT(forms), run_everything);
}

static void test_quantizers(void **state)
{
    const struct form *forms[] = {&BLOCK_M_INLINE, &BLOCK_M_INLINE_HALVES,
                                  &BLOCK_M_INLINE_PAIRS};

    (void)state;
    run_forms(forms, COUNT(forms), run_everything);
}

static void test_scaled_k(void **state)
{
    const struct form *forms[] = {&TENSOR_K, &TENSOR_K_FETCH, &ROW_K,
                                  &BLOCK_K,  &BLOCK_K_ADD,    &BLOCK_K_SCALE};

    (void)state;
    run_forms(forms, COUNT(forms), run_everything);
}

static void test_swapped(void **state)
{
    const struct form *forms[] = {
        &CODES_M_SWAPPED,        &CODES_M_SWAPPED_GLOBAL,
        &CODES_M_SWAPPED_TILES,  &CODES_M_SWAPPED_MIXED,
        &CODES_M_SWAPPED_EITHER, &CODES_M_SWAPPED_EITHER_MORE,
        &CODES_M_SWAPPED_MORE};

    (void)state;
    run_forms(forms, COUNT(forms), run_enough);
}

static void test_dequantized(void **state)
{
    const struct form *forms[] = {
        &CODES_M,           &CODES_M_GLOBAL,    &CODES_M_SHORT,
        &CODES_K,           &CODES_K_ADD,       &CODES_K_SCALE,
        &CODES_M_REGISTERS, &CODES_K_REGISTERS, &CODES_M_TILES,
        &CODES_K_TILES,     &CODES_M_MIXED,     &CODES_M_REGISTERS_F16};

    (void)state;
    run_forms(forms, COUNT(forms), run_enough);
}

/* What shows every defect of merging is enough of it. */
static void run_merged(const struct twin *twin)
{
    expect_right(run_telling(twin));
}

static void test_merged(void **state)
{
    const struct form *forms[] = {&MERGED, &MERGED_FETCH, &MERGED_BLOCK};

    (void)state;
    run_forms(forms, COUNT(forms), run_merged);
}

static void test_uniform(void **state)
{
    const struct form *forms[] = {&UNIFORM, &UNIFORM_TURNS};

    (void)state;
    run_forms(forms, COUNT(forms), run_everything);
}

/* Scales that come into the product alike. */
static int same_scaling(const struct qn_recipe *a, const struct qn_recipe *b)
{
    const struct qn_scaling *x = &a->scaling[QUERN_X],
                            *y = &b->scaling[QUERN_X];
    const int whole = x->span == QN_SPAN_TENSOR || x->span == QN_SPAN_GROUP;

    if (a->scaled != b->scaled || !a->scaled)
        return a->scaled == b->scaled;
    if (a->promote != b->promote)
        return 0;
    return x->span == y->span ||
           (whole && (y->span == QN_SPAN_TENSOR || y->span == QN_SPAN_GROUP));
}

/*
** Alike but for names and the tile: op and recipe show in no line of code but
** by the scales, and of types only the bytes matter to the protocol.
*/
static int same_form(const struct quern_registry *r, const struct qn_kernel *a,
                     const struct qn_kernel *b)
{
    if (strcmp(a->dequantize, "none")) /* the rest is as of others */
        return a->ragged == b->ragged && !strcmp(a->addend, b->addend) &&
               !strcmp(a->dequantize, b->dequantize);
    return strcmp(a->template, b->template) == 0 && a->ragged == b->ragged &&
           strcmp(a->quantize, b->quantize) == 0 &&
           a->epilogue == b->epilogue && a->a.major == b->a.major &&
           a->b.major == b->b.major &&
           qn_type_bits(a->d.type) == qn_type_bits(b->d.type) &&
           !strcmp(a->schedule, b->schedule) && !strcmp(a->addend, b->addend) &&
           a->microbatches == b->microbatches &&
           strcmp(a->dequantize, b->dequantize) == 0 &&
           memcmp(a->cluster, b->cluster, sizeof a->cluster) == 0 &&
           same_scaling(recipe_of(r, a), recipe_of(r, b));
}

/*
** Of each form one kernel, whose tile is another from form to form; NULL where
** `i` is not the first of its form.
*/
static const struct qn_kernel *take_of_form(const struct quern_registry *r,
                                            int i, int turn)
{
    const struct qn_kernel *tiles[8], *of = &r->kernels[i];
    int count = 0;

    for (int j = 0; j < i; j++)
        if (same_form(r, of, &r->kernels[j]))
            return NULL;
    for (int j = i; j < r->nkernels && count < COUNT(tiles); j++)
        if (same_form(r, of, &r->kernels[j]) && r->kernels[j].op == of->op &&
            !strcmp(of->recipe, r->kernels[j].recipe) &&
            of->d.type == r->kernels[j].d.type)
            tiles[count++] = &r->kernels[j];
    return tiles[turn % count];
}

/*
** A few launches of each form that the specs can express, or of each fourth one
** with sanitizers. One is compiled while another runs. Copies are bytes of
** values, of which the twin knows nothing: what is before them is as where an
** activation is stored.
*/
static void test_each_form(void **state)
{
    struct qg *gen = twin_open_generator(NULL, NULL);
    const struct quern_registry *r = qg_registry(gen);
    struct twin next = {0}, twin;
    int forms = 0, form = 0, count = 0;

    (void)state;
    for (int i = 0; i <= r->nkernels; i++) {
        const struct qn_kernel *kernel = NULL;

        if (i < r->nkernels &&
            (strncmp(r->kernels[i].template, "sm90/gemm", 9) ||
             r->kernels[i].epilogue >= QN_COPIES ||
             !(kernel = take_of_form(r, i, forms)) || forms++ % FORMS_APART ||
             !share_has(form++)))
            continue;
        twin = next;
        if (kernel)
            twin_begin(gen, kernel, "-O0", form, &next);
        if (!twin.kernel)
            continue;
        twin_finish(&twin);
        expect_right(twin_run_small_sizes(&twin, twin.number % 179, 179));
        count++;
    }
    qg_close(gen);
    assert_true(count > 0);
}

/* ------------------------------------------------------------- defects */

#include "test_protocol_defects.h"

static const struct planted defects[] = {
    /* the ring */
    {&M_PAIRS, {MULTIPLY, "mma_wait(1);", "mma_wait(2);"}},
    {&M_PAIRS, {MULTIPLY, "    mma_wait(0);", ""}},
    {&M_PAIRS,
     {COPY, "barrier_wait(s->$(ring[1])empty + p->stage", "(void)(p->stage"}},
    {&M_PAIRS, {COPY, "(1 << CTAS) - 1", "1"}},
    {&M_PAIRS, {DENSE, "    cluster_sync(); /*", "    /*"}},
    /* the tile queue */
    {&M_TURNS, {QUEUE_CU, "*sequence += TURNS", "*sequence += 1"}},
    {&M_TURNS, {LOOP, "sequence = warpgroup - 1", "sequence = 0"}},
    {&K_TURNS, {QUEUE_CU, "barrier_wait(s->read", "(void)(s->read"}},
    {&M_PAIRS, {QUEUE_CU, "barrier_wait(s->posted", "(void)(s->posted"}},
    {&M_PAIRS, {PRODUCE, "i < TURNS", "i < 0"}},
    {&K_TURNS, {QUEUE_CU, "(u64)t->matrix >> 32", "0"}},
    /* the walk */
    {&M_PAIRS, {SCHED, "w->next += w->stride;", "w->next++;"}},
    {&M_PAIRS, {SCHED, "w->tiles_before += block_tiles;", ""}},
    {&M_PAIRS, {SCHED, "pointers[t->group]", "pointers[w->base]"}},
    {&M_TURNS, {SIZES, "w->length > w->total - w->start", "0"}},
    {&K_STORE, {SIZES, "w->length > w->total - w->start", "0"}},
    {&K_ADD, {SCHED, "\"w->length > 0\"", "\"w->base + lane < w->groups\""}},
    {&K_STORE, {RING, "? (int)t->length : 1", "? (int)t->length : 0"}},
    {&K_STORE, {SCHED, "\"w->group < w->groups\"", "\"w->length > 0\""}},
    {&K_STORE, {SCHED, "w->base + from", "w->base + lane"}},
    {&K_STORE, {SCHED, "i < lane", "i <= lane"}},
    {&M_PAIRS, {BANDS, "number - b.first * across", "number"}},
    {&M_TURNS, {BANDS, "band * size", "band"}},
    {&UNIFORM, {BANDS, "strips - b.first < size", "0"}},
    /* pairs of tiles, one above the other or abreast */
    {&M_STACKS, {SCHED, "rows % 2 * ((w->tile_columns + 1) / 2)", "0"}},
    {&M_STACKS, {SCHED, "(w->tile_columns + 1) / 2", "w->tile_columns / 2"}},
    {&M_STACKS, {SCHED, "number < last ? number : last", "number"}},
    {&M_STACKS, {SCHED, "band.first + band.strips == strips", "1"}},
    {&M_STACKS, {SCHED, "column + 1 < columns ? 2 * high : high", "2 * high"}},
    {&M_STACKS, {SCHED, "rows > 1 ? band.strips : 0", "band.strips"}},
    {&M_STACKS, {SCHED, "column + second", "column"}},
    {&M_STACKS_TURNS, {SCHED, "(rows - 1) * TILE_M", "rows * TILE_M"}},
    {&M_STACKS_TURNS, {COPY, "        if (t->beside) {", "        if (0) {"}},
    {&M_STACKS_TURNS, {COPY, "        if (t->beside) {", "        if (1) {"}},
    {&M_STACKS_TURNS, {RING, "lane < CTAS", "lane < 1"}},
    /* coordinates */
    {&M_PAIRS, {COPY, "(int)(distance >> 35)", "0"}},
    {&M_TURNS, {COPY, "i++, mn += $(next_row)", "i++"}},
    {&M_TURNS, {STORE, "row + SLAB_ROWS <= rows", "1"}},
    {&K_STORE, {COPY, "x + TILE_K <= (int)t->length", "x < (int)t->length"}},
    {&K_STORE, {COPY, "(int)t->length + x", "(int)t->length"}},
    {&K_STORE, {COPY, "(int)(t->start + t->length)", "(int)t->start + x"}},
    {&K_STORE, {STORE_C, "mn = 16 * 128", "mn = 8 * 128"}},
    {&K_STORE, {STORE, "    if (t->matrix)", "    if (0)"}},
    {&UNIFORM,
     {COPY, "$(name), full, $(at), t->group", "$(name), full, $(at), 0"}},
    {&UNIFORM, {STORE, "row, t->group);\n//$ end\n}", "row, 0);\n//$ end\n}"}},
    /* the slabs, and what is added */
    {&M_PAIRS, {STORE, "store_wait(SLABS - 1)", "store_wait(SLABS)"}},
    {&M_PAIRS, {STORE, "slabs->turn * SLAB_BYTES", "0"}},
    {&K_ADD, {STORE, "\"add_box\"", "\"store_box\""}},
    {&K_READ, {SCALE, "sum[i] += element_of(c, i)", "(void)sum"}},
    {&K_READ, {STORE, "c[i % (AHEAD + 1)]", "c[(i + 1) % (AHEAD + 1)]"}},
    /* C, fetched */
    {&K_FETCH, {FETCH, "    store_wait(0);", ""}},
    {&K_FETCH, {FETCH, "                store_wait(1);", ""}},
    {&K_FETCH, {FETCH, "store_wait(1)", "store_wait(2)"}},
    {&K_FETCH, {FETCH, "turn / SLABS);", "1 ^ turn / SLABS);"}},
    {&K_FETCH, {FETCH, "% (2 * SLABS)", "% SLABS"}},
    {&K_FETCH, {FETCH, "        barrier_wait(", "        (void)("}},
    {&K_FETCH, {FETCH, "        copy_engine_fence();", ""}},
    {&K_FETCH, {FETCH, "        __syncwarp();", ""}},
    {&K_FETCH, {FETCH, "turn - 1 + SLABS, maps", "turn + SLABS, maps"}},
    {&K_FETCH, {FETCH, "maps, t, next, row", "maps, t, i, row"}},
    {&K_FETCH, {FETCH, "    if (y >= rows)\n        return;", ""}},
    {&K_FETCH, {FETCH, "expect(arrived, SLAB_BYTES)", "expect(arrived, 0)"}},
    {&K_FETCH, {FETCH, "    if (t->matrix)", "    if (0)"}},
    {&K_FETCH, {BARRIERS, "i < 8 * SLABS", "i < SLABS"}},
    {&K_FETCH_SIX, {FETCH, "slabs->turn + i, maps", "i, maps"}},
    {&K_FETCH_SIX, {FETCH, "i < SLABS &&", "i < SLABS - 1 &&"}},
    {&K_FETCH_SIX, {FETCH, "i > 0 && next", "next"}},
    {&K_SCALE, {LOOP, "t.row + part * ROWS", "t.row"}},
    {&K_SCALE, {SCALE, "t->group * a->group_stride", "0"}},
    {&K_SCALE, {SCALE, "alpha[t->group * a->step]", "alpha[0]"}},
    {&M_ALPHA, {FACTORS, "f->alpha + t->group * f->step", "f->alpha"}},
    {&M_ALPHA, {FACTORS, "sum[i] *= s->alpha", "sum[i] *= 1"}},
    {&M_SCALE, {SCALE, "x < s->columns", "x <= s->columns"}},
    {&M_SCALE, {SCALE, "y < rows", "y <= rows"}},
    {&M_SCALE, {SCALE, "t->start * a->stride", "0"}},
    {&M_SCALE, {SCALE, "if (s.beta == 0)", "if (0)"}},
    {&M_SCALE, {SCALE, "a->beta[t->group * a->step] : 1", "1 : 0"}},
    /* 8 bits, and copies that are aligned */
    {&TENSOR_M, {TILE_C, "32 // bytes", "16"}},
    {&ROW_K,
     {SCHED, "if (w->length == 0)\n        w->start", "if (0)\n w->start"}},
    {&BLOCK_K, {SIZES, "*before = __shfl_sync(~0u, end, 31);", ""}},
    {&TENSOR_K,
     {SCHED, "(w->length + ALIGNED - 1) / ALIGNED * ALIGNED", "w->length"}},
    {&BLOCK_M_HALVES, {LOOP, "\"0, part * COLUMNS\"", "\"0, 0\""}},
    {&BLOCK_M_HALVES, {LOOP, "t.column += part * COLUMNS;", ""}},
    /* parts */
    {&ROW_M, {PROMOTE, "            mma_wait(0);\n", ""}},
    {&ROW_M, {PROMOTE, "step > 0);", "1);"}},
    {&ROW_M, {PROMOTE, "step > 0);", "steps > 0);"}},
    {&ROW_M, {PROMOTE, "        sum[i] = 0;", "        (void)sum;"}},
    {&ROW_M, {PROMOTE, "to[3] += part", "to[3] = part"}},
    {&ROW_M, {PROMOTE, "block * 64 * TILE_K +", ""}},
    {&ROW_M,
     {PROMOTE, "            if (i == PIECES - 1)\n                release",
      "            if (i == 0)\n                release"}},
    {&BLOCK_K,
     {PROMOTE, "factors ~= \"lines\" then\n            if (i",
      "true then\n            if (i"}},
    {&BLOCK_K, {PROMOTE, "        __syncwarp();", ""}},
    {&BLOCK_M,
     {PROMOTE, "barrier_wait(s->full + p->stage * 8, p->parity);\n//$", "//$"}},
    {&BLOCK_M,
     {PROMOTE,
      "                    barrier_wait(s->full + p->stage * 8, p->parity);",
      ""}},
    {&BLOCK_M, {PROMOTE, "if (steps > 1) {", "{"}},
    /* their factors */
    {&BLOCK_M, {PROMOTE, "b_sf += steps > 1;", ""}},
    {&BLOCK_M, {PROMOTE, "t->group * f->b_group_stride", "0"}},
    {&BLOCK_M, {PROMOTE, "(t->start & 3)", "0"}},
    {&BLOCK_M,
     {PROMOTE, "down = of_row[2 * block + 1];", "down = of_row[2 * block];"}},
    {&BLOCK_M_HALVES, {WHOLE, "t->column < f->columns", "1"}},
    {&BLOCK_M, {FACTORS, "i % 2 * 8) * 4", "i % 2 * 4) * 4"}},
    {&BLOCK_K, {PROMOTE, "s->sf + now * SF_BYTES", "s->sf"}},
    {&BLOCK_K_ADD,
     {PROMOTE, "TILE_M + first_column + 2 * j", "TILE_M + 2 * j"}},
    {&BLOCK_M, {COPY, "& ~3", ""}},
    {&BLOCK_M_TALL, {COPY, "first + i, block", "first, block"}},
    {&BLOCK_M_WHOLE, {WHOLE, "2 ? second : first", "2 ? first : second"}},
    {&BLOCK_M_WHOLE, {WHOLE, "t->group * f->b_group_stride", "0"}},
    {&BLOCK_M_WHOLE, {WHOLE, "of[j / 2 % 2]", "of[j % 2]"}},
    {&ROW_M_WHOLE, {WHOLE, "a + STAGE_BYTES / 16 : a_first", "a : a_first"}},
    {&BLOCK_M_TALL, {COPY, "(to + i * 4, maps", "(to, maps"}},
    {&BLOCK_M, {COPY, "STAGE_BYTES + SF_LOADED", "STAGE_BYTES"}},
    {&BLOCK_M, {COPY, "full, t, x / TILE_K", "full, t, 0"}},
    {&BLOCK_M, {COPY, "s->sf + p->stage * SF_BYTES", "s->sf"}},
    {&BLOCK_K, {COPY, "    block += (int)t->start / TILE_K;", ""}},
    {&BLOCK_K,
     {COPY, "maps->b_sf, full, t->column", "maps->b_sf, full, t->row"}},
    {&BLOCK_M, {LAYOUT, "s.full = s.sf + STAGES * SF_BYTES", "s.full = s.sf"}},
    {&TENSOR_K, {FACTORS, "    if (t->length == 0)\n        return s;", ""}},
    {&TENSOR_M_TURNS, {FACTORS, "sum[i] * s->a * s->b", "sum[i] * s->a"}},
    {&TENSOR_M_TURNS, {FACTORS, "f->b + t->group", "f->b + 0 * t->group"}},
    {&ROW_K, {FACTORS, "t->length > 0 ? f->columns : 0", "f->columns"}},
    {&ROW_K, {FACTORS, "y < rows && columns > 0", "y < rows"}},
    {&ROW_M, {FACTORS, "\"t->start\"", "\"0\""}},
    {&ROW_M, {FACTORS, "y < rows ? a[y] : 0;\n//$ end", "a[y];\n//$ end"}},
    {&ROW_M, {FACTORS, "x < columns ? b[x + 1] : 0", "b[x + 1]"}},
    /* merged products */
    {&MERGED, {SCHED, "    w->ends = w->ends_next;", ""}},
    {&MERGED,
     {SCHED, "if (lane == i) {\n            w->ends_next",
      "if (lane == 0) {\n            w->ends_next"}},
    {&MERGED,
     {SCHED, "w->steps += (length + TILE_K - 1) / TILE_K * TILE_K",
      "w->steps += length"}},
    {&MERGED, {SCHED, "t->group != w->at", "w->at < 0"}},
    {&MERGED, {SCHED, "w->part_start, part)", "w->part_start, 0)"}},
    {&MERGED, {COPY, "(end - RAGGED_ROW) * pitch", "end * pitch"}},
    {&MERGED, {COPY, "(u64)t->start + t->length);", "(u64)t->start);"}},
    {&MERGED, {PRODUCE, "maps.part = i;", "maps.part = 0;"}},
    {&MERGED, {RING, "t->length == 0 ? 1", "0 ? 1"}},
    {&MERGED, {"templates/sm90/merged.cu", "error[4] = (unsigned int)i;", ";"}},
    {&MERGED_FETCH,
     {SCHED, "    unsigned int steps = 0;", "unsigned steps = 64;"}},
    {&MERGED_BLOCK, {SCHED, "    w->aligned_ends = w->aligned_ends_next;", ""}},
    {&MERGED_BLOCK, {COPY, "+ RAGGED_ROW - blocks", "+ RAGGED_ROW"}},
    {&MERGED_BLOCK, {COPY, "part->b_sf_stride * 4", "part->a_sf_stride * 4"}},
    {&MERGED_BLOCK,
     {COPY, "load_box_4d(to, maps->a_sf_tail, full, t->row, block, a.near",
      "load_box_4d(to, maps->a_sf_tail, full, t->row, block, b.near"}},
    /* slabs that a warpgroup shares */
    {&ROW_M,
     {STORE, "        store_wait(0);\n    named_wait",
      "        (void)0;\n    named_wait"}},
    {&ROW_M, {STORE, "    named_wait(barrier, 128);\n#pragma", "#pragma"}},
    {&ROW_M, {STORE, "    named_wait(barrier, 128);\n    for", "    for"}},
    {&ROW_M, {STORE, "    copy_engine_fence();\n    named", "    named"}},
    {&ROW_M, {STORE, "barrier = threadIdx.x / 128 + 2", "barrier = 3"}},
    {&ROW_M, {STORE, "SLAB_BYTES + warp * 16 * 128", "SLAB_BYTES"}},
    {&ROW_M, {STORE, "i < SLABS; i += 4", "i < 1; i += 4"}},
    {&ROW_M, {STORE, "i = warp; i < SLABS; i += 4", "i = 0; i < SLABS; i++"}},
    {&ROW_M, {STORE, "    row -= warp * 16;\n", ""}},
    {&ROW_M, {STORE, " && row + i / ROW_SLABS * 64 < rows", ""}},
    {&ROW_M, {SUMS, "or \"(warpgroup - 1)\"", "or \"0\""}},
};

/* A wait that is missing shows where the order of threads is unlucky: each
   round draws sizes, and with them the order, anew. */
static int is_seen(const struct twin *twin)
{
    enum { ROUNDS = 32 };

    if (*run_telling(twin))
        return 1;
    for (int i = 1; i < ROUNDS; i++)
        if (*run_drawn(twin))
            return 1;
    return 0;
}

/* The forms are those that passed the same launches above. */
static void see_defects(const struct planted *planted, int count)
{
    struct twin next = {0}, twin;
    struct qg *gen = NULL, *gen_next = NULL;
    int passed = 0;

    if (SANITIZED) {
        print_message("skip: needs no sanitizer: defects are looked for once, "
                      "in the other configuration\n");
        skip();
    }
    for (int i = 0; i <= count; i++) {
        if (i < count && !share_has(i))
            continue;
        twin = next;
        gen = gen_next;
        if (i < count) {
            const struct form *form = planted[i].form;
            gen_next = twin_open_generator(
                &planted[i].defect, form->recipe ? form->recipe : "bf16");
            twin_begin(gen_next, find_kernel(gen_next, *form), "-O0", i, &next);
        }
        if (!twin.kernel)
            continue;
        twin_finish(&twin);
        if (!is_seen(&twin)) {
            const struct defect *d = &planted[twin.number].defect;
            print_error("%s with \"%s\" for \"%s\" passes\n", d->file, d->to,
                        d->from);
            passed++;
        }
        qg_close(gen);
    }
    assert_int_equal(passed, 0);
}

static void test_defects_are_seen(void **state)
{
    (void)state;
    see_defects(defects, COUNT(defects));
}

static void test_activation_defects_are_seen(void **state)
{
    (void)state;
    see_defects(activation_defects, COUNT(activation_defects));
}

static void test_quantizer_defects_are_seen(void **state)
{
    (void)state;
    see_defects(quantizer_defects, COUNT(quantizer_defects));
}

static void test_dequantizer_defects_are_seen(void **state)
{
    (void)state;
    see_defects(dequantizer_defects, COUNT(dequantizer_defects));
}

/* With a name, only the tests of that name; it may hold a * for anything. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ragged_m),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_ragged_k),
        cmocka_unit_test(test_scaled_m),
        cmocka_unit_test(test_quantizers),
        cmocka_unit_test(test_epilogues),
        cmocka_unit_test(test_scaled_k),
        cmocka_unit_test(test_dequantized),
        cmocka_unit_test(test_swapped),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_each_form),
        cmocka_unit_test(test_defects_are_seen),
        cmocka_unit_test(test_activation_defects_are_seen),
        cmocka_unit_test(test_quantizer_defects_are_seen),
        cmocka_unit_test(test_dequantizer_defects_are_seen),
    };

    if (share_open() || atexit(share_print))
        return 2;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, twin_make_folder, twin_remove_folder);
}
