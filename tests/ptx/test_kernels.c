/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_kernels.c: kernels in the GPU suite, on the interpreter: each shipped
** one for its GPU, and one of each form of Hopper's products.
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

/* The families that run it; the number of the case seeds everything. */
static void run_kernel(const struct qn_kernel *k, const char *families,
                       int number, struct tally *tally)
{
    const struct interpret how = {device_of(k->arch), number, NULL, NULL};
    const char *counts;
    char command[512];
    int passed = 0, status;

    snprintf(command, sizeof command,
             "gpu_suite --only %s --family %s --quick --threads 1 --seed %d",
             k->name, interpret_families(k->name, families), number);
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

static void finish(struct qg *gen, const struct tally *tally)
{
    qg_close(gen);
    print_message("  %d kernels, %d problems, each with a seed of its own, "
                  "%d kernels wrong\n",
                  tally->kernels, tally->problems, tally->wrong);
    assert_int_equal(tally->wrong, 0);
}

TEST(shipped)
{
    const struct quern_registry *r;
    struct tally tally = {0};
    struct qg *gen;
    int number = 0;

    interpret_need_compiler();
    assert_int_equal(qg_open(NULL, 0, &gen), 0);
    r = qg_registry(gen);
    for (int i = 0; i < r->nkernels; i++)
        if (r->kernels[i].shipped && share_has(++number))
            run_kernel(&r->kernels[i], "torture,tails,bad_sizes", number,
                       &tally);
    finish(gen, &tally);
    assert_true(number > 0);
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
            run_kernel(kernel, "torture", forms, &tally);
    }
    finish(gen, &tally);
    assert_true(forms > 0);
}
