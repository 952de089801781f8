/* SPDX-License-Identifier: Apache-2.0 */
/* api_open.c: the first and the last call of programs. */
#include "api/api.h"
#include "base/context.h"
#include "base/error.h"

#include <stdlib.h>

#undef quern_open

/* The name that headers before 0.2 call. Their structs are other ones. */
QUERN_API int quern_open(const void *options, struct quern_context **ctx);

int quern_open(const void *options, struct quern_context **ctx)
{
    (void)options;
    if (ctx)
        *ctx = NULL;
    return qn_error_set(QUERN_EINVAL,
                        "this program was compiled with quern.h 0.1, the "
                        "library is " QUERN_VERSION ": compile it again");
}

int quern_open_abi(const struct quern_open_options *options,
                   struct quern_context **ctx, int abi, size_t args_size,
                   size_t operand_size)
{
    int code = QUERN_OK;

    if (!ctx)
        return qn_error_set(QUERN_EINVAL, "ctx is NULL");
    *ctx = NULL;
    if (abi != QUERN_ABI || args_size != sizeof(struct quern_args) ||
        operand_size != sizeof(struct quern_operand))
        return qn_error_set(QUERN_EINVAL,
                            "this program was compiled with a quern.h of ABI "
                            "%d, the library " QUERN_VERSION " has ABI %d: "
                            "compile it again",
                            abi, QUERN_ABI);
    if (options)
        code = qn_api_size("options", options->size, sizeof *options,
                           "QUERN_OPEN_OPTIONS_INIT");
    return code ? code : qn_open(options, ctx);
}

void quern_close(struct quern_context *ctx)
{
    if (ctx)
        qn_api_forget(ctx);
    qn_close(ctx);
}

const char *quern_errmsg(void)
{
    return qn_error_text();
}

const char *quern_version(void)
{
    return QUERN_VERSION;
}

void quern_free(void *memory)
{
    free(memory);
}
