/* SPDX-License-Identifier: Apache-2.0 */
/* host.c: the host backend between canaries. */
#include "host.h"

#include <stdio.h>
#include <string.h>

struct quern_context *host_ctx;

void host_specs_open(struct host_specs *s, const char *folder)
{
    const struct quern_open_options options = {
        .cache = "", .specs = &folder, .specs_count = 1};

    s->before = host_ctx;
    if (system("cc --version >/dev/null 2>&1")) {
        print_message("skip: needs a C compiler, cc\n");
        skip();
    }
    if (qn_open(&options, &host_ctx))
        fail_msg("%s", quern_errmsg());
    qt_context = host_ctx;
}

void host_specs_close(struct host_specs *s)
{
    quern_close(host_ctx); /* and the plans that it keeps */
    host_ctx = qt_context = s->before;
}

/* `threads` goes in as the number of multiprocessors: on the host, threads. */
struct qn_plan *host_plan(const struct qt_case *c, int threads,
                          struct qn_args *args)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST,
                                            .sms = threads};
    struct qn_problem problem;
    struct qn_description need;
    struct qn_plan *plan = NULL;
    char line[256];

    qt_case_text(c, line, sizeof line);
    if (qn_problem_parse(host_ctx, line, &problem) ||
        qn_problem_describe(host_ctx, &problem, &need) ||
        qn_plan(host_ctx, &problem, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    *args = need.args;
    return plan;
}

/* The workspace is zeroed once, as the header says, not before each run. */
void host_output_reset(struct host_output *out, const struct qt_data *data)
{
    size_t d_bytes = data->bytes[QT_D];

    if (!out->memory) {
        if (!out->workspace_bytes)
            out->workspace_bytes = 256;
        out->memory = aligned_alloc(256, (d_bytes / 256 + 1) * 256 +
                                             2 * (size_t)HOST_GUARD);
        out->workspace = malloc(out->workspace_bytes);
        assert_non_null(out->memory);
        assert_non_null(out->workspace);
        qn_memory_begin(out->workspace, out->workspace_bytes);
        out->d = out->memory + HOST_GUARD;
        out->d_bytes = d_bytes;
    }
    memset(out->memory, QT_POISON, d_bytes + 2 * (size_t)HOST_GUARD);
    memcpy(out->d, data->operand[QT_D], d_bytes);
}

void host_output_free(struct host_output *out)
{
    free(out->memory);
    free(out->workspace);
    memset(out, 0, sizeof *out);
}

void host_output_guarded(const struct host_output *out, const char *what)
{
    const unsigned char *after = out->memory + HOST_GUARD + out->d_bytes;

    for (size_t i = 0; i < HOST_GUARD; i++) {
        if (out->memory[i] != QT_POISON)
            fail_msg("%s: %zu bytes before d were written", what,
                     HOST_GUARD - i);
        if (after[i] != QT_POISON)
            fail_msg("%s: byte %zu after d was written", what, i);
    }
}

int host_run(const struct qn_plan *plan, struct qn_args *args,
             const struct qt_case *c, const struct qt_data *data,
             struct host_output *out)
{
    struct qt_addresses at = {.first = data->first,
                              .offsets = data->offsets,
                              .alpha = data->alpha,
                              .beta = data->beta,
                              .workspace = out->workspace};

    for (int role = 0; role < QT_ROLES; role++) {
        at.operand[role] = role == QT_D ? out->d : data->operand[role];
        at.pointers[role] = out->pointers[role];
        if (role <= QT_B) {
            at.sf[role] = data->sf[role];
            at.global[role] = data->global[role];
        }
        qt_pointers_write(c, role, at.operand[role], out->pointers[role]);
    }
    qt_args_set(c, data, &at, args);
    if (qn_run(plan, args, NULL))
        fail_msg("%s: %s", c->what, quern_errmsg());
    return qn_check(plan, args, NULL);
}

void host_multiply(const struct qt_case *c, const struct qt_data *data,
                   int threads, struct host_output *out)
{
    struct qn_args args;
    struct qn_plan *plan = host_plan(c, threads, &args);
    struct quern_plan_info info;

    qn_plan_info(plan, &info);
    if (!out->memory)
        out->workspace_bytes = info.workspace_bytes;
    host_output_reset(out, data);
    if (host_run(plan, &args, c, data, out))
        fail_msg("%s: %s", c->what, quern_errmsg());
    host_output_guarded(out, c->what);
    qn_plan_free(plan);
}

void host_case_right(const struct qt_case *c)
{
    struct host_output out = {0};
    struct qt_verdict verdict;
    struct qt_data data;
    char text[256];

    assert_int_equal(qt_data_make(c, &data), 0);
    assert_int_equal(qt_data_reference(c, &data, 2), 0);
    host_multiply(c, &data, 0, &out);
    qt_case_text(c, text, sizeof text);
    if (!qt_compare(c, &data, out.d, &verdict))
        fail_msg("%s (%s, %s, form %d): %s", c->what, text,
                 qt_case_epilogue(c)->name, c->form, verdict.text);
    host_output_free(&out);
    qt_data_free(&data);
}

int64_t host_cast(const struct qn_problem *p, int of, int64_t features,
                  const struct qn_quantize_args *given)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan = NULL;
    struct qn_quantize_args *args = &need.args;
    unsigned char workspace[4096] __attribute__((aligned(256))) = {0};
    struct qn_quantization q = {.work = QUERN_QUANTIZE,
                                .of = of,
                                .type = QUERN_F32,
                                .copies = QUERN_ROWWISE,
                                .activation = p->activation,
                                .interleave = p->interleave,
                                .probability = p->probability,
                                .dprob = p->dprob,
                                .groups = p->groups,
                                .m = p->m,
                                .k = features};

    strcpy(q.recipe, p->recipe);
    if (qn_quantize_needs(host_ctx, &q, &need) ||
        qn_quantize_plan(host_ctx, &q, &options, &plan))
        fail_msg("%s", quern_errmsg());
    assert_in_range(need.workspace_bytes, 0, sizeof workspace);
    args->in.data = given->in.data;
    args->saved.data = given->saved.data;
    args->row.data = given->row.data;
    args->first_dims = given->first_dims;
    args->probability = given->probability;
    args->dprob = given->dprob;
    args->limit = given->limit;
    args->workspace = workspace;
    if (qn_quantize_run(plan, args, NULL))
        fail_msg("%s", quern_errmsg());
    qn_quantize_plan_free(plan);
    return args->row.stride;
}

void host_refuses(const char *const lines[][2], int count)
{
    struct quern_operand *table;
    int operands;

    for (int i = 0; i < count; i++) {
        assert_int_equal(
            quern_describe(host_ctx, lines[i][0], &table, &operands),
            QUERN_EINVAL);
        if (strncmp(quern_errmsg(), lines[i][1], strlen(lines[i][1])))
            fail_msg("%s: %s", lines[i][0], quern_errmsg());
    }
}
