/*
** gpu_nans.c: a NaN in one row of a quantized A makes that row of D NaN, and
** changes no other bit.
*/
#include "gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = 3, COLUMN = 77 };

/* Only these have a NaN, 0x7f. */
static int has_nan(const struct gpu_variant *v)
{
    return v->recipe && v->ragged == QUERN_AXIS_M && v->epilogue == QN_STORE &&
           (v->type == QUERN_E4M3 || v->type == QUERN_E5M2);
}

static void *run_once(struct gpu_run *r, const struct gpu_case *p,
                      const char **bad)
{
    void *copy = malloc(r->d.bytes + 1);

    if (!copy)
        gpu_lost("host memory ran out");
    *bad = gpu_run_start(r, p);
    if (*bad)
        return copy;
    gpu_wait(r->stream, r->label);
    *bad = gpu_run_guarded(r, p);
    gpu_buffer_download(&r->d, copy);
    return copy;
}

/* Element by element; NULL, or where it went wrong. */
static const char *compare(const struct qt_case *c, const void *before,
                           const void *after, int64_t row)
{
    const size_t bytes = c->d_type == QUERN_F32 ? 4 : 2;

    for (int64_t i = 0; i < c->m * c->n; i++) {
        const size_t at = (size_t)i * bytes;

        if (i / c->n == row && !isnan(qt_load(after, c->d_type, i)))
            return gpu_text("column %lld of the row is no NaN",
                            (long long)(i % c->n));
        if (i / c->n != row &&
            memcmp((const char *)before + at, (const char *)after + at, bytes))
            return gpu_text("row %lld changed", (long long)(i / c->n));
    }
    return NULL;
}

static void run_choice(struct gpu_case *p, const struct gpu_choice *choice)
{
    const int64_t row = p->c.start[0] + ROW;
    const int64_t at = row * ((p->c.k + 15) / 16 * 16) + COLUMN;
    unsigned char *codes = p->data.operand[QT_A], kept = codes[at];
    const char *bad;
    void *before, *after;
    struct gpu_run r;
    int code = gpu_run_open(&r, p, choice, 0);

    if (code) {
        gpu_run_unopened(&r, code);
    } else {
        before = run_once(&r, p, &bad);
        codes[at] = 0x7f;
        gpu_buffer_upload(&p->parts[GPU_A], codes);
        after = bad ? NULL : run_once(&r, p, &bad);
        codes[at] = kept;
        gpu_buffer_upload(&p->parts[GPU_A], codes);
        gpu_run_record(&r, bad ? bad : compare(&p->c, before, after, row));
        free(before);
        free(after);
    }
    gpu_run_close(&r);
}

void gpu_nans(void)
{
    for (int i = 0; i < gpu_nvariants; i++) {
        const struct gpu_variant *v = &gpu_variants[i];
        struct gpu_choice choices[GPU_MAX_CHOICES];
        int count = gpu_variant_choices(v, 1, choices);
        struct gpu_case p = {0};

        if (!has_nan(v))
            continue;
        gpu_variant_case(v, &p.c);
        p.c.what = "a NaN";
        p.c.sizes_type = QUERN_I32;
        p.c.fill = QT_NORMAL;
        p.c.seed = gpu_options.seed + (uint64_t)i;
        gpu_variant_sides(&p.c, 136, 208, 0);
        qt_case_layout(&p.c, &qt_patterns[4]);
        gpu_case_open(&p, GPU_GUARD);
        for (int j = 0; j < count; j++)
            run_choice(&p, &choices[j]);
        gpu_case_close(&p);
    }
}
