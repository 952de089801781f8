/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_scales.c: the ends of the scales of blocks, of A and of B, in every
   kernel and dequantized in a pass: NaN, the largest and the least scale. */
#include "gpu.h"

#include "support/ends.h"

#include <stdlib.h>
#include <string.h>

/* Copy that part from the host to the device. */
static void upload(const struct gpu_case *p, int part)
{
    gpu_buffer_upload(&p->parts[part], gpu_case_source(p, part));
}

/* The codes of the block are zeros. */
static void *run_without(struct gpu_run *r, struct gpu_case *p,
                         const struct qt_block *b, const char **bad)
{
    unsigned char *kept = malloc((size_t)b->lines * b->bytes);
    void *d;

    if (!kept)
        gpu_lost("host memory ran out");
    qt_ends_clear(b, kept);
    upload(p, GPU_A + b->role);
    d = gpu_run_result(r, p, bad);
    qt_ends_restore(b, kept);
    upload(p, GPU_A + b->role);
    free(kept);
    return d;
}

static void *run_scaled(struct gpu_run *r, struct gpu_case *p,
                        const struct qt_block *b, unsigned char code,
                        const char **bad)
{
    const unsigned char kept = *b->scale;
    void *d;

    *b->scale = code;
    upload(p, GPU_A_SF + b->role);
    d = gpu_run_result(r, p, bad);
    *b->scale = kept;
    upload(p, GPU_A_SF + b->role);
    return d;
}

static int dequantizes(const struct gpu_choice *choice, const char *how)
{
    const struct qn_kernel *k = choice->kernel ? choice->kernel->kernel : NULL;

    return k && k->dequantize && !strcmp(k->dequantize, how);
}

/* An end is too far from the scales next to it for a kernel that multiplies
   codes relative to the largest one: then something is NaN. */
static void run_choice(struct gpu_case *p, const struct gpu_choice *choice,
                       int role)
{
    const int rebased = dequantizes(choice, "rebased");
    const int type = qt_ends_scaling(&p->c, role)->type;
    const char *bad = NULL;
    void *before, *without;
    struct qt_block b;
    struct gpu_run r;
    char text[200];
    int code = gpu_run_open(&r, p, choice, 0);

    if (code) {
        gpu_run_unopened(&r, code);
        gpu_run_close(&r);
        return;
    }
    qt_ends_find(&p->c, &p->data, role, &b);
    b.exact |= dequantizes(choice, "none");
    before = gpu_run_result(&r, p, &bad);
    without = run_without(&r, p, &b, &bad);
    for (int i = 0; i < qt_nends; i++)
        if (qt_ends[i].type == type) {
            void *after = run_scaled(&r, p, &b, qt_ends[i].code, &bad);

            if (!bad && !qt_ends_right(&p->c, &b, before, after, without,
                                       rebased ? QT_IS_NAN : qt_ends[i].outcome,
                                       text, sizeof text))
                bad = text;
            free(after);
        }
    gpu_run_record(&r, bad);
    free(before);
    free(without);
    gpu_run_close(&r);
}

/* Every kernel of the variant, and the dequantize pass; nothing without such
   a scale. With one at an end neither FP8 nor f16 is taken, and other bits
   change: see gpu_requantize.c. */
static void run_variant(const struct gpu_variant *v, int index)
{
    struct gpu_choice choices[GPU_MAX_CHOICES];
    struct gpu_case p = {0};
    int count = gpu_variant_choices(v, 1, choices);

    gpu_variant_case(v, &p.c);
    if (v->epilogue != QN_STORE ||
        (!qt_ends_scaling(&p.c, QT_A) && !qt_ends_scaling(&p.c, QT_B)))
        return;
    gpu_case_begin(&p, "the ends of scales", index, 224);
    for (int role = QT_A; role <= QT_B; role++)
        for (int j = 0; j < count && qt_ends_scaling(&p.c, role); j++)
            if (choices[j].dequantize < QUERN_DEQUANTIZE_FP8)
                run_choice(&p, &choices[j], role);
    gpu_case_close(&p);
}

void gpu_scales(void)
{
    for (int i = 0; i < gpu_nvariants; i++)
        run_variant(&gpu_variants[i], i);
}
