/*
** gpu_case.c: one problem on the device, one kernel's run of it.
*/
#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *gpu_text(const char *format, ...)
{
    static char text[2][512];
    static int turn;
    va_list args;

    /* Two, so that a text may be a part of the next. */
    turn = !turn;
    va_start(args, format);
    vsnprintf(text[turn], sizeof text[turn], format, args);
    va_end(args);
    return text[turn];
}

void gpu_case_open(struct gpu_case *p, size_t d_guard)
{
    p->d_guard = d_guard;
    if (qt_data_make(&p->c, &p->data) ||
        qt_data_reference(&p->c, &p->data, gpu_threads))
        gpu_lost("host memory ran out");
    gpu_buffer_make(&p->a, p->data.a_bytes, GPU_GUARD);
    gpu_buffer_make(&p->b, p->data.b_bytes, GPU_GUARD);
    gpu_buffer_make(&p->first, p->data.first_bytes, GPU_GUARD);
    gpu_buffer_make(&p->offsets, p->data.offsets_bytes, GPU_GUARD);
    gpu_buffer_upload(&p->a, p->data.a);
    gpu_buffer_upload(&p->b, p->data.b);
    gpu_buffer_upload(&p->first, p->data.first);
    gpu_buffer_upload(&p->offsets, p->data.offsets);
}

void gpu_case_close(struct gpu_case *p)
{
    gpu_buffer_free(&p->a);
    gpu_buffer_free(&p->b);
    gpu_buffer_free(&p->first);
    gpu_buffer_free(&p->offsets);
    qt_data_free(&p->data);
}

/* The problem goes in as text, so that the text is what a failure prints. */
static int make_plan(struct gpu_run *r, const struct qt_case *c,
                     const struct gpu_choice *choice, int sms,
                     struct quern_description *need)
{
    struct quern_plan_options options = {0};
    struct quern_problem problem;
    char line[128];
    int code;

    options.backend = QUERN_BACKEND_JIT;
    options.sms = sms;
    options.kernel = choice->kernel ? choice->kernel->name : NULL;
    snprintf(line, sizeof line, "fprop bf16 g=%d m=%lld n=%lld k=%lld d=%s",
             c->groups, (long long)c->m, (long long)c->n, (long long)c->k,
             choice->d_type == QUERN_F32 ? "f32" : "bf16");
    snprintf(r->label, sizeof r->label, "%s (%s, form %d, %s, sms=%d): %s",
             c->what, line, c->form, c->sizes_type == QUERN_I64 ? "i64" : "i32",
             sms, choice->label);
    code = quern_problem_parse(gpu_context, line, &problem);
    if (!code)
        code = quern_describe(gpu_context, &problem, need);
    if (!code)
        code = quern_plan(gpu_context, &problem, &options, &r->plan);
    return code;
}

/* As the library takes it; NULL for an array that the form does not give. */
static void *address(const struct gpu_buffer *b, int given)
{
    return given ? (void *)(uintptr_t)b->data : NULL;
}

int gpu_run_open(struct gpu_run *r, const struct gpu_case *p,
                 const struct gpu_choice *choice, int sms)
{
    struct quern_description need;
    int code;

    memset(r, 0, sizeof *r);
    code = make_plan(r, &p->c, choice, sms, &need);
    if (code)
        return code;
    gpu_must(cu.stream_create(&r->stream, GPU_NON_BLOCKING), "a stream");
    gpu_buffer_make(&r->d, qt_d_bytes(&p->c, choice->d_type), p->d_guard);
    gpu_buffer_make(&r->workspace, need.workspace_bytes, GPU_GUARD);
    gpu_buffer_zero(&r->workspace);
    r->args = need.args;
    qt_args_set(&p->c, &r->args);
    r->args.a.data = address(&p->a, 1);
    r->args.b.data = address(&p->b, 1);
    r->args.d.data = address(&r->d, 1);
    r->args.a.first_dims = address(&p->first, p->c.form != QT_OFFSETS);
    r->args.a.offsets = address(&p->offsets, p->c.form != QT_FIRST);
    r->args.workspace = address(&r->workspace, 1);
    return QUERN_OK;
}

void gpu_run_close(struct gpu_run *r)
{
    gpu_buffer_free(&r->d);
    gpu_buffer_free(&r->workspace);
    if (r->stream)
        gpu_must(cu.stream_destroy(r->stream), "ending a stream");
    quern_plan_free(r->plan);
    memset(r, 0, sizeof *r);
}

const char *gpu_run_start(struct gpu_run *r)
{
    gpu_buffer_poison(&r->d);
    gpu_must(cu.synchronize(), "poisoning D"); /* the stream does not wait */
    if (quern_run(r->plan, &r->args, r->stream))
        return gpu_text("quern_run: %s", quern_errmsg(gpu_context));
    return NULL;
}

const char *gpu_run_guarded(const struct gpu_run *r, const struct gpu_case *p)
{
    const char *bad = gpu_buffer_guarded(&r->d, "d");

    bad = bad ? bad : gpu_buffer_guarded(&r->workspace, "the workspace");
    bad = bad ? bad : gpu_buffer_guarded(&p->a, "a");
    bad = bad ? bad : gpu_buffer_guarded(&p->b, "b");
    bad = bad ? bad : gpu_buffer_guarded(&p->first, "first_dims");
    bad = bad ? bad : gpu_buffer_guarded(&p->offsets, "offsets");
    return bad;
}

/* All of D comes back: what must not be written is checked too. */
static const char *compare(const struct gpu_run *r, const struct gpu_case *p)
{
    struct qt_verdict verdict;
    void *d = malloc(r->d.bytes + 1);
    int good;

    if (!d)
        gpu_lost("host memory ran out");
    gpu_buffer_download(&r->d, d);
    good = qt_compare(&p->c, &p->data, r->args.d.type, d, &verdict);
    free(d);
    return good ? NULL : gpu_text("%s", verdict.text);
}

const char *gpu_run_finish(struct gpu_run *r, const struct gpu_case *p)
{
    const char *bad;

    gpu_wait(r->stream, r->label);
    if (quern_check(r->plan, &r->args, r->stream))
        return gpu_text("quern_check: %s", quern_errmsg(gpu_context));
    bad = gpu_run_guarded(r, p);
    return bad ? bad : compare(r, p);
}

/* Whatever happens is one count: passed, or failed with the first reason. */
void gpu_case_run(const struct gpu_case *p, const struct gpu_choice *choice,
                  int sms)
{
    struct gpu_run r;
    const char *bad = NULL;

    if (gpu_run_open(&r, p, choice, sms))
        bad = gpu_text("quern_plan: %s", quern_errmsg(gpu_context));
    if (!bad)
        bad = gpu_run_start(&r);
    if (!bad)
        bad = gpu_run_finish(&r, p);
    gpu_record(bad ? gpu_text("%s: %s", r.label, bad) : NULL);
    gpu_run_close(&r);
}

/* No kernel may write its inputs, wherever a store went. */
static void inputs_unchanged(const struct gpu_case *p)
{
    const struct gpu_buffer *buffers[] = {&p->a, &p->b, &p->first, &p->offsets};
    const void *sources[] = {p->data.a, p->data.b, p->data.first,
                             p->data.offsets};

    for (int i = 0; i < 4; i++) {
        void *copy = malloc(buffers[i]->bytes + 1);

        if (!copy)
            gpu_lost("host memory ran out");
        gpu_buffer_download(buffers[i], copy);
        if (buffers[i]->bytes && memcmp(copy, sources[i], buffers[i]->bytes))
            gpu_record(
                gpu_text("%s: some kernel wrote to an input", p->c.what));
        free(copy);
    }
}

void gpu_case_run_all(struct gpu_case *p, int index)
{
    /* Few multiprocessors give each one many tiles. */
    static const int sms[] = {0, 2, 4, 0, 6, 14, 2};

    gpu_case_open(p, GPU_GUARD);
    for (int i = 0; i < gpu_nchoices; i++)
        gpu_case_run(p, &gpu_choices[i], sms[(index + i) % 7]);
    inputs_unchanged(p);
    gpu_case_close(p);
}
