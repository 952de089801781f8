/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_compile.c: every kernel that the specs express for a GPU, through NVRTC
** for its architecture. No GPU is needed.
**
** A kernel passes if it compiles from its text (no #include), does not spill,
** has no serialized wgmma (C7510 to C7514), fits into registers and shared
** memory, and if its entry symbol is its name in the registry. A point of a
** grid that breaks a rule belongs into a `reject` of its spec. Kernels
** whose texts differ by their names only are compiled once: the others have the
** first one's figures, and 0 seconds.
**
** Run: build/bin/test_compile      needs libnvrtc; else skipped
**   QUERN_COMPILE_EVERY     N: of the kernels that are not shipped, every N-th
**                           (71); how many were left out is printed
**   QUERN_COMPILE_ARCH      only kernels of the tree for these, as
**                           sm_100f,sm_120a
**   QUERN_COMPILE_JSON      write a row for each kernel compiled to this file
**   QUERN_SHARE             as share.h says; a kernel of each template is of
**                           share 0, which `make test` runs
**
** bench/results/compile_gate.json has a row of every kernel. It comes from one
** process for each core, each with its share:
**
**   tests/compile/gate.py bench/results/compile_gate.json
*/
#include "cases.h"
#include "report.h"
#include "share.h"
#include "table.h"
#include "twins.h"

#include <stdio.h>
#include <time.h>

#include "oracle/cubin.h"
#include "gen.h"
#include "device/nvrtc.h"

static struct qn_nvrtc *compiler;
static struct qg *generator;
static const struct quern_registry *registry;
static struct table *table; /* NULL: none is wanted */

/* Two minutes of one core; a prime, as kernels come in threes and fours. */
enum { EVERY = 71 };

static int open_all(void **state)
{
    (void)state;
    qn_nvrtc_open(getenv("QUERN_NVRTC"), getenv("CUDA_HOME"), 0, &compiler);
    if (!compiler) /* the runner shows the reason */
        print_message("skip: %s\n", quern_errmsg());
    if (qg_open(NULL, 0, &generator)) {
        print_error("%s\n", generator ? qg_diagnostics(generator) : "memory");
        return -1;
    }
    registry = qg_registry(generator);
    if (!compiler || !getenv("QUERN_COMPILE_JSON"))
        return 0;
    table = table_open(getenv("QUERN_COMPILE_JSON"), qn_nvrtc_version(compiler),
                       qn_nvrtc_options());
    if (!table)
        print_error("%s cannot be written\n", getenv("QUERN_COMPILE_JSON"));
    return table ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    qg_close(generator);
    qn_nvrtc_close(compiler);
    return table_close(table);
}

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Profilers show the symbol: it must be the registry's name. The cubin's
   figures are those of ptxas. */
static const char *judge_cubin(const struct qn_compiled *compiled,
                               const struct report *report,
                               const struct qn_kernel *kernel)
{
    struct qn_cubin cubin;

    if (qn_cubin_read(compiled->object, compiled->bytes, &cubin))
        return "its cubin does not hold one kernel";
    if (strcmp(cubin.name, kernel->name))
        return "its symbol is not its name";
    if (cubin.registers != report->registers || cubin.stack != report->stack)
        return "cubin and ptxas disagree about registers or stack";
    return NULL;
}

/* The first rule that the compiled kernel breaks, NULL if none. */
static const char *judge(const struct qn_compiled *compiled, int code,
                         const struct report *report,
                         const struct qn_kernel *kernel)
{
    const char *broken;

    if (code && !compiled->rejected)
        return "it does not compile";
    broken = report_broken(report, kernel->threads, kernel->smem);
    if (broken)
        return broken;
    if (code)
        return "the runtime refuses it";
    return judge_cubin(compiled, report, kernel);
}

/* A kernel whose twin was compiled; returns 1 if it keeps the rules of its own
   launch. */
static int take_twin(const struct qn_kernel *kernel,
                     const struct report *report)
{
    const char *broken = report_broken(report, kernel->threads, kernel->smem);

    table_add(table, kernel, report, 0, broken);
    if (broken)
        print_error("%s: %s: %s\n", kernel->spec, kernel->name, broken);
    return !broken;
}

/* Compile one kernel; returns 1 if it keeps every rule, else says why not. */
static int compile_one(const struct qn_kernel *kernel)
{
    struct qn_compiled compiled;
    struct report report;
    const struct report *twin;
    const char *source, *broken;
    /* of one core, the code that else uses the machine */
    double begin = now(CLOCK_PROCESS_CPUTIME_ID), seconds;
    uint64_t number;
    size_t length;
    int code;

    if (qg_source(generator, kernel->name, &source, &length)) {
        print_error("%s\n", qg_diagnostics(generator));
        return 0;
    }
    if (strstr(source, "#include")) {
        print_error("%s: has an #include\n", kernel->name);
        return 0;
    }
    number = twins_number(kernel, source);
    twin = twins_find(number);
    if (twin)
        return take_twin(kernel, twin);
    code = qn_nvrtc_compile(compiler, kernel->name, source, kernel->arch,
                            &compiled);
    seconds = now(CLOCK_PROCESS_CPUTIME_ID) - begin;
    report_read(compiled.log ? compiled.log : "", &report);
    broken = judge(&compiled, code, &report, kernel);
    print_message("  %.2f s  %3d registers  %6d bytes shared  %s\n", seconds,
                  report.registers, report.shared + kernel->smem, kernel->name);
    table_add(table, kernel, &report, seconds, broken);
    if (broken)
        print_error("%s: %s: %s\n%s\n", kernel->spec, kernel->name, broken,
                    compiled.log ? compiled.log : quern_errmsg());
    else
        twins_add(number, &report);
    qn_nvrtc_free(&compiled);
    return !broken;
}

/* The kernel's case: those of one text are of one share if all are compiled. */
static int case_of(const struct qn_kernel *kernel, int number, int every)
{
    const char *source;
    size_t length;

    if (every > 1 || qg_source(generator, kernel->name, &source, &length))
        return number / every;
    return (int)(twins_number(kernel, source) >> 33);
}

/* Is it asked for? */
static int is_wanted(const struct qn_kernel *kernel)
{
    const char *archs = getenv("QUERN_COMPILE_ARCH");
    const size_t length = strlen(kernel->arch);

    for (const char *at = archs; at && (at = strstr(at, kernel->arch)); at++)
        if ((at == archs || at[-1] == ',') &&
            (!at[length] || at[length] == ','))
            return 1;
    return !archs;
}

/* Those that are shipped or those that are not, every so many of them. */
static void compile_all(int shipped, int every)
{
    int number = 0, good = 0, bad = 0;
    double begin = now(CLOCK_MONOTONIC);

    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];

        if (strncmp(kernel->arch, "sm_", 3) || kernel->shipped != shipped ||
            !is_wanted(kernel))
            continue;
        if (number++ % every || !share_has(case_of(kernel, number - 1, every)))
            continue;
        if (compile_one(kernel))
            good++;
        else
            bad++;
    }
    print_message("  %d kernels compiled in %.1f s, %d broken\n", good + bad,
                  now(CLOCK_MONOTONIC) - begin, bad);
    if (every > 1)
        print_message("left out: of %d kernels that are not shipped, all but "
                      "one in %d; tests/compile/gate.py compiles all\n",
                      number, every);
    assert_int_equal(bad, 0);
    /* A share may hold none of them: those of one text are of one share. */
    assert_true(number > 0 || getenv("QUERN_COMPILE_ARCH"));
}

TEST(shipped)
{
    if (!compiler)
        skip();
    compile_all(1, 1);
}

/* Casts of x from bf16: those that a recipe's fields shape the most. */
static int is_cast(const struct qn_kernel *kernel)
{
    return !strncmp(kernel->recipe, "test_", 5) &&
           !strcmp(kernel->arch, "sm_90a") && kernel->of == QN_X &&
           kernel->input == QUERN_BF16 && kernel->form == QN_PLAIN &&
           (kernel->op == QN_QUANTIZE || kernel->op == QN_AMAX ||
            kernel->op == QN_DEQUANTIZE);
}

/* Products that only mma.sync has, where the most registers are needed. */
static int is_product(const struct qn_kernel *kernel)
{
    return !strncmp(kernel->recipe, "test_", 5) &&
           !strcmp(kernel->arch, "sm_90a") && kernel->op == QUERN_DGRAD &&
           !strcmp(kernel->template_path, "sm80/gemm_scaled.cu") &&
           kernel->d.type == QUERN_F32;
}

static int is_strange(const struct qn_kernel *kernel)
{
    return is_cast(kernel) || is_product(kernel);
}

/* Kernels of the folder's own, as `takes` says. */
static void compile_own(const char *folder,
                        int (*takes)(const struct qn_kernel *), int least)
{
    struct qg *own = generator;
    struct table *rows = table;
    const struct quern_registry *strange;
    int number = 0, bad = 0;

    if (!compiler || getenv("QUERN_COMPILE_ARCH"))
        skip();
    if (qg_open(&folder, 1, &generator))
        fail_msg("%s", qg_diagnostics(generator));
    strange = qg_registry(generator);
    table = NULL; /* rows are of the tree's kernels */
    for (int i = 0; i < strange->nkernels; i++)
        if (takes(&strange->kernels[i]) && share_has(number++))
            bad += !compile_one(&strange->kernels[i]);
    qg_close(generator);
    generator = own;
    table = rows;
    assert_int_equal(bad, 0);
    assert_true(number > least);
}

/* Recipes as users write them, whose fields no recipe of the tree's has. */
TEST(strangers)
{
    compile_own("tests/host/specs", is_strange, 20);
}

static int is_own_tile(const struct qn_kernel *kernel)
{
    return !strncmp(kernel->spec, "examples/", 9) &&
           kernel->op == QUERN_FPROP && !strcmp(kernel->recipe, "bf16");
}

/* A tile that a user adds to a grid. */
TEST(own_tile)
{
    compile_own("examples/own_tile", is_own_tile, 8);
}

/* How new a kernel is among those before it. */
enum { KNOWN, NEW_COMBINATION, NEW_TEMPLATE };

/* A combination is of template, op and architecture. */
static int novelty(int i)
{
    const struct qn_kernel *kernel = &registry->kernels[i];
    int new = NEW_TEMPLATE;

    for (int j = 0; j < i; j++) {
        const struct qn_kernel *other = &registry->kernels[j];

        if (strcmp(other->template_path, kernel->template_path))
            continue;
        if (other->op == kernel->op && !strcmp(other->arch, kernel->arch))
            return KNOWN;
        new = NEW_COMBINATION;
    }
    return new;
}

/* One kernel of each template, op and architecture at least, so that a template
   that does not compile is seen even if others are left out above; the first of
   each template in any `make test`. */
TEST(each_template)
{
    struct table *rows = table;
    int templates = 0, others = 0, bad = 0;

    if (!compiler || getenv("QUERN_COMPILE_ARCH"))
        skip();
    table = NULL; /* rows are of the tests above */
    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];
        const int new = strncmp(kernel->arch, "sm_", 3) ? KNOWN : novelty(i);

        if (new == NEW_TEMPLATE)
            templates++;
        if (new == NEW_TEMPLATE ? share_has_first()
                                : new != KNOWN && share_has(others++))
            bad += !compile_one(kernel);
    }
    table = rows;
    assert_int_equal(bad, 0);
    assert_true(templates > 20);
    assert_true(others > 50);
}

TEST(expressible)
{
    const char *given = getenv("QUERN_COMPILE_EVERY");
    const int every = given ? atoi(given) : EVERY;

    if (!compiler)
        skip();
    if (every < 1)
        fail_msg("QUERN_COMPILE_EVERY is '%s'; it must be at least 1", given);
    compile_all(0, every);
}

/* ----------------------------------------------- the gate catches offenders */

/* An array that is indexed at run time lives on the stack. */
static const char stack_source[] =
    "extern \"C\" __global__ void k(float *p, int i) {\n"
    "  float v[200];\n"
    "  for (int j = 0; j < 200; j++) v[j] = p[j];\n"
    "  for (int j = 0; j < 200; j++) v[(j * i) % 200] += p[j + i];\n"
    "  p[0] = v[i];\n"
    "}\n";

/* 232 values alive at once, and 64 registers to hold them. */
static const char spill_source[] =
    "extern \"C\" __global__ void __launch_bounds__(1024, 1) k(float *p) {\n"
    "  float v[232];\n"
    "#pragma unroll\n"
    "  for (int j = 0; j < 232; j++) v[j] = p[j * 32 + threadIdx.x];\n"
    "  __syncthreads();\n"
    "#pragma unroll\n"
    "  for (int j = 0; j < 232; j++) p[j * 32] = v[j] * v[(j + 116) % 232];\n"
    "}\n";

/* The accumulator is read while the product that writes it is in flight. */
static const char serialized_source[] =
    "#define W(i) asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16\"\\\n"
    " \".f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\" \\\n"
    " : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) \\\n"
    " : \"l\"(a + i), \"l\"(b + i))\n"
    "extern \"C\" __global__ void k(float *p, long long a, long long b) {\n"
    "  float d[4] = {0, 0, 0, 0};\n"
    "  asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
    "  W(0);\n"
    "  asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n"
    "  d[0] += p[1];\n"
    "  W(8);\n"
    "  asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n"
    "  asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
    "  p[threadIdx.x] = d[0] + d[1] + d[2] + d[3];\n"
    "}\n";

static const char plain_source[] =
    "extern \"C\" __global__ void k(float *p) { p[threadIdx.x] = 1; }\n";

/* `expected` NULL: the source keeps every rule. */
struct offender {
    const char *source, *name;
    int threads, smem;
    const char *expected;
};

static const struct offender offenders[] = {
    {plain_source, "k", 128, 1000, NULL},
    {"int x = ;", "k", 128, 0, "it does not compile"},
    {stack_source, "k", 128, 0, "it spills registers"},
    {spill_source, "k", 1024, 0, "it spills registers"},
    {serialized_source, "k", 128, 0, "ptxas serialized its wgmma"},
    {plain_source, "k", 128, 232448, NULL},
    {plain_source, "k", 128, 232449,
     "it needs more than 232448 bytes of shared memory"},
    {plain_source, "k", 16384, 0,
     "it needs more registers than its threads can have"},
    {plain_source, "quern_k", 128, 0, "its symbol is not its name"},
};

static void expect_rule(const struct offender *o)
{
    struct qn_kernel kernel = {.name = o->name};
    struct qn_compiled compiled;
    struct report report;
    const char *broken;
    int code;

    kernel.threads = o->threads;
    kernel.smem = o->smem;
    code = qn_nvrtc_compile(compiler, o->name, o->source, "sm_90a", &compiled);
    report_read(compiled.log ? compiled.log : "", &report);
    broken = judge(&compiled, code, &report, &kernel);
    if (!broken != !o->expected || (broken && strcmp(broken, o->expected)))
        fail_msg("expected '%s', got '%s'\n%s",
                 o->expected ? o->expected : "nothing",
                 broken ? broken : "nothing", compiled.log);
    qn_nvrtc_free(&compiled);
}

/* The gate itself, with a source for each of its rules. */
TEST(gate)
{
    if (!compiler)
        skip();
    for (size_t i = 0; i < sizeof offenders / sizeof offenders[0]; i++)
        expect_rule(&offenders[i]);
}

/* Names are symbols, file names and keys at once: no two alike. */
TEST(names)
{
    for (int i = 0; i < registry->nkernels; i++) {
        const char *name = registry->kernels[i].name;

        assert_int_equal(strncmp(name, "quern_", 6), 0);
        assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_"),
                         strlen(name));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, registry->kernels[j].name);
    }
}

static uint64_t number_of(const char *name)
{
    const struct qn_kernel *kernel = NULL;
    const char *source;
    size_t length;

    for (int i = 0; i < registry->nkernels; i++)
        if (!strcmp(registry->kernels[i].name, name))
            kernel = &registry->kernels[i];
    assert_non_null(kernel);
    assert_int_equal(qg_source(generator, name, &source, &length), 0);
    return twins_number(kernel, source);
}

/* fprop and dgrad of the same operands; another tile, another architecture. */
TEST(same_texts)
{
    const uint64_t fprop =
        number_of("quern_bf16_fprop_tn_m_bf16_sm100f_tile128x128x64");

    assert_true(fprop ==
                number_of("quern_bf16_dgrad_tn_m_bf16_sm100f_tile128x128x64"));
    assert_true(fprop !=
                number_of("quern_bf16_fprop_tn_m_bf16_sm100f_tile64x128x64"));
    assert_true(number_of("quern_bf16_fprop_tn_m_bf16_scale_sm80_"
                          "tile128x128x32") !=
                number_of("quern_bf16_fprop_tn_m_bf16_scale_sm120a_"
                          "tile128x128x32"));
}

TEST_MAIN("compile", open_all, close_all)
