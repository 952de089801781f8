/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_kernels.c: kernels in the GPU suite, on the interpreter: each shipped
** one for its GPU, one of each form of Hopper's and Blackwell's products, all
** epilogues in launches of their own, and some of others' specs.
*/
#include "cases.h"
#include "share.h"
#include "interpret.h"
#include "support/form.h"

#include <stdio.h>
#include <string.h>

#include "gen.h"

/* The GPU that an architecture is for, as the interpreter names it. */
static const char *device_of(const char *arch)
{
    static const char *const rows[][2] = {{"sm_80", "8.0"},
                                          {"sm_90a", "9.0"},
                                          {"sm_100f", "10.0"},
                                          {"sm_120a", "12.0"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i][0], arch))
            return rows[i][1];
    fail_msg("no GPU for %s", arch);
    return NULL;
}

struct tally {
    int kernels, problems, wrong;
};

/* `kernel` are the suite's options that name it. The families that run it; the
   number of the case seeds everything. */
static void run_suite(const char *kernel, const char *arch,
                      const char *families, int number, struct tally *tally)
{
    const struct interpret how = {device_of(arch), number, NULL, NULL};
    const char *counts;
    char command[512];
    int passed = 0, status;

    snprintf(command, sizeof command,
             "gpu_suite %s --family %s --quick --threads 1 --seed %d", kernel,
             interpret_families(kernel, families), number);
    status = interpret(&how, command);
    counts = strstr(interpret_output, " passed, 0 failed");
    while (counts && counts > interpret_output && counts[-1] != '\n')
        counts--;
    if (counts)
        sscanf(counts, "%d", &passed);
    tally->kernels++;
    tally->problems += passed;
    if (!status && passed)
        return;
    tally->wrong++;
    print_error("PTX_DEVICE=%s PTX_SEED=%d %s:\n%s\n", how.device, number,
                command, interpret_output);
}

static void run_kernel(const struct qn_kernel *k, const char *families,
                       int number, struct tally *tally)
{
    char only[256];

    snprintf(only, sizeof only, "--only %s", k->name);
    run_suite(only, k->arch, families, number, tally);
}

static void finish(const struct tally *tally)
{
    print_message("  %d kernels, %d problems, each with a seed of its own, "
                  "%d kernels wrong\n",
                  tally->kernels, tally->problems, tally->wrong);
    assert_int_equal(tally->wrong, 0);
}

static void run_each(int (*wanted)(const struct qn_kernel *),
                     const char *families)
{
    const struct quern_registry *r;
    struct tally tally = {0};
    struct qg *gen;
    int number = 0;

    interpret_need_compiler();
    assert_int_equal(qg_open(NULL, 0, &gen), 0);
    r = qg_registry(gen);
    for (int i = 0; i < r->nkernels; i++)
        if (wanted(&r->kernels[i]) && share_has(++number))
            run_kernel(&r->kernels[i], families, number, &tally);
    qg_close(gen);
    finish(&tally);
    assert_true(number > 0);
}

static int is_shipped(const struct qn_kernel *k)
{
    return k->shipped;
}

static int is_epilogue(const struct qn_kernel *k)
{
    return k->op == QN_EPILOGUE && strcmp(k->arch, "host");
}

TEST(shipped)
{
    run_each(is_shipped, "torture,many,tails,bad_sizes");
}

TEST(epilogues)
{
    run_each(is_epilogue, "epilogues");
}

TEST(each_form)
{
    const struct quern_registry *r;
    struct tally tally = {0};
    int forms = 0;
    struct qg *gen;

    interpret_need_compiler();
    assert_int_equal(qg_open(NULL, 0, &gen), 0);
    r = qg_registry(gen);
    for (int i = 0; i < r->nkernels; i++) {
        const struct qn_kernel *kernel = qt_form_take(r, i, forms);

        if (kernel && share_has(++forms))
            run_kernel(kernel, "torture,many", forms, &tally);
    }
    qg_close(gen);
    finish(&tally);
    assert_true(forms > 0);
}

/* Kernels of others' specs, unlike those of quern's: six bits with scales in
   tiles, squares, weights of four bits next to unquantized values, integers;
   and a tile of five slabs, each of half the columns. */
#define MIX  "--specs tests/host/specs --only quern_test_"
#define TILE "--specs examples/own_tile --only quern_bf16_dgrad_tn_m_"
static const char *const strangers[] = {
    MIX "mx6_dgrad_tn_m_bf16_sm90a_"
        "cooperative_tile128x256x64_cluster1x1_shared",
    MIX "mx6_dgrad_tn_m_bf16_sm90a_"
        "cooperative_tile64x256x64_cluster1x1_swapped",
    MIX "mx6_wgrad_tn_k_bf16_sm90a_"
        "cooperative_tile128x128x64_cluster1x1_registers",
    MIX "w4_dgrad_tn_m_bf16_sm90a_"
        "cooperative_tile64x256x64_cluster1x1_shared",
    MIX "w4_dgrad_tn_m_f32_sm90a_"
        "cooperative_tile64x256x64_cluster1x1_swapped",
    MIX "int8_dgrad_tn_m_bf16_sm90a_"
        "cooperative_tile128x128x128_cluster1x1",
    TILE "bf16_sm90a_cooperative_tile128x160x64_cluster2x1",
    TILE "f32_sm90a_pingpong_tile128x160x64_cluster1x2",
    MIX "mx6_fprop_tn_m_bf16_scale_sm120a_native_tile128x128x128",
    MIX "mx6_wgrad_tn_k_f32_scale_sm120a_native_tile64x128x128",
    MIX "square_tiles_fprop_tn_m_f32_scale_sm120a_native_tile128x128x128",
    MIX "square_plain_dgrad_tn_m_bf16_scale_sm120a_native_tile64x128x128",
    MIX "square_tiles_dgrad_tn_m_bf16_sm100f_tile64x128x128",
    MIX "square_tiles_wgrad_tn_k_f32_sm100f_tile128x64x128",
    MIX "square_plain_fprop_tn_m_bf16_sm100f_tile128x128x128"};

/* The architecture that is part of a name. */
static const char *arch_of(const char *name)
{
    return strstr(name, "sm120a")   ? "sm_120a"
           : strstr(name, "sm100f") ? "sm_100f"
                                    : "sm_90a";
}

TEST(specs_of_others)
{
    struct tally tally = {0};

    interpret_need_compiler();
    for (int i = 0; i < (int)(sizeof strangers / sizeof *strangers); i++)
        if (share_has(i + 1))
            run_suite(strangers[i], arch_of(strangers[i]), "torture,many,tails",
                      i + 1, &tally);
    finish(&tally);
}
