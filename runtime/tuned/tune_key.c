/* SPDX-License-Identifier: Apache-2.0 */
/* tune_key.c: are lines of measured winners about kernels as they are now? */
#include "tuned/tune_key.h"
#include "base/context.h"
#include "code/generator.h"

#include <stdio.h>
#include <string.h>

/* Of the next kernel of that name from number `*at` on, which is after it
   then; "" past the last. */
static int next_key(struct quern_context *ctx, const char *kernel, int *at,
                    char key[QN_TUNE_KEY + 1])
{
    const char *whole;
    int i = *at, code;

    while (i < ctx->nkernels && strcmp(ctx->kernels[i].kernel->name, kernel))
        i++;
    *key = 0;
    *at = i + 1;
    if (i >= ctx->nkernels)
        return QUERN_OK;
    code = qn_generator_key(ctx, &ctx->kernels[i], &whole);
    if (!code)
        snprintf(key, QN_TUNE_KEY + 1, "%s", whole);
    return code;
}

int qn_tune_key_of(struct quern_context *ctx, const char *kernel,
                   char key[QN_TUNE_KEY + 1])
{
    int at = 0;

    return next_key(ctx, kernel, &at, key);
}

/* A linked kernel and one of the registry may share a name. */
int qn_tune_key_check(struct quern_context *ctx, struct qn_tune_line *line)
{
    char key[QN_TUNE_KEY + 1];
    int at = 0, code = QUERN_OK;

    if (line->stale >= 0)
        return QUERN_OK;
    do {
        code = next_key(ctx, line->kernel, &at, key);
    } while (!code && *key && strcmp(key, line->key));
    if (!code)
        line->stale = !*key;
    return code;
}

int qn_tune_key_count(struct quern_context *ctx, struct qn_tune_file *file,
                      int *stale)
{
    int code = QUERN_OK;

    *stale = 0;
    for (int i = 0; i < file->count && !code; i++) {
        code = qn_tune_key_check(ctx, &file->lines[i]);
        *stale += !code && file->lines[i].stale;
    }
    return code;
}
