/* SPDX-License-Identifier: Apache-2.0 */
/* open.c: open and close a context: the only file that knows every part. */
#define _GNU_SOURCE
#include "base/context.h"
#include "base/error.h"
#include "base/file.h"
#include "base/guess.h"
#include "base/text.h"
#include "choose/trial.h"
#include "code/cache.h"
#include "code/generator.h"
#include "code/module.h"
#include "cublaslt/cublaslt.h"
#include "cublaslt/cublaslt_loop.h"
#include "device/library.h"
#include "device/nvrtc.h"
#include "tune/tune.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Set-user-id programs get nothing from the environment. */
static int read_environment(struct quern_context *ctx)
{
    const struct {
        char **field;
        const char *variable;
    } wanted[] = {
#define WANTED(field, variable) {&ctx->field, variable},
        QN_ENVIRONMENT(WANTED)
#undef WANTED
    };

    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const char *value = secure_getenv(wanted[i].variable);

        if (!value || !*value)
            continue;
        *wanted[i].field = qn_text_copy(value);
        if (!*wanted[i].field)
            return qn_error_memory();
    }
    return QUERN_OK;
}

/* The strings may be the caller's for the length of the call only. */
static int copy_specs(struct quern_context *ctx,
                      const struct quern_open_options *options)
{
    if (options->specs_count < 0 ||
        (options->specs_count > 0 && !options->specs))
        return qn_error_set(QUERN_EINVAL,
                            "specs_count is %d: specs must hold as many "
                            "folders",
                            options->specs_count);
    if (options->specs_count == 0)
        return QUERN_OK;
    ctx->specs = calloc((size_t)options->specs_count, sizeof *ctx->specs);
    if (!ctx->specs)
        return qn_error_memory();
    for (; ctx->nspecs < options->specs_count; ctx->nspecs++) {
        const char *folder = options->specs[ctx->nspecs];

        if (!folder)
            return qn_error_set(QUERN_EINVAL, "specs[%d] is NULL", ctx->nspecs);
        ctx->specs[ctx->nspecs] = qn_text_copy(folder);
        if (!ctx->specs[ctx->nspecs])
            return qn_error_memory();
    }
    return QUERN_OK;
}

/* The options' level, else the environment's. It only matters for a callback's
   messages: without a callback nothing is reported. */
static int choose_level(struct quern_context *ctx, int level)
{
    static const char *const names[] = {"error", "info", "debug"};
    struct qn_guess guess = {.word = ctx->log_wanted};
    char hint[64];

    if (level < 0 || level > QUERN_LOG_DEBUG)
        return qn_error_set(QUERN_EINVAL,
                            "options.log_level is %d: not a value of enum "
                            "quern_log_level",
                            level);
    ctx->log_level = level ? level : QUERN_LOG_INFO;
    if (level || !ctx->log_wanted)
        return QUERN_OK;
    for (int i = 0; i < 3; i++) {
        ctx->log_level = QUERN_LOG_ERROR + i;
        if (!strcmp(names[i], ctx->log_wanted))
            return QUERN_OK;
        qn_guess_try(&guess, names[i]);
    }
    return qn_error_set(
        QUERN_EINVAL, "QUERN_LOG=%s: error, info or debug is expected%s",
        ctx->log_wanted, qn_guess_text(&guess, hint, sizeof hint));
}

/* Folders stay where they are when the program goes elsewhere. */
static int choose_cache(struct quern_context *ctx, const char *given)
{
    char *usual = given ? NULL : qn_cache_default();

    ctx->cache_limit = QN_CACHE_LIMIT;
    if (ctx->cache_size &&
        !qn_cache_parse_size(ctx->cache_size, &ctx->cache_limit)) {
        free(usual);
        return qn_error_set(QUERN_EINVAL,
                            "QUERN_CACHE_SIZE=%s: a number of bytes is "
                            "expected, as 500M or 4G",
                            ctx->cache_size);
    }
    if (given || usual)
        ctx->cache_list = qn_file_list(given ? given : usual);
    free(usual);
    return ctx->cache_list ? QUERN_OK : qn_error_memory();
}

/* Data of another version would be misread. */
static int check_layout(const struct quern_registry *registry, int code,
                        const char *what)
{
    if (!registry || !registry->layout ||
        registry->layout == QN_REGISTRY_LAYOUT)
        return QUERN_OK;
    return qn_error_set(code,
                        "%s is of another version of quern than this library, "
                        "whose version is " QUERN_VERSION,
                        what);
}

/* The library of a folder that `quern build` wrote. COUPLED: loaded kernels */
static int load_kernels(struct quern_context *ctx)
{
    struct {
        const struct quern_registry *const *registry;
    } found;
    static const struct qn_library_symbol symbols[] = {
        {"quern_kernels_loaded", 0}};
    struct qn_text path = {0};
    const char *missing = NULL;

    qn_text_add(&path, "%s/libquern_kernels.so", ctx->archive);
    if (path.failed)
        return qn_error_memory();
    ctx->library = qn_library_open(path.data, 0);
    if (ctx->library)
        missing = qn_library_load(ctx->library, &found, symbols, 1);
    qn_text_free(&path);
    if (!ctx->library || missing)
        return qn_error_set(QUERN_EMISSING,
                            "QUERN_KERNELS=%s: a folder of quern build is "
                            "expected: %s%s",
                            ctx->archive, missing ? "its library has no " : "",
                            missing ? missing : qn_library_error());
    ctx->linked = *found.registry;
    return check_layout(ctx->linked, QUERN_EMISSING,
                        "QUERN_KERNELS, made by quern build,");
}

/* The log first, so that it hears of everything after. */
static int copy_options(struct quern_context *ctx,
                        const struct quern_open_options *options)
{
    int code = choose_level(ctx, options->log_level);

    if (!code)
        code = qn_trial_open(ctx);
    if (!code)
        code = check_layout(options->registry, QUERN_EINVAL,
                            "options.registry, made by quern build,");
    if (code)
        return code;
    ctx->log = options->log;
    ctx->log_user = options->log_user;
    ctx->linked = options->registry;
    if (!ctx->linked && ctx->archive)
        code = load_kernels(ctx);
    if (!code)
        code = choose_cache(ctx, options->cache);
    if (code)
        return code;
    return copy_specs(ctx, options);
}

/* A user's specs contain the embedded ones, so they replace them. */
static int choose_base(struct quern_context *ctx)
{
    int code;

    ctx->base = &qn_registry_builtin;
    code = check_layout(ctx->base, QUERN_EMISSING, "libquern.so");
    if (!code && ctx->nspecs) {
        code = qn_generator_open(ctx);
        if (!code)
            ctx->base = ctx->generator.registry(ctx->generator.qg);
        if (!code)
            code = check_layout(ctx->base, QUERN_EMISSING, "libquern_gen");
    }
    return code;
}

/* Could kernels of one read the tensors that those of the other make? */
static int is_same(const struct qn_recipe *a, const struct qn_recipe *b)
{
    const char *rule = a->rule ? a->rule : "", *other = b->rule ? b->rule : "";

    return a->x == b->x && a->w == b->w && a->dy == b->dy &&
           a->promote == b->promote && !strcmp(rule, other) &&
           !memcmp(a->scaling, b->scaling, sizeof a->scaling);
}

/* Kernels are found by their recipe's name: one with another meaning here
   would read data that ours does not write. */
static int check_recipes(const struct quern_context *ctx)
{
    for (int i = 0; ctx->linked && i < ctx->linked->nkernels; i++) {
        const char *name = ctx->linked->kernels[i].recipe;
        const struct qn_recipe *linked =
            qn_context_recipe_in(ctx->linked, name);
        const struct qn_recipe *ours = qn_context_recipe_in(ctx->base, name);

        if (linked && ours && !is_same(linked, ours))
            return qn_error_set(
                QUERN_EINVAL,
                "%s, made by quern build, has the recipe '%s' of %s, and %s "
                "another one, of %s: both must come from the same specs",
                ctx->library ? "QUERN_KERNELS" : "options.registry", name,
                linked->spec, ctx->nspecs ? "options.specs" : "this library",
                ours->spec);
    }
    return QUERN_OK;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The kernels of the base. One that was linked with its cubin hides the same
   one there; `names` has room for those of all linked ones. */
static void list_base(struct quern_context *ctx, int linked, const char **names)
{
    for (int i = 0; i < linked; i++)
        names[i] = ctx->linked->kernels[i].name;
    if (linked)
        qsort(names, (size_t)linked, sizeof *names, compare_names);
    for (int i = 0; i < ctx->base->nkernels; i++) {
        const struct qn_kernel *kernel = &ctx->base->kernels[i];

        if (!linked || !bsearch(&kernel->name, names, (size_t)linked,
                                sizeof *names, compare_names))
            ctx->kernels[ctx->nkernels++] =
                (struct qn_candidate){kernel, ctx->base};
    }
}

/* By op and recipe, else in the order of the list. */
static int compare_kernels(const void *left, const void *right, void *list)
{
    const struct qn_candidate *kernels = list;
    const int i = *(const int *)left, j = *(const int *)right;
    const struct qn_kernel *a = kernels[i].kernel, *b = kernels[j].kernel;
    const int order =
        a->op != b->op ? a->op - b->op : strcmp(a->recipe, b->recipe);

    return order ? order : i - j;
}

/* Linked kernels first, then those of the base that they do not hide. */
static int list_kernels(struct quern_context *ctx)
{
    int linked = ctx->linked ? ctx->linked->nkernels : 0;
    size_t count = (size_t)(linked + ctx->base->nkernels);
    const char **names = calloc((size_t)linked + 1, sizeof *names);

    ctx->kernels = calloc(count + 1, sizeof *ctx->kernels);
    ctx->order = calloc(count + 1, sizeof *ctx->order);
    if (!ctx->kernels || !ctx->order || !names) {
        free(names);
        return qn_error_memory();
    }
    for (int i = 0; i < linked; i++)
        ctx->kernels[ctx->nkernels++] =
            (struct qn_candidate){&ctx->linked->kernels[i], ctx->linked};
    list_base(ctx, linked, names);
    free(names);
    for (int i = 0; i < ctx->nkernels; i++)
        ctx->order[i] = i;
    qsort_r(ctx->order, (size_t)ctx->nkernels, sizeof *ctx->order,
            compare_kernels, ctx->kernels);
    return QUERN_OK;
}

int qn_open(const struct quern_open_options *options,
            struct quern_context **out)
{
    static const struct quern_open_options defaults;
    struct quern_context *ctx;
    int code;

    if (!out)
        return qn_error_set(QUERN_EINVAL, "ctx is NULL");
    *out = NULL;
    ctx = calloc(1, sizeof *ctx);
    if (!ctx || qn_context_mark(ctx)) {
        free(ctx);
        return qn_error_memory();
    }
    ctx->cublaslt = &qn_cublaslt_backend;
    ctx->measure = qn_tune_measure;
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_cond_init(&ctx->changed, NULL);
    pthread_mutex_init(&ctx->generator.lock, NULL);
    pthread_mutex_init(&ctx->trying, NULL);
    ctx->trial_seconds = QN_TRIAL_SECONDS;
    code = qn_tune_store_open(ctx, options ? options->tune : NULL);
    if (!code)
        code = read_environment(ctx);
    if (!code)
        code = copy_options(ctx, options ? options : &defaults);
    if (!code)
        code = choose_base(ctx);
    if (!code)
        code = check_recipes(ctx);
    if (!code)
        code = list_kernels(ctx);
    if (code) {
        qn_close(ctx);
        return code;
    }
    qn_context_log(ctx, QUERN_LOG_DEBUG,
                   "quern %s: %d kernels, %d of them linked by the program, "
                   "registry %.12s, cache '%s'",
                   QUERN_VERSION, ctx->nkernels,
                   ctx->linked ? ctx->linked->nkernels : 0, ctx->base->hash,
                   ctx->cache_list);
    *out = ctx;
    return qn_error_done(QUERN_OK);
}

void qn_close(struct quern_context *ctx)
{
    /* the parent's driver and locks are in no state that a child may touch */
    if (!ctx || !qn_context_here(ctx))
        return;
    qn_module_close_all(ctx);
    qn_trial_close(ctx);
    qn_driver_close(ctx->driver);
    qn_nvrtc_close(ctx->compiler);
    qn_cublaslt_close(ctx->products);
    qn_cache_close(ctx->disk);
    qn_generator_close(ctx);
    qn_tune_store_close(ctx);
    if (ctx->library)
        dlclose(ctx->library);
    for (int i = 0; i < ctx->nspecs; i++)
        free(ctx->specs[i]);
    free(ctx->specs);
    free(ctx->order);
    free(ctx->kernels);
    free(ctx->cache_list);
#define RELEASE(field, variable) free(ctx->field);
    QN_ENVIRONMENT(RELEASE)
#undef RELEASE
    pthread_mutex_destroy(&ctx->trying);
    pthread_mutex_destroy(&ctx->generator.lock);
    pthread_cond_destroy(&ctx->changed);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}
