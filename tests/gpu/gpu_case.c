/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_case.c: one problem on the device, one kernel's run of it. */
#include "gpu.h"
#include "api/api.h"
#include "product/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *gpu_text(const char *format, ...)
{
    static char text[2][700];
    static int turn;
    va_list args;

    /* Two, so that a text may be a part of the next. */
    turn = !turn;
    va_start(args, format);
    vsnprintf(text[turn], sizeof text[turn], format, args);
    va_end(args);
    return text[turn];
}

/* --------------------------------------------------------------- a problem */

static const char *const part_names[GPU_PARTS] = {
    "a",        "b",          "c",          "first_dims", "offsets",
    "alpha",    "beta",       "a.sf",       "b.sf",       "a.global",
    "b.global", "a.pointers", "b.pointers", "c.pointers"};

/* How many bytes of each part there are. */
static size_t part_bytes(const struct gpu_case *p, int part)
{
    const struct qt_data *d = &p->data;
    const size_t factors = (size_t)d->scalars * sizeof(float);
    const size_t pointers = (size_t)p->c.groups * sizeof(void *);
    const size_t bytes[GPU_PARTS] = {d->bytes[QT_A],
                                     d->bytes[QT_B],
                                     d->bytes[QT_C],
                                     d->first_bytes,
                                     d->offsets_bytes,
                                     factors,
                                     factors,
                                     d->sf_bytes[QT_A],
                                     d->sf_bytes[QT_B],
                                     d->global_bytes[QT_A],
                                     d->global_bytes[QT_B],
                                     pointers,
                                     pointers,
                                     pointers};

    return bytes[part];
}

/* The addresses of one operand's matrices, on the device. */
static void **pointers_of(const struct gpu_case *p, int role, gpu_address data)
{
    static void *pointers[QUERN_MAX_GROUPS];

    qt_pointers_write(&p->c, role, (void *)(uintptr_t)data, pointers);
    return pointers;
}

/* Pointers are made anew: they live until the next ones. */
const void *gpu_case_source(const struct gpu_case *p, int part)
{
    const struct qt_data *d = &p->data;
    const void *sources[] = {
        d->operand[QT_A], d->operand[QT_B], d->operand[QT_C], d->first,
        d->offsets,       d->alpha,         d->beta,          d->sf[QT_A],
        d->sf[QT_B],      d->global[QT_A],  d->global[QT_B]};

    if (part < GPU_A_POINTERS)
        return sources[part];
    return pointers_of(p, part - GPU_A_POINTERS + QT_A,
                       p->parts[part - GPU_A_POINTERS].data);
}

void gpu_case_open(struct gpu_case *p, size_t d_guard)
{
    p->d_guard = d_guard;
    if (qt_data_make(&p->c, &p->data) ||
        qt_data_reference(&p->c, &p->data, gpu_threads))
        gpu_lost("host memory ran out");
    for (int part = 0; part < GPU_PARTS; part++) {
        gpu_buffer_make(&p->parts[part], part_bytes(p, part), GPU_GUARD);
        gpu_buffer_upload(&p->parts[part], gpu_case_source(p, part));
    }
}

void gpu_case_close(struct gpu_case *p)
{
    for (int part = 0; part < GPU_PARTS; part++)
        gpu_buffer_free(&p->parts[part]);
    qt_data_free(&p->data);
}

/* ------------------------------------------------------------------- a run */

/* The problem goes in as text, so that the text is what a failure prints. */
static int make_plan(struct gpu_run *r, const struct qt_case *given,
                     const struct gpu_choice *choice, int sms)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct qt_case c = *given;
    char line[256];

    options.backend = QUERN_BACKEND_JIT;
    options.sms = sms;

    c.op = choice->op;
    c.dequantize = choice->dequantize;
    options.kernel = choice->kernel ? choice->label : NULL;
    qt_case_text(&c, line, sizeof line);
    if (choice->kernel && choice->kernel->kernel->microbatches > 1)
        strncat(line, " microbatches=8", sizeof line - strlen(line) - 1);
    snprintf(r->label, sizeof r->label, "%s (%s, %s, form %d, %s, sms=%d): %s",
             c.what, line, qt_case_epilogue(&c)->name, c.form,
             c.sizes_type == QUERN_I64 ? "i64" : "i32", sms, choice->label);
    return quern_plan_create(gpu_context, line, &options, &r->plan);
}

/* As the library takes it; NULL for an array that is not there. */
static void *address(const struct gpu_buffer *b)
{
    return b->bytes ? (void *)(uintptr_t)b->data : NULL;
}

static void set_args(struct gpu_run *r, const struct gpu_case *p)
{
    const struct gpu_buffer *parts = p->parts;
    const struct qt_addresses at = {
        .operand = {address(&parts[GPU_A]), address(&parts[GPU_B]),
                    address(&parts[GPU_C]), address(&r->d)},
        .pointers = {address(&parts[GPU_A_POINTERS]),
                     address(&parts[GPU_B_POINTERS]),
                     address(&parts[GPU_C_POINTERS]), address(&r->d_pointers)},
        .sf = {address(&parts[GPU_A_SF]), address(&parts[GPU_B_SF])},
        .global = {address(&parts[GPU_A_GLOBAL]),
                   address(&parts[GPU_B_GLOBAL])},
        .first = address(&parts[GPU_FIRST]),
        .offsets = address(&parts[GPU_OFFSETS]),
        .alpha = address(&parts[GPU_ALPHA]),
        .beta = address(&parts[GPU_BETA]),
        .workspace = address(&r->workspace)};

    qt_args_give(&p->c, &p->data, &at, &r->args);
}

int gpu_run_open(struct gpu_run *r, const struct gpu_case *p,
                 const struct gpu_choice *choice, int sms)
{
    struct quern_plan_info info;
    int code;

    memset(r, 0, sizeof *r);
    code = make_plan(r, &p->c, choice, sms);
    if (!code)
        code = quern_plan_info(r->plan, &info);
    if (code)
        return code;
    r->kernel = gpu_variant_kernel(info.kernel);
    if (!r->kernel)
        gpu_lost("the plan has a kernel that is not for this GPU");
    gpu_must(cu.stream_create(&r->stream, GPU_NON_BLOCKING), "a stream");
    gpu_buffer_make(&r->d, p->data.bytes[QT_D], p->d_guard);
    gpu_buffer_make(&r->d_pointers, (size_t)p->c.groups * sizeof(void *),
                    GPU_GUARD);
    gpu_buffer_upload(&r->d_pointers, pointers_of(p, QT_D, r->d.data));
    gpu_buffer_make(&r->workspace, info.workspace_bytes, GPU_GUARD);
    gpu_buffer_workspace(&r->workspace);
    set_args(r, p);
    return QUERN_OK;
}

void gpu_run_close(struct gpu_run *r)
{
    gpu_buffer_free(&r->d);
    gpu_buffer_free(&r->d_pointers);
    gpu_buffer_free(&r->workspace);
    if (r->stream)
        gpu_must(cu.stream_destroy(r->stream), "ending a stream");
    quern_plan_destroy(r->plan);
    memset(r, 0, sizeof *r);
}

void gpu_run_reset(struct gpu_run *r, const struct gpu_case *p)
{
    const struct qt_epilogue *e = qt_case_epilogue(&p->c);

    gpu_buffer_poison(&r->d);
    if (e->beta == QUERN_BETA_ONE || (e->beta == QUERN_BETA_ANY && !e->apart))
        gpu_buffer_upload(&r->d, p->data.operand[QT_D]);
    gpu_must(cu.synchronize(), "poisoning D"); /* the stream does not wait */
}

const char *gpu_run_start(struct gpu_run *r, const struct gpu_case *p)
{
    gpu_run_reset(r, p);
    if (quern_run(r->plan, &r->args, r->stream))
        return gpu_text("quern_run: %s", quern_errmsg());
    return NULL;
}

const char *gpu_run_guarded(const struct gpu_run *r, const struct gpu_case *p)
{
    const char *bad = gpu_buffer_guarded(&r->d, "d");

    bad = bad ? bad : gpu_buffer_guarded(&r->workspace, "the workspace");
    return bad ? bad : gpu_buffer_guarded(&p->parts[GPU_C], "c");
}

void gpu_run_digest(const struct gpu_run *r, const struct gpu_case *p,
                    const void *from, size_t bytes)
{
    static const char *const fills[] = {"normal", "integer", "extreme"};
    const unsigned char *at = from;
    uint64_t sum = 14695981039346656037u; /* FNV-1a */
    FILE *file;

    if (!gpu_options.digests)
        return;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ at[i]) * 1099511628211u;
    file = fopen(gpu_options.digests, "a");
    if (!file ||
        fprintf(file, "%s %016llx %s [%s]\n", fills[p->c.fill],
                (unsigned long long)sum, r->label, r->kernel->kernel->name) < 0)
        gpu_lost("the file of --digests can't be written");
    fclose(file);
}

/* D without the gaps between rows and matrices. Returns its bytes. */
static size_t close_gaps(const struct qt_case *c, unsigned char *d)
{
    size_t done = 0;
    struct qt_place p;

    qt_place_of(c, QT_D, &p);
    for (int g = 0; g < (p.grouped ? c->groups : 1); g++)
        for (int64_t row = 0; row < p.rows; row++) {
            const int64_t at = g * p.pitch + row * p.stride;
            const size_t bytes = (size_t)(p.columns * p.bytes);

            memmove(d + done, d + at * p.bytes, bytes);
            done += bytes;
        }
    return done;
}

/* All of D comes back: what must not be written is checked too. */
static const char *compare(const struct gpu_run *r, const struct gpu_case *p)
{
    struct qt_verdict verdict;
    struct qt_case c = p->c;
    void *d = malloc(r->d.bytes + 1);
    int good;

    if (!d)
        gpu_lost("host memory ran out");
    gpu_buffer_download(&r->d, d);
    c.dequantize =
        r->plan->of.product->problem.dequantize; /* what the model chose */
    good = qt_compare(&c, &p->data, d, &verdict);
    gpu_run_digest(r, p, d, close_gaps(&c, d));
    free(d);
    return good ? NULL : gpu_text("%s", verdict.text);
}

const char *gpu_run_finish(struct gpu_run *r, const struct gpu_case *p)
{
    const char *bad;

    gpu_wait(r->stream, r->label);
    if (quern_check(r->plan, &r->args, r->stream))
        return gpu_text("quern_check: %s", quern_errmsg());
    bad = gpu_run_guarded(r, p);
    return bad ? bad : compare(r, p);
}

/* -------------------------------------------------------------- many runs */

void gpu_run_unopened(const struct gpu_run *r, int code)
{
    if (code == QUERN_ENOKERNEL)
        gpu_refused();
    else
        gpu_record(
            gpu_text("%s: quern_plan_create: %s", r->label, quern_errmsg()));
}

void gpu_run_record(const struct gpu_run *r, const char *bad)
{
    if (!bad)
        r->kernel->runs++;
    gpu_record(
        bad ? gpu_text("%s [%s]: %s", r->label, r->kernel->kernel->name, bad)
            : NULL);
}

/* Each case is one count: passed, refused, or failed with the first reason. */
int gpu_case_run(const struct gpu_case *p, const struct gpu_choice *choice,
                 int sms)
{
    struct gpu_run r;
    const char *bad;
    int code = gpu_run_open(&r, p, choice, sms);

    if (code) {
        gpu_run_unopened(&r, code);
    } else {
        bad = gpu_run_start(&r, p);
        if (!bad)
            bad = gpu_run_finish(&r, p);
        gpu_run_record(&r, bad);
    }
    gpu_run_close(&r);
    return code != QUERN_ENOKERNEL;
}

/* No kernel may write its inputs, wherever a store went, nor around them. */
static void inputs_unchanged(const struct gpu_case *p)
{
    for (int part = 0; part < GPU_PARTS; part++) {
        const struct gpu_buffer *b = &p->parts[part];
        const char *bad = gpu_buffer_guarded(b, part_names[part]);
        void *copy = malloc(b->bytes + 1);

        if (!copy)
            gpu_lost("host memory ran out");
        gpu_buffer_download(b, copy);
        if (b->bytes && memcmp(copy, gpu_case_source(p, part), b->bytes))
            bad = gpu_text("some kernel wrote to %s", part_names[part]);
        if (bad)
            gpu_record(gpu_text("%s: %s", p->c.what, bad));
        free(copy);
    }
}

/* The model must find a kernel if any kernel of the op serves. */
static void model_found(const struct gpu_case *p, const unsigned served[2])
{
    gpu_record(served[0] & ~served[1]
                   ? gpu_text("%s: the model found no kernel, and there is one",
                              p->c.what)
                   : NULL);
}

void gpu_case_run_all(struct gpu_case *p, const struct gpu_variant *v,
                      int index)
{
    /* Few multiprocessors give each one many tiles. */
    static const int sms[] = {0, 2, 4, 0, 6, 14, 2};
    struct gpu_choice choices[GPU_MAX_CHOICES];
    int count = gpu_variant_choices(v, 1, choices);
    unsigned served[2] = {0, 0}; /* ops: by a kernel, by the model */

    gpu_case_open(p, GPU_GUARD);
    for (int i = 0; i < count; i++)
        if (gpu_case_run(p, &choices[i], sms[(index + i) % 7]))
            served[!choices[i].kernel] |= 1u << choices[i].op;
    if (!gpu_options.only)
        model_found(p, served);
    inputs_unchanged(p);
    gpu_case_close(p);
}

void *gpu_run_result(struct gpu_run *r, const struct gpu_case *p,
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

void gpu_case_begin(struct gpu_case *p, const char *what, int index, int64_t k)
{
    p->c.what = what;
    p->c.sizes_type = QUERN_I32;
    p->c.fill = QT_NORMAL;
    p->c.seed = gpu_options.seed + (uint64_t)index;
    gpu_variant_sides(&p->c, 136, k, 0);
    qt_case_layout(&p->c, &qt_patterns[4]);
    gpu_case_open(p, GPU_GUARD);
}
