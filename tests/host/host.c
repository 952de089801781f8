/*
** host.c: the host backend between canaries.
*/
#include "host.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct quern_context *host_ctx;

/* `threads` goes in as the number of multiprocessors: on the host, threads. */
struct quern_plan *host_plan(const struct qt_case *c, int d_type, int threads,
                             struct quern_args *args)
{
    struct quern_plan_options options = {QUERN_BACKEND_HOST, threads, NULL};
    struct quern_problem problem;
    struct quern_description need;
    struct quern_plan *plan = NULL;
    char line[160];

    snprintf(line, sizeof line, "fprop bf16 g=%d m=%lld n=%lld k=%lld d=%s",
             c->groups, (long long)c->m, (long long)c->n, (long long)c->k,
             d_type == QUERN_F32 ? "f32" : "bf16");
    if (quern_problem_parse(host_ctx, line, &problem) ||
        quern_describe(host_ctx, &problem, &need) ||
        quern_plan(host_ctx, &problem, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg(host_ctx));
    *args = need.args;
    qt_args_set(c, args);
    return plan;
}

/* The workspace is zeroed once, as the header says, not before each run. */
void host_output_reset(struct host_output *out, size_t d_bytes,
                       size_t workspace_bytes)
{
    if (!out->memory) {
        out->memory = aligned_alloc(256, (d_bytes / 256 + 1) * 256 +
                                             2 * (size_t)HOST_GUARD);
        out->workspace = calloc(1, workspace_bytes);
        assert_non_null(out->memory);
        assert_non_null(out->workspace);
        out->d = out->memory + HOST_GUARD;
        out->d_bytes = d_bytes;
        out->workspace_bytes = workspace_bytes;
    }
    memset(out->memory, QT_POISON, d_bytes + 2 * (size_t)HOST_GUARD);
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

int host_run(const struct quern_plan *plan, struct quern_args *args,
             const struct qt_case *c, const struct qt_data *data,
             struct host_output *out)
{
    args->a.data = data->a;
    args->b.data = data->b;
    args->d.data = out->d;
    args->a.first_dims = data->first;
    args->a.offsets = data->offsets;
    args->workspace = out->workspace;
    if (quern_run(plan, args, NULL))
        fail_msg("%s: %s", c->what, quern_errmsg(host_ctx));
    return quern_check(plan, args, NULL);
}

void host_multiply(const struct qt_case *c, const struct qt_data *data,
                   int d_type, int threads, struct host_output *out)
{
    struct quern_args args;
    struct quern_plan *plan = host_plan(c, d_type, threads, &args);

    host_output_reset(out, qt_d_bytes(c, d_type), 256);
    if (host_run(plan, &args, c, data, out))
        fail_msg("%s: %s", c->what, quern_errmsg(host_ctx));
    host_output_guarded(out, c->what);
    quern_plan_free(plan);
}
