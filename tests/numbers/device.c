/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: the pieces as CUDA C: they compile, and give the bits of the
   host. */
#include "numbers.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>

#include "device/nvrtc.h"

/* ---------------------------------------------------------------- compiling */

static struct qn_nvrtc *compiler;

/* Skips the test without NVRTC; else every function below may use it. */
static struct qg *open_both(void)
{
    struct qg *gen = pieces_generator();

    assert_non_null(gen);
    qn_nvrtc_open(getenv("QUERN_NVRTC"), getenv("CUDA_HOME"), 0, &compiler);
    if (!compiler) {
        qg_close(gen);
        print_message("skip: %s\n", quern_errmsg());
        skip();
    }
    return gen;
}

static void close_both(struct qg *gen)
{
    qn_nvrtc_close(compiler);
    qg_close(gen);
}

/* Fails the test unless it compiles, without spills. */
static void compile(struct qg *gen, const struct qn_kernel *kernel,
                    struct qn_compiled *compiled)
{
    const char *source;
    size_t length;

    assert_int_equal(qg_source(gen, kernel->name, &source, &length), 0);
    if (qn_nvrtc_compile(compiler, kernel->name, source, kernel->arch,
                         compiled))
        fail_msg("%s:\n%s", kernel->name,
                 compiled->log ? compiled->log : quern_errmsg());
}

TEST(test_device_compiles)
{
    struct qg *gen = open_both();
    const struct quern_registry *registry = qg_registry(gen);
    int good = 0;

    for (int i = 0; i < registry->nkernels; i++) {
        struct qn_compiled compiled;

        if (strncmp(registry->kernels[i].arch, "sm_", 3))
            continue;
        compile(gen, &registry->kernels[i], &compiled);
        qn_nvrtc_free(&compiled);
        good++;
    }
    close_both(gen);
    assert_int_equal(good, 2 * PARTS - 1); /* DEQUANTIZE is for Hopper only */
}

/* ------------------------------------------------------------------ running */

typedef unsigned long long address; /* the driver's CUdeviceptr */

/* X(member, symbol, parameters): the part of the driver that is needed. */
#define DRIVER(X)                                                              \
    X(init, "cuInit", (unsigned))                                              \
    X(device, "cuDeviceGet", (int *, int))                                     \
    X(attribute, "cuDeviceGetAttribute", (int *, int, int))                    \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                      \
    X(current, "cuCtxSetCurrent", (void *))                                    \
    X(load, "cuModuleLoadData", (void **, const void *))                       \
    X(function, "cuModuleGetFunction", (void **, void *, const char *))        \
    X(allocate, "cuMemAlloc_v2", (address *, size_t))                          \
    X(release, "cuMemFree_v2", (address))                                      \
    X(upload, "cuMemcpyHtoD_v2", (address, const void *, size_t))              \
    X(download, "cuMemcpyDtoH_v2", (void *, address, size_t))                  \
    X(launch, "cuLaunchKernel",                                                \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
       unsigned, void *, void **, void **))

static struct {
#define MEMBER(member, symbol, parameters) int(*member) parameters;
    DRIVER(MEMBER)
#undef MEMBER
} cu;

enum { COUNT = 1 << 20, CC_MAJOR = 75 };

/* NULL, or the machine's missing part. */
static const char *open_driver(void)
{
    const char *path = getenv("QUERN_CUDA");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW), *context;
    int device, major;

    if (!library)
        return "needs an NVIDIA GPU of compute capability 9.0";
#define LOAD(member, symbol, parameters)                                       \
    *(void **)&cu.member = dlsym(library, symbol);                             \
    if (!cu.member)                                                            \
        return "needs a CUDA driver that has " symbol;
    DRIVER(LOAD)
#undef LOAD
    if (cu.init(0) || cu.device(&device, 0) ||
        cu.attribute(&major, CC_MAJOR, device) || major != 9)
        return "needs an NVIDIA GPU of compute capability 9.0";
    if (cu.retain(&context, device) || cu.current(context))
        return "needs a context on device 0";
    return NULL;
}

/* A piece's inputs and outputs for each element, in 32-bit words. */
struct signature {
    enum piece_part part;
    const char *name;
    int in, out;
    int floats; /* of the result: any NaN is as good as another */
};

static const struct signature pieces[] = {
    {NEAREST, "to_e4m3", 1, 1, 0},
    {NEAREST, "to_e5m2", 1, 1, 0},
    {NEAREST, "to_e2m3", 1, 1, 0},
    {NEAREST, "to_e3m2", 1, 1, 0},
    {NEAREST, "to_e2m1", 1, 1, 0},
    {NEAREST, "to_i8", 1, 1, 0},
    {NEAREST, "to_i4", 1, 1, 0},
    {NEAREST, "to_u4", 1, 1, 0},
    {NEAREST, "to_u8", 1, 1, 0},
    {NEAREST, "to_bf16", 1, 1, 0},
    {NEAREST, "to_f16", 1, 1, 0},
    {NEAREST, "to_e4m3_x2", 2, 1, 0},
    {NEAREST, "to_e5m2_x2", 2, 1, 0},
    {NEAREST, "to_e2m1_x2", 2, 1, 0},
    {NEAREST, "to_bf16_x2", 2, 1, 0},
    {NEAREST, "to_f16_x2", 2, 1, 0},
    {NEAREST, "e8m0_up", 1, 1, 0},
    {NEAREST, "e8m0_floor", 1, 1, 0},
    {CHANCE, "philox", 4, 4, 0},
    {CHANCE, "hadamard16", 16, 16, 1},
    {MATH, "sigmoid", 1, 1, 1},
    {MATH, "tanh", 1, 1, 1},
    {MATH, "fma", 3, 1, 1},
    {ACTIVATIONS, "swiglu", 2, 3, 1},
    {ACTIVATIONS, "situ", 2, 3, 1},
    {ACTIVATIONS, "geglu", 2, 3, 1},
    {ACTIVATIONS, "reglu", 2, 3, 1},
    {ACTIVATIONS, "squared_relu", 2, 3, 1},
    {ACTIVATIONS, "relu", 2, 3, 1},
    {ACTIVATIONS, "silu", 2, 3, 1},
    {ACTIVATIONS, "gelu", 2, 3, 1},
    {ACTIVATIONS, "gelu_tanh", 2, 3, 1},
    {ACTIVATIONS, "clamped_swiglu", 2, 3, 1},
    {CHANCE, "to_e4m3_stochastic", 1, 256, 0},
    {CHANCE, "to_e5m2_stochastic", 1, 256, 0},
    {CHANCE, "to_e2m3_stochastic", 1, 256, 0},
    {CHANCE, "to_e3m2_stochastic", 1, 256, 0},
    {CHANCE, "to_e2m1_stochastic", 1, 256, 0},
    {DEQUANTIZE, "dequantize_e4m3_e8m0", 2, 2, 0},
    {DEQUANTIZE, "dequantize_e5m2_e8m0", 2, 2, 0},
    {DEQUANTIZE, "dequantize_e2m3_e8m0", 2, 2, 0},
    {DEQUANTIZE, "dequantize_e3m2_e8m0", 2, 2, 0},
    {DEQUANTIZE, "dequantize_e2m1_e8m0", 2, 4, 0},
    {DEQUANTIZE, "dequantize_e2m1_apart_e8m0", 2, 4, 0},
    {DEQUANTIZE, "dequantize_e4m3_e4m3", 2, 2, 0},
    {DEQUANTIZE, "dequantize_e5m2_e4m3", 2, 2, 0},
    {DEQUANTIZE, "dequantize_e2m3_e4m3", 2, 2, 0},
    {DEQUANTIZE, "dequantize_e3m2_e4m3", 2, 2, 0},
    {DEQUANTIZE, "dequantize_e2m1_e4m3", 2, 4, 0},
    {DEQUANTIZE, "dequantize_e2m1_apart_e4m3", 2, 4, 0},
    {DEQUANTIZE, "dequantize_e4m3_f16", 3, 4, 0},
    {DEQUANTIZE, "integers_bf16", 3, 8, 0},
    {DEQUANTIZE, "integers_f16", 3, 8, 0},
    {DEQUANTIZE, "integers_f32", 3, 8, 0},
    {DEQUANTIZE, "integers_apart_bf16", 3, 8, 0},
    {DEQUANTIZE, "integers_apart_f16", 3, 8, 0},
    {DEQUANTIZE, "integers_apart_f32", 3, 8, 0},
    {DEQUANTIZE, "integers_byte_bf16", 3, 8, 0},
    {DEQUANTIZE, "integers_byte_f16", 3, 8, 0},
    {DEQUANTIZE, "integers_byte_f32", 3, 8, 0},
    {DEQUANTIZE, "dequantize_e2m1_byte_e8m0", 2, 4, 0},
    {DEQUANTIZE, "dequantize_e2m1_byte_e4m3", 2, 4, 0},
    {DEQUANTIZE, "twice_e2m1_byte", 2, 4, 0},
    {DEQUANTIZE, "low_e2m1_byte", 2, 4, 0},
    {DEQUANTIZE, "e4m3_wide", 2, 2, 0},
    {DEQUANTIZE, "sampled_f16", 2, 7, 0},
    {DEQUANTIZE, "rebase_e2m1", 3, 6, 0},
    {DEQUANTIZE, "twice_e4m3", 2, 2, 0},
    {DEQUANTIZE, "twice_e5m2", 2, 2, 0},
    {DEQUANTIZE, "twice_e2m3", 2, 2, 0},
    {DEQUANTIZE, "twice_e3m2", 2, 2, 0},
    {DEQUANTIZE, "twice_e2m1", 2, 4, 0},
    {DEQUANTIZE, "twice_e2m1_apart", 2, 4, 0},
    {DEQUANTIZE, "low_e2m1_apart", 2, 4, 0},
    {DEQUANTIZE, "beyond_apart", 1, 1, 0},
    {DEQUANTIZE, "integers_short_bf16", 3, 8, 0},
    {DEQUANTIZE, "integers_half_bf16", 3, 8, 0},
    {DEQUANTIZE, "integers_half_f16", 3, 8, 0},
    {DEQUANTIZE, "integers_half_f32", 3, 8, 0},
    {DEQUANTIZE, "half_e4m3_e8m0", 2, 2, 0},
    {DEQUANTIZE, "half_e4m3_e4m3", 2, 2, 0},
    {DEQUANTIZE, "half_e2m1_e8m0", 2, 4, 0},
    {DEQUANTIZE, "half_e2m1_e4m3", 2, 4, 0},
    {DEQUANTIZE, "half_twice_e8m0", 2, 4, 0},
    {DEQUANTIZE, "half_twice_e4m3", 2, 4, 0},
    {DEQUANTIZE, "codes_apart", 2, 2, 0},
    {DEQUANTIZE, "pairs_apart", 4, 4, 0},
};

/* The kernel each_NAME over `count` elements; 0 if every call succeeded. */
static int run_on_device(void *module, const struct signature *s,
                         const uint32_t *in, uint32_t *out, long count)
{
    size_t in_bytes = 4 * (size_t)count * (size_t)s->in;
    size_t out_bytes = 4 * (size_t)count * (size_t)s->out;
    address from = 0, to = 0;
    void *arguments[] = {&from, &to, &count}, *function;
    char name[64];
    int failed;

    snprintf(name, sizeof name, "each_%s", s->name);
    failed =
        cu.function(&function, module, name) || cu.allocate(&from, in_bytes) ||
        cu.allocate(&to, out_bytes) || cu.upload(from, in, in_bytes) ||
        cu.launch(function, 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL) ||
        cu.download(out, to, out_bytes);
    if (from)
        cu.release(from);
    if (to)
        cu.release(to);
    return failed;
}

/* All kinds of bits; and every second time numbers of ordinary size. */
static void fill(uint32_t *in, size_t words, int ordinary)
{
    for (size_t i = 0; i < words; i++) {
        in[i] = (uint32_t)rand() << 1 ^ (uint32_t)rand();
        if (ordinary) /* 2^-20 to 2^11 */
            in[i] = (in[i] & 0x80FFFFFF) | (107 + in[i] % 31) << 23;
    }
}

static void compare(const struct signature *s, const uint32_t *got,
                    const uint32_t *expected, size_t words)
{
    for (size_t i = 0; i < words; i++)
        if (got[i] != expected[i] && !(s->floats && isnan(float_from(got[i])) &&
                                       isnan(float_from(expected[i]))))
            fail_msg("%s, word %zu: %08x on the device, %08x on the host",
                     s->name, i, got[i], expected[i]);
}

static void check_piece(void *module, const struct signature *s)
{
    long count = COUNT / (s->in > s->out ? s->in : s->out);
    size_t in_words = (size_t)(count * s->in);
    size_t out_words = (size_t)(count * s->out);
    uint32_t *in = malloc(4 * in_words), *host = malloc(4 * out_words);
    uint32_t *device = malloc(4 * out_words);

    assert_true(in && host && device);
    for (int round = 0; round < 8; round++) {
        fill(in, in_words, round % 2);
        piece(s->part, s->name)(in, host, count);
        if (run_on_device(module, s, in, device, count))
            fail_msg("%s: the driver reports an error", s->name);
        compare(s, device, host, out_words);
    }
    free(in);
    free(host);
    free(device);
}

/* The kernel of a part for sm_90a; its name ends with the part's. */
static void *load_part(struct qg *gen, enum piece_part part)
{
    static const char *const parts[] = {"nearest", "chance", "math",
                                        "activations", "dequantize"};
    const struct quern_registry *registry = qg_registry(gen);
    struct qn_compiled compiled;
    void *module = NULL;

    for (int i = 0; i < registry->nkernels && !module; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];

        if (strcmp(kernel->arch, "sm_90a") ||
            !strstr(kernel->name, parts[part]))
            continue;
        compile(gen, kernel, &compiled);
        assert_int_equal(cu.load(&module, compiled.object), 0);
        qn_nvrtc_free(&compiled);
    }
    assert_non_null(module);
    return module;
}

TEST(test_device_same_bits)
{
    const char *missing = open_driver();
    void *modules[PARTS];
    struct qg *gen;

    if (missing) {
        print_message("skip: %s\n", missing);
        skip();
    }
    gen = open_both();
    srand(5);
    for (int part = 0; part < PARTS; part++)
        modules[part] = load_part(gen, (enum piece_part)part);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        check_piece(modules[pieces[i].part], &pieces[i]);
    close_both(gen);
}
