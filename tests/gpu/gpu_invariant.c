/* SPDX-License-Identifier: Apache-2.0 */
/*
** gpu_invariant.c: a token's y, dx and dprob, whatever tokens come with it, and
** an expert's gradients of weights, whatever tokens it does not have.
*/
#include "gpu_moe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/error.h"

enum { BATCH = 8192 };

static int64_t origin_of(int64_t token)
{
    return (token * 4099 + 3) % BATCH;
}

static size_t bytes_of(const struct qn_moe_job *j, int arg)
{
    return j->call.memory[arg].bytes / (size_t)j->moe.mlp.m;
}

/* A token of the one job for the first `count` tokens of the other. */
static void take_tokens(struct layer_line *line, const struct qn_moe_job *from,
                        struct qn_moe_job *to, int64_t count,
                        int64_t (*origin)(int64_t))
{
    static const int read[] = {QUERN_ARG_X, QUERN_ARG_DY, QUERN_ARG_PROB};
    const int topk = to->moe.topk;

    for (int k = 0; k < 3; k++) {
        const size_t bytes = bytes_of(from, read[k]);
        struct qn_memory *memory = &to->call.memory[read[k]];
        char *host = to->call.host[read[k]];

        if (!bytes) /* forward only */
            continue;
        for (int64_t i = 0; i < count; i++)
            memcpy(host + (size_t)i * bytes,
                   (const char *)from->call.host[read[k]] +
                       (size_t)origin(i) * bytes,
                   bytes);
        layer_must(line, qn_memory_write(memory, 0, host, memory->bytes), "");
    }
    for (int64_t i = 0; i < count * topk; i++)
        to->index[i] = from->index[origin(i / topk) * topk + i % topk];
    layer_must(line, qn_moe_job_route(to), "");
}

static int same_bytes(struct layer_line *line, const struct qn_memory *a,
                      size_t at, const struct qn_memory *b, size_t other,
                      size_t bytes)
{
    char *from = malloc(2 * bytes + 1);
    int same;

    layer_must(line, from ? QUERN_OK : qn_error_memory(), "");
    if (!*line->result)
        layer_must(line, qn_memory_read(a, at, from, bytes), "");
    if (!*line->result)
        layer_must(line, qn_memory_read(b, other, from + bytes, bytes), "");
    same = *line->result || memcmp(from, from + bytes, bytes) == 0;
    free(from);
    return same;
}

static void same_tokens(struct layer_line *line, const struct qn_moe_job *all,
                        const struct qn_moe_job *few)
{
    static const int made[] = {QUERN_ARG_Y, QUERN_ARG_DX, QUERN_ARG_DPROB};
    const int64_t m = few->moe.mlp.m, step = m > 64 ? m / 64 : 1;
    char text[96];

    for (int64_t i = 0; i < m; i += step)
        for (int k = 0; k < 3; k++) {
            const size_t bytes = bytes_of(all, made[k]);

            if (same_bytes(line, &few->call.memory[made[k]], (size_t)i * bytes,
                           &all->call.memory[made[k]],
                           (size_t)origin_of(i) * bytes, bytes))
                continue;
            snprintf(text, sizeof text, " of a token differs among %lld tokens",
                     (long long)m);
            layer_fail(line, qn_api_name(made[k]), text);
        }
}

static int64_t same_token(int64_t token)
{
    return token;
}

/* An expert sums the gradients of its weights over its own rows, however many
   tokens without experts come after them. */
static void same_gradients(struct layer_line *line,
                           const struct qn_moe_job *few)
{
    static const int made[] = {QUERN_ARG_DW1, QUERN_ARG_DW2, QUERN_ARG_DB1,
                               QUERN_ARG_DB2};
    const int64_t pairs = few->moe.mlp.m * few->moe.topk;
    struct qn_moe_job all = {0};
    char text[300];

    snprintf(text, sizeof text, "%s m=%d", line->text, BATCH);
    if (layer_begin(line, &all, text, QUERN_BACKEND_JIT)) {
        for (int64_t i = pairs; i < (int64_t)BATCH * all.moe.topk; i++)
            all.index[i] = -1;
        take_tokens(line, few, &all, few->moe.mlp.m, same_token);
        layer_run(line, &all);
    }
    for (int i = 0; i < 4 && !*line->result; i++)
        if (!same_bytes(line, &few->call.memory[made[i]], 0,
                        &all.call.memory[made[i]], 0,
                        few->call.memory[made[i]].bytes))
            layer_fail(line, qn_api_name(made[i]),
                       " differs next to tokens without experts");
    qn_moe_job_free(&all);
}

void layer_invariant(struct layer_line *line)
{
    static const int sizes[] = {1, 7, 64, 129, 1000, 4096};
    struct qn_moe_job all = {0};
    char text[300];

    snprintf(text, sizeof text, "%s m=%d", line->text, BATCH);
    if (layer_begin(line, &all, text, QUERN_BACKEND_JIT))
        layer_run(line, &all);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !*line->result;
         i++) {
        struct qn_moe_job few = {0};

        snprintf(text, sizeof text, "%s m=%d", line->text, sizes[i]);
        if (layer_begin(line, &few, text, QUERN_BACKEND_JIT)) {
            take_tokens(line, &all, &few, sizes[i], origin_of);
            layer_run(line, &few);
            same_tokens(line, &all, &few);
            same_gradients(line, &few);
        }
        qn_moe_job_free(&few);
    }
    qn_moe_job_free(&all);
}
