/* SPDX-License-Identifier: Apache-2.0 */
/* module.c: kernels that are loaded, one of each for a context. */
#include "code/module.h"
#include "base/context.h"
#include "base/error.h"
#include "code/cache.h"
#include "code/generator.h"
#include "code/jit.h"
#include "device/driver.h"

#include <stdlib.h>
#include <string.h>

/* Needs the lock. */
static struct qn_module *find(const struct quern_context *ctx,
                              const struct qn_kernel *kernel, int backend)
{
    for (struct qn_module *m = ctx->modules; m; m = m->next)
        if (m->kernel == kernel && m->backend == backend)
            return m;
    return NULL;
}

/* The driver lives longer than all modules. */
static void unload(struct quern_context *ctx, struct qn_module *module)
{
    if (module->library)
        ctx->driver->cuLibraryUnload(module->library);
    qn_host_unload(&module->host);
    free(module);
}

/* Needs the lock. */
static void remove_module(struct quern_context *ctx, struct qn_module *module)
{
    struct qn_module **at = &ctx->modules;

    while (*at != module)
        at = &(*at)->next;
    *at = module->next;
}

/* The driver copies the cubin. Needs no current context. */
static int load_cubin(struct quern_context *ctx, struct qn_module *module,
                      const void *cubin)
{
    struct qn_driver *driver = ctx->driver;
    int code = QN_CU(driver, cuLibraryLoadData, &module->library, cubin, NULL,
                     NULL, 0, NULL, NULL, 0);

    if (code)
        module->library = NULL;
    else
        code = QN_CU(driver, cuLibraryGetKernel, &module->handle,
                     module->library, module->kernel->name);
    if (!code)
        qn_context_log(ctx, QUERN_LOG_DEBUG, "loaded %s", module->kernel->name);
    return code;
}

/* The row of the built-in registry of that name, or NULL. */
static const struct qn_kernel *find_builtin(const char *name)
{
    const struct quern_registry *builtin = &qn_registry_builtin;

    for (int i = 0; i < builtin->nkernels; i++)
        if (!strcmp(builtin->kernels[i].name, name))
            return &builtin->kernels[i];
    return NULL;
}

/* Linked with this kernel, or with the same one of the built-in registry,
   which a registry of the user's specs repeats without its function. */
static int find_function(struct quern_context *ctx,
                         const struct qn_candidate *candidate,
                         qn_host_function **out)
{
    const struct qn_kernel *builtin;
    const char *key;
    int code = QUERN_OK;

    *out = candidate->kernel->host;
    builtin = *out ? NULL : find_builtin(candidate->kernel->name);
    if (!builtin)
        return QUERN_OK;
    code = qn_generator_key(ctx, candidate, &key);
    if (!code && !strcmp(builtin->key, key))
        *out = builtin->host;
    return code;
}

/* Linked, else compiled for the user's specs. */
static int load_host(struct quern_context *ctx,
                     const struct qn_candidate *candidate,
                     struct qn_module *module)
{
    struct qn_cache_object object;
    int code = find_function(ctx, candidate, &module->function);

    if (code || module->function)
        return code;
    code = qn_jit_object(ctx, candidate, &object);
    if (!code)
        code = qn_host_load(module->kernel->name, object.data, object.bytes,
                            &module->host);
    module->function = module->host.function;
    free(object.data);
    return code;
}

/* By backend. */
static int load(struct quern_context *ctx, const struct qn_candidate *candidate,
                struct qn_module *module)
{
    struct qn_cache_object object;
    int code;

    if (module->backend == QUERN_BACKEND_HOST)
        return load_host(ctx, candidate, module);
    if (module->backend == QUERN_BACKEND_AOT)
        return load_cubin(ctx, module, module->kernel->cubin);
    code = qn_jit_object(ctx, candidate, &object);
    if (!code)
        code = load_cubin(ctx, module, object.data);
    free(object.data);
    return code;
}

/* Needs the lock. NULL if memory ran out. */
static struct qn_module *insert(struct quern_context *ctx,
                                const struct qn_kernel *kernel, int backend)
{
    struct qn_module *module = calloc(1, sizeof *module);

    if (!module)
        return NULL;
    module->kernel = kernel;
    module->backend = backend;
    module->loading = 1;
    module->host.file = -1;
    module->next = ctx->modules;
    ctx->modules = module;
    return module;
}

/* Load into a new module, without the lock; others wait for `changed`. */
static int load_new(struct quern_context *ctx,
                    const struct qn_candidate *candidate,
                    struct qn_module *module)
{
    int code = load(ctx, candidate, module);

    pthread_mutex_lock(&ctx->lock);
    module->loading = 0;
    module->rejected = code == QN_REJECTED;
    if (code && !module->rejected)
        remove_module(ctx, module);
    pthread_cond_broadcast(&ctx->changed);
    pthread_mutex_unlock(&ctx->lock);
    if (code && !module->rejected)
        unload(ctx, module);
    return code;
}

int qn_module_get(struct quern_context *ctx,
                  const struct qn_candidate *candidate, int backend,
                  struct qn_module **out)
{
    struct qn_module *module;

    pthread_mutex_lock(&ctx->lock);
    while ((module = find(ctx, candidate->kernel, backend)) && module->loading)
        pthread_cond_wait(&ctx->changed, &ctx->lock);
    *out = module;
    if (!module)
        *out = insert(ctx, candidate->kernel, backend);
    pthread_mutex_unlock(&ctx->lock);
    if (!*out)
        return qn_error_memory();
    if (!module)
        return load_new(ctx, candidate, *out);
    if (module->rejected)
        return qn_error_set(QN_REJECTED,
                            "%s is not used, as before in this process",
                            module->kernel->name);
    return QUERN_OK;
}

int qn_module_known(struct quern_context *ctx, const struct qn_kernel *kernel,
                    int backend)
{
    const struct qn_module *module;
    int known;

    pthread_mutex_lock(&ctx->lock);
    module = find(ctx, kernel, backend);
    known = module && !module->loading;
    pthread_mutex_unlock(&ctx->lock);
    return known;
}

void qn_module_close_all(struct quern_context *ctx)
{
    while (ctx->modules) {
        struct qn_module *module = ctx->modules;

        ctx->modules = module->next;
        unload(ctx, module);
    }
}
