/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_nans.c: a NaN in one row of a quantized A makes that row of D NaN, one in
   a row of B that column of its group, and neither changes another bit. */
#include "gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = 3, COLUMN = 77 };

/* Only these have a NaN, 0x7f. */
static int has_nan(const struct gpu_variant *v, int role)
{
    const int type = !v->recipe ? 0 : role == QT_A ? v->type : v->recipe->w;

    return v->ragged == QUERN_AXIS_M && v->epilogue == QN_STORE &&
           (type == QUERN_E4M3 || type == QUERN_E5M2);
}

/* Does row ROW of the first group's A, or of its B, count there? */
static int counts(const struct qt_case *c, int role, int64_t i)
{
    const int64_t row = i / c->n - c->start[0];

    return role == QT_A ? row == ROW
                        : row >= 0 && row < c->length[0] && i % c->n == ROW;
}

/* Element by element; NULL, or where it went wrong. */
static const char *compare(const struct qt_case *c, int role,
                           const void *before, const void *after)
{
    const size_t bytes = c->d_type == QUERN_F32 ? 4 : 2;

    for (int64_t i = 0; i < c->m * c->n; i++) {
        const size_t at = (size_t)i * bytes;
        const int in = counts(c, role, i);

        if (in ? !isnan(qt_load(after, c->d_type, i))
               : memcmp((const char *)before + at, (const char *)after + at,
                        bytes))
            return gpu_text("of %c: row %lld, column %lld %s",
                            role == QT_A ? 'A' : 'B', (long long)(i / c->n),
                            (long long)(i % c->n),
                            in ? "is no NaN" : "changed");
    }
    return NULL;
}

static void run_choice(struct gpu_case *p, const struct gpu_choice *choice,
                       int role)
{
    const int64_t row = role == QT_A ? p->c.start[0] + ROW : ROW;
    const int64_t at = row * ((p->c.k + 15) / 16 * 16) + COLUMN;
    unsigned char *codes = p->data.operand[role], kept = codes[at];
    const char *bad = NULL;
    void *before, *after;
    struct gpu_run r;
    int code = gpu_run_open(&r, p, choice, 0);

    if (code) {
        gpu_run_unopened(&r, code);
    } else {
        before = gpu_run_result(&r, p, &bad);
        codes[at] = 0x7f;
        gpu_buffer_upload(&p->parts[GPU_A + role], codes);
        after = bad ? NULL : gpu_run_result(&r, p, &bad);
        codes[at] = kept;
        gpu_buffer_upload(&p->parts[GPU_A + role], codes);
        gpu_run_record(&r, bad ? bad : compare(&p->c, role, before, after));
        free(before);
        free(after);
    }
    gpu_run_close(&r);
}

static void run_variant(const struct gpu_variant *v, int index)
{
    struct gpu_choice choices[GPU_MAX_CHOICES];
    int count = gpu_variant_choices(v, 1, choices);
    struct gpu_case p = {0};

    gpu_variant_case(v, &p.c);
    gpu_case_begin(&p, "a NaN", index, 208);
    for (int role = QT_A; role <= QT_B; role++)
        for (int j = 0; j < count && has_nan(v, role); j++)
            run_choice(&p, &choices[j], role);
    gpu_case_close(&p);
}

void gpu_nans(void)
{
    for (int i = 0; i < gpu_nvariants; i++)
        if (has_nan(&gpu_variants[i], QT_A) || has_nan(&gpu_variants[i], QT_B))
            run_variant(&gpu_variants[i], i);
}
