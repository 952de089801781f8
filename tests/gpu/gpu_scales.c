/*
** gpu_scales.c: the ends of the scales of blocks. One block of one row of a
** quantized A gets a scale of NaN, the largest or the least one: the row of D
** becomes NaN, is no longer finite, or is what it is without the block. No
** other bit changes.
*/
#include "gpu.h"
#include "types.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = 3, BLOCK = 1 };

/* What becomes of the row. */
enum end { IS_NAN, IS_LARGE, IS_WITHOUT };

static const struct {
    int type; /* enum quern_type, of the scale */
    unsigned char code;
    enum end end;
} ends[] = {
    {QUERN_E8M0, 0xff, IS_NAN},     {QUERN_E8M0, 0xfe, IS_LARGE},
    {QUERN_E8M0, 0x00, IS_WITHOUT}, {QUERN_E4M3, 0x7f, IS_NAN},
    {QUERN_E4M3, 0x00, IS_WITHOUT},
};

/* Of A, which is x or dy; NULL where its scales are none of blocks, row by row,
   that values are multiplied with. */
static const struct qn_scaling *scaling_of(const struct gpu_variant *v)
{
    const int of = v->ops >> QUERN_FPROP & 1 ? QUERN_X : QUERN_DY;
    const struct qn_scaling *f = v->recipe ? &v->recipe->scaling[of] : NULL;

    if (!f || v->ragged != QUERN_AXIS_M || v->epilogue != QN_STORE ||
        f->span != QN_SPAN_BLOCK || f->order != QN_ORDER_ROWS || f->rows != 1 ||
        (f->type != QUERN_E8M0 && f->type != QUERN_E4M3))
        return NULL;
    return f;
}

/* D of one run; the caller frees it. */
static void *run_once(struct gpu_run *r, const struct gpu_case *p,
                      const char **bad)
{
    void *copy = malloc(r->d.bytes + 1);

    if (!copy)
        gpu_lost("host memory ran out");
    if (*bad)
        return copy;
    *bad = gpu_run_start(r, p);
    if (*bad)
        return copy;
    gpu_wait(r->stream, r->label);
    *bad = gpu_run_guarded(r, p);
    gpu_buffer_download(&r->d, copy);
    return copy;
}

/* The same run with other bytes at a place of A or its scales. */
static void *run_changed(struct gpu_run *r, struct gpu_case *p, int part,
                         unsigned char *at, int code, size_t bytes,
                         const char **bad)
{
    unsigned char kept[64];
    void *whole = part == GPU_A ? p->data.operand[QT_A] : p->data.sf[QT_A];
    void *d;

    memcpy(kept, at, bytes);
    memset(at, code, bytes);
    gpu_buffer_upload(&p->parts[part], whole);
    d = run_once(r, p, bad);
    memcpy(at, kept, bytes);
    gpu_buffer_upload(&p->parts[part], whole);
    return d;
}

/* Element by element; NULL, or where it went wrong. `without` the block. */
static const char *compare(const struct qt_case *c, const void *before,
                           const void *after, const void *without, int64_t row,
                           enum end end)
{
    const size_t bytes = c->d_type == QUERN_F32 ? 4 : 2;

    for (int64_t i = 0; i < c->m * c->n; i++) {
        const size_t at = (size_t)i * bytes;
        const int in_row = i / c->n == row;
        const void *right = in_row ? without : before;

        if (in_row && end == IS_NAN && !isnan(qt_load(after, c->d_type, i)))
            return gpu_text("column %lld of the row is no NaN",
                            (long long)(i % c->n));
        if (in_row && end == IS_LARGE && isfinite(qt_load(after, c->d_type, i)))
            return gpu_text("column %lld of the row is finite",
                            (long long)(i % c->n));
        if ((!in_row || end == IS_WITHOUT) &&
            memcmp((const char *)right + at, (const char *)after + at, bytes))
            return gpu_text("row %lld, column %lld is another",
                            (long long)(i / c->n), (long long)(i % c->n));
    }
    return NULL;
}

static void run_choice(struct gpu_case *p, const struct gpu_choice *choice,
                       const struct qn_scaling *f, int bits)
{
    const int64_t row = p->c.start[0] + ROW, k = p->c.k;
    const int64_t pitch = (k * bits / 8 + 15) / 16 * 16;
    const size_t block = (size_t)(f->k * bits / 8);
    unsigned char *codes = (unsigned char *)p->data.operand[QT_A] +
                           row * pitch + BLOCK * (int64_t)block;
    unsigned char *scale = (unsigned char *)p->data.sf[QT_A] +
                           row * ((k + f->k - 1) / f->k) + BLOCK;
    const char *bad = NULL;
    void *before, *without;
    struct gpu_run r;
    int code = gpu_run_open(&r, p, choice, 0);

    if (code) {
        gpu_run_unopened(&r, code);
        gpu_run_close(&r);
        return;
    }
    before = run_once(&r, p, &bad);
    without = run_changed(&r, p, GPU_A, codes, 0, block, &bad);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i].type == f->type) {
            void *after =
                run_changed(&r, p, GPU_A_SF, scale, ends[i].code, 1, &bad);

            if (!bad)
                bad = compare(&p->c, before, after, without, row, ends[i].end);
            free(after);
        }
    gpu_run_record(&r, bad);
    free(before);
    free(without);
    gpu_run_close(&r);
}

void gpu_scales(void)
{
    for (int i = 0; i < gpu_nvariants; i++) {
        const struct gpu_variant *v = &gpu_variants[i];
        const struct qn_scaling *f = scaling_of(v);
        struct gpu_choice choices[GPU_MAX_CHOICES];
        struct gpu_case p = {0};
        int count;

        if (!f)
            continue;
        count = gpu_variant_choices(v, 1, choices);
        gpu_variant_case(v, &p.c);
        p.c.what = "the ends of scales";
        p.c.sizes_type = QUERN_I32;
        p.c.fill = QT_NORMAL;
        p.c.seed = gpu_options.seed + (uint64_t)i;
        gpu_variant_sides(&p.c, 136, 224, 0);
        qt_case_layout(&p.c, &qt_patterns[4]);
        gpu_case_open(&p, GPU_GUARD);
        for (int j = 0; j < count; j++)
            run_choice(&p, &choices[j], f, qn_type_bits(v->type));
        gpu_case_close(&p);
    }
}
