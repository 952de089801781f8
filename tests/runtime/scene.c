/* SPDX-License-Identifier: Apache-2.0 */
/* scene.c: a program that calls every function of the library. */
#include "scene.h"
#include "device/check.h"
#include "quantize/quantize_plan.h"

#include <dirent.h>
#include <string.h>

#define PROBLEM  "fprop bf16 g=3 m=40 n=32 k=16"
#define HOST     PROBLEM " sizes=host"
#define CAST     "quantize group of=dy g=3 m=200 k=96 dbias=1"
#define PRODUCTS "wgrad bf16 g=3 m=16 n=8 k=40 alpha=any beta=any"
#define BATCH    "wgrad bf16 g=3 m=16 n=8 k=40 ragged=none"

const struct scene test_scenes[] = {
    {"jit", QUERN_BACKEND_JIT, 0, CAST, PROBLEM, NULL},
    {"jit without a cache", QUERN_BACKEND_JIT, 0, CAST, PROBLEM, ""},
    {"aot", QUERN_BACKEND_AOT, 1, CAST, PROBLEM, NULL},
    {"auto", QUERN_BACKEND_AUTO, 1, CAST, PROBLEM, NULL},
    {"host", QUERN_BACKEND_HOST, 0, CAST, PROBLEM, NULL},
    {"cublaslt", QUERN_BACKEND_CUBLASLT, 0, NULL, PRODUCTS, NULL},
    {"cublaslt, one batch", QUERN_BACKEND_CUBLASLT, 0, NULL, BATCH, NULL},
    {"jit, sizes on the host", QUERN_BACKEND_JIT, 0, NULL, HOST, NULL},
    {"aot, sizes on the host", QUERN_BACKEND_AOT, 1, NULL, HOST, NULL},
};

const int test_scenes_count = sizeof test_scenes / sizeof test_scenes[0];

/* The built-in kernels for GPUs, linked with code. */
static const struct quern_registry *linked(void)
{
    static struct qn_kernel kernels[64];
    static char cubins[64][64];
    static struct quern_registry registry;
    const struct quern_registry *all = &qn_registry_builtin;

    if (registry.nkernels)
        return &registry;
    for (int i = 0; i < all->nkernels; i++) {
        if (!strcmp(all->kernels[i].arch, "host"))
            continue;
        snprintf(cubins[i], sizeof cubins[i], "cubin of %s.cu",
                 all->kernels[i].name);
        kernels[registry.nkernels] = all->kernels[i];
        kernels[registry.nkernels].cubin = cubins[i];
        kernels[registry.nkernels++].cubin_bytes = sizeof cubins[i];
    }
    registry.hash = "linked";
    registry.kernels = kernels;
    return &registry;
}

struct quern_open_options test_scene_options(const struct scene *scene)
{
    return (struct quern_open_options){
        .registry = scene->linked ? linked() : NULL,
        .cache = scene->cache,
    };
}

/* ------------------------------------------------------------------ memory */

enum { BYTES = 1 << 20, WORKSPACE = 34 << 20 };

/* Buffers of one thread; `used` counts those of one run. */
struct scene_memory {
    _Alignas(256) char data[BYTES];
    size_t used;
    char *workspace;
};

struct scene_memory *test_scene_memory(void)
{
    struct scene_memory *memory = aligned_alloc(256, sizeof *memory);

    assert_non_null(memory);
    memory->workspace = aligned_alloc(256, WORKSPACE);
    assert_non_null(memory->workspace);
    return memory;
}

void test_scene_memory_free(struct scene_memory *memory)
{
    free(memory->workspace);
    free(memory);
}

static void *take(struct scene_memory *memory, size_t bytes, int fill)
{
    void *data = memory->data + memory->used;

    memory->used += (bytes + 255) / 256 * 256;
    assert_true(memory->used <= BYTES);
    return memset(data, fill, bytes);
}

enum { UNTOUCHED = 0xA5 };

static int untouched(const void *data, size_t bytes)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < bytes; i++)
        if (byte[i] != UNTOUCHED)
            return 0;
    return 1;
}

/* --------------------------------------------------------------------- play */

_Thread_local char test_said[8192];

/* One run of a scene. */
struct play {
    const struct scene *scene;
    struct quern_context *ctx;
    struct scene_memory *memory;
    int retry, first; /* the first error */
    struct qn_plan_options options;
    struct qn_problem problem;
    struct qn_plan *plan;
    struct qn_args args;
    struct qn_quantization q;
    struct qn_quantize_plan *cast;
    struct qn_quantize_args cast_args;
};

/* 1 to make the call once more; what must hold after a failure is `holds`. */
static int again(struct play *play, int code, int holds)
{
    if (!code)
        return 0;
    if (!holds)
        print_error("%s: a failed call left something: %s\n", play->scene->name,
                    quern_errmsg());
    assert_true(holds);
    if (play->first) { /* even the next call fails */
        if (play->retry)
            print_error("%s: again: %s\n", play->scene->name, quern_errmsg());
        assert_int_equal(play->retry, 0);
        return 0;
    }
    play->first = code;
    snprintf(test_said, sizeof test_said, "%s", quern_errmsg());
    return play->retry;
}

#define CALL(call, holds)                                                      \
    do {                                                                       \
        int code_ = call;                                                      \
        if (again(play, code_, holds))                                         \
            code_ = call;                                                      \
        again(play, code_, holds);                                             \
        if (code_)                                                             \
            return code_;                                                      \
    } while (0)

/* Calls that need no machine. */
static int ask(struct play *play, struct qn_description *need)
{
    struct qn_problem *p = &play->problem, inferred;
    struct qn_contraction c = {
        .recipe = "bf16",
        .groups = 3,
        .a = {QUERN_BF16, 2, {40, 16}, 1, 0, 0, 1, 2},
        .b = {QUERN_BF16, 3, {3, 32, 16}, 0, 0, 0, 2, 3}};
    char line[512];

    CALL(qn_problem_parse(play->ctx, play->scene->problem, p), 1);
    assert_true(qn_problem_print(p, line, sizeof line) > 0);
    CALL(qn_infer(play->ctx, &c, &inferred), 1);
    assert_int_equal(inferred.m, 40);
    CALL(qn_problem_describe(play->ctx, p, need), 1);
    return QUERN_OK;
}

static void give(struct play *play, struct qn_tensor *tensor, int fill)
{
    if (tensor->bytes)
        tensor->data = take(play->memory, tensor->bytes, fill);
}

static void give_args(struct play *play, const struct qn_description *need)
{
    static const int64_t sizes[] = {10, 0, 25};
    static const float one = 1;
    const struct qn_problem *p = &play->problem;
    int32_t *lengths = take(play->memory, sizeof sizes, 0);

    play->args = need->args;
    give(play, &play->args.a, 0);
    give(play, &play->args.b, 0);
    give(play, &play->args.c, 0);
    give(play, &play->args.d, UNTOUCHED);
    play->args.alpha = p->alpha ? &one : NULL;
    play->args.beta = p->beta == QUERN_BETA_ANY ? &one : NULL;
    play->args.workspace = memset(play->memory->workspace, 0, 4096);
    for (int g = 0; g < 3; g++)
        lengths[g] = (int32_t)sizes[g];
    if (p->ragged == QUERN_AXIS_NONE)
        return;
    if (play->scene->backend == QUERN_BACKEND_CUBLASLT || p->sizes)
        play->args.host_sizes = sizes;
    else
        play->args.a.first_dims = lengths;
}

/* cuBLAS multiplies group after group: what it has written is written. */
static int all_untouched(const struct play *play)
{
    return play->scene->backend == QUERN_BACKEND_CUBLASLT ||
           untouched(play->args.d.data, play->args.d.bytes);
}

static int multiply(struct play *play)
{
    struct quern_plan_info info;
    struct qn_description need;
    char *why = NULL;
    int code = ask(play, &need);

    if (code)
        return code;
    CALL(qn_plan(play->ctx, &play->problem, &play->options, &play->plan),
         !play->plan);
    qn_plan_info(play->plan, &info);
    assert_true(info.sms > 0 && strlen(info.kernel) > 0);
    CALL(qn_why(play->ctx, &play->problem, &play->options, NULL, &why), !why);
    quern_free(why);
    give_args(play, &need);
    CALL(qn_run(play->plan, &play->args, NULL), all_untouched(play));
    CALL(qn_check(play->plan, &play->args, NULL), 1);
    return QUERN_OK;
}

static void give_cast(struct play *play,
                      const struct qn_quantize_description *need)
{
    struct qn_quantize_args *args = &play->cast_args;
    struct qn_tensor *const copies[] = {&args->row, &args->column};

    *args = need->args;
    give(play, &args->in, 0);
    for (int i = 0; i < 2; i++) {
        give(play, copies[i], UNTOUCHED);
        copies[i]->sf = take(play->memory, copies[i]->sf_bytes, UNTOUCHED);
    }
    args->dbias = take(play->memory, 3 * 96 * sizeof(float), UNTOUCHED);
    args->first_dims = take(play->memory, 3 * sizeof(int32_t), 0);
    args->workspace = memset(play->memory->workspace, 0, need->workspace_bytes);
}

static int copies_untouched(const struct play *play)
{
    const struct qn_quantize_args *args = &play->cast_args;

    return untouched(args->row.data, args->row.bytes) &&
           untouched(args->column.data, args->column.bytes) &&
           untouched(args->dbias, 3 * 96 * sizeof(float));
}

static int quantize(struct play *play)
{
    struct qn_quantize_description need;
    struct quern_plan_info info;
    char line[512], *why = NULL;

    CALL(qn_quantize_parse(play->ctx, play->scene->cast, &play->q), 1);
    assert_true(qn_quantize_print(&play->q, line, sizeof line) > 0);
    CALL(qn_quantize_needs(play->ctx, &play->q, &need), 1);
    CALL(qn_quantize_plan(play->ctx, &play->q, &play->options, &play->cast),
         !play->cast);
    qn_quantize_plan_info(play->cast, &info);
    assert_true(info.sms > 0 && strlen(info.kernel) > 0);
    CALL(qn_quantize_why(play->ctx, &play->q, &play->options, &why), !why);
    quern_free(why);
    give_cast(play, &need);
    CALL(qn_quantize_run(play->cast, &play->cast_args, NULL),
         copies_untouched(play));
    CALL(qn_check_record(play->cast->driver, play->cast->context,
                         play->cast_args.workspace, &play->cast_args.in,
                         "quern_check", NULL),
         1);
    return QUERN_OK;
}

int test_play_in(const struct scene *scene, int retry,
                 struct quern_context *ctx, struct scene_memory *memory)
{
    struct play play = {.scene = scene,
                        .ctx = ctx,
                        .memory = memory,
                        .retry = retry,
                        .options = {.backend = scene->backend}};
    int code;

    memory->used = 0;
    code = multiply(&play);
    if (!code && scene->cast)
        code = quantize(&play);
    qn_plan_free(play.plan);
    qn_quantize_plan_free(play.cast);
    assert_true(play.first || !code);
    return play.first;
}

static int open_files(void)
{
    DIR *list = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(list);
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

static int open_and_play(const struct scene *scene, int retry,
                         struct scene_memory *memory)
{
    const struct quern_open_options options = test_scene_options(scene);
    struct quern_context *ctx;
    int first = qn_open(&options, &ctx), code = first;

    snprintf(test_said, sizeof test_said, "%s", quern_errmsg());
    assert_true(!ctx == !!first);
    if (first && retry)
        code = qn_open(&options, &ctx);
    if (code) {
        assert_int_equal(retry, 0);
        return code;
    }
    code = test_play_in(scene, retry, ctx, memory);
    qn_close(ctx);
    return first ? first : code;
}

int test_play(const struct scene *scene, int retry)
{
    static struct scene_memory *memory;
    int files = open_files(), code;

    if (!memory)
        memory = test_scene_memory();
    code = open_and_play(scene, retry, memory);
    assert_int_equal(test_cuda->libraries, 0);
    assert_int_equal(test_cuda->depth, 0);
    assert_int_equal(test_cuda->primaries, 0);
    assert_int_equal(test_cublaslt->contexts, 0);
    assert_int_equal(open_files(), files);
    return code;
}
