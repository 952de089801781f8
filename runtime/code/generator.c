/* SPDX-License-Identifier: Apache-2.0 */
/* generator.c: libquern_gen, opened when a source or a user's specs are
   needed. */
#define _GNU_SOURCE
#include "code/generator.h"
#include "base/context.h"
#include "base/error.h"
#include "device/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
** The file's name ends with the ABI's number, the first of the version; the
** newest number has the right functions.         COUPLED: soname
*/
static void print_path(char *path, size_t size, const char *folder,
                       const char *rest)
{
    snprintf(path, size, "%s%slibquern_gen.so.%.*s", folder, rest,
             (int)strcspn(QUERN_VERSION, "."), QUERN_VERSION);
}

/* QUERN_GEN only, or next to this library, in ../lib, on the loader's path. */
static int open_library(struct quern_context *ctx)
{
    static const char *const places[] = {"/", "/../lib/"};
    struct qn_generator *gen = &ctx->generator;
    char folder[PATH_MAX], path[PATH_MAX + 32];

    if (ctx->gen) {
        gen->library = qn_library_open(ctx->gen, 0);
    } else {
        for (int i = 0;
             i < 2 && !gen->library && qn_library_folder(folder, sizeof folder);
             i++) {
            print_path(path, sizeof path, folder, places[i]);
            gen->library = qn_library_open(path, 0);
        }
        print_path(path, sizeof path, "", "");
        if (!gen->library)
            gen->library = qn_library_open(path, 0);
    }
    if (!gen->library)
        return qn_error_set(QUERN_EMISSING,
                            "the generator is needed and cannot be opened: "
                            "%s; set QUERN_GEN to the path of libquern_gen.so",
                            qn_library_error());
    return QUERN_OK;
}

/* The functions of gen.h. */
static int load_symbols(struct qn_generator *gen)
{
#define AT(field) offsetof(struct qn_generator, field)
    static const struct qn_library_symbol symbols[] = {
        {"qg_open", AT(open)},         {"qg_open_lazily", AT(open_lazily)},
        {"qg_close", AT(close)},       {"qg_diagnostics", AT(diagnostics)},
        {"qg_registry", AT(registry)}, {"qg_source_kernel", AT(kernel)},
        {"qg_source", AT(source)}};
#undef AT
    const char *missing = qn_library_load(gen->library, gen, symbols,
                                          sizeof symbols / sizeof symbols[0]);

    return missing
               ? qn_error_set(QUERN_EMISSING, "libquern_gen has no %s", missing)
               : QUERN_OK;
}

/* Diagnostics become the message, lines without a newline at the end. */
static int set_diagnostics(const struct qn_generator *gen)
{
    const char *text = gen->diagnostics(gen->qg);
    size_t length = strlen(text);

    while (length && text[length - 1] == '\n')
        length--;
    return qn_error_set(QUERN_ECOMPILE, "%.*s", (int)length, text);
}

/* Without specs of the user's the registry is here already. */
static int load_specs(struct quern_context *ctx)
{
    struct qn_generator *gen = &ctx->generator;
    int failed = ctx->nspecs ? gen->open((const char *const *)ctx->specs,
                                         ctx->nspecs, &gen->qg)
                             : gen->open_lazily(&gen->qg);

    if (!failed && gen->qg)
        return QUERN_OK;
    if (!gen->qg)
        return qn_error_memory();
    return set_diagnostics(gen);
}

/* Close the generator if it is open; the lock stays. */
static void release(struct qn_generator *gen)
{
    if (gen->qg)
        gen->close(gen->qg);
    gen->qg = NULL;
    if (gen->library)
        dlclose(gen->library);
    gen->library = NULL;
}

/* The caller has the lock. */
static int open_locked(struct quern_context *ctx)
{
    int code;

    if (ctx->generator.qg)
        return QUERN_OK;
    code = open_library(ctx);
    if (!code)
        code = load_symbols(&ctx->generator);
    if (!code)
        code = load_specs(ctx);
    if (code)
        release(&ctx->generator);
    return code;
}

int qn_generator_open(struct quern_context *ctx)
{
    int code;

    pthread_mutex_lock(&ctx->generator.lock);
    code = open_locked(ctx);
    pthread_mutex_unlock(&ctx->generator.lock);
    return code;
}

void qn_generator_close(struct quern_context *ctx)
{
    release(&ctx->generator);
}

/* The text of a kernel, which the generator owns, and its row, which has its
   key from now on. A library of another build must not fill the cache with its
   own source, so the keys must agree. */
static int render_locked(struct qn_generator *gen,
                         const struct qn_kernel *kernel, const char **text,
                         size_t *length)
{
    const struct qn_kernel *row = gen->kernel(gen->qg, kernel->name);

    if (row && gen->source(gen->qg, kernel->name, text, length))
        return set_diagnostics(gen);
    if (!row || strcmp(row->key, kernel->key))
        return qn_error_set(QUERN_ECOMPILE,
                            "%s: libquern_gen writes another kernel of this "
                            "name, or none: it is of another build or lacks "
                            "your specs",
                            kernel->name);
    return QUERN_OK;
}

/* Copied while locked. */
static int source_locked(struct qn_generator *gen,
                         const struct qn_kernel *kernel, char **source)
{
    const char *text;
    size_t length;
    int code = render_locked(gen, kernel, &text, &length);

    if (code)
        return code;
    *source = malloc(length + 1);
    if (!*source)
        return qn_error_memory();
    memcpy(*source, text, length);
    (*source)[length] = 0;
    return QUERN_OK;
}

int qn_generator_source(struct quern_context *ctx,
                        const struct qn_kernel *kernel, char **source)
{
    int code;

    *source = NULL;
    pthread_mutex_lock(&ctx->generator.lock);
    code = open_locked(ctx);
    if (!code)
        code = source_locked(&ctx->generator, kernel, source);
    pthread_mutex_unlock(&ctx->generator.lock);
    return code;
}

int qn_generator_key(struct quern_context *ctx,
                     const struct qn_candidate *candidate, const char **key)
{
    const struct qn_kernel *kernel = candidate->kernel;
    int lazy = ctx->nspecs && candidate->registry == ctx->base;
    const char *text;
    size_t length;
    int code = QUERN_OK;

    if (lazy)
        pthread_mutex_lock(&ctx->generator.lock);
    if (lazy && !kernel->key)
        code = render_locked(&ctx->generator, kernel, &text, &length);
    *key = kernel->key;
    if (lazy)
        pthread_mutex_unlock(&ctx->generator.lock);
    return code;
}
