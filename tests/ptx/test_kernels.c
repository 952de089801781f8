/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_kernels.c: kernels in the GPU suite, on the interpreter: each shipped
** one for its GPU, and one of each form of Hopper's products.
*/
#include "cases.h"
#include "share.h"
#include "interpret.h"

#include <stdio.h>
#include <string.h>

#include "gen.h"
#include "base/types.h"

enum { FORM_TILES = 8 };

static const struct qn_recipe *recipe_of(const struct quern_registry *r,
                                         const struct qn_kernel *kernel)
{
    for (int i = 0; i < r->nrecipes; i++)
        if (!strcmp(r->recipes[i].name, kernel->recipe))
            return &r->recipes[i];
    fail_msg("no recipe %s", kernel->recipe);
    return NULL;
}

/* Scales that come into the product alike. */
static int same_scaling(const struct qn_recipe *a, const struct qn_recipe *b)
{
    const struct qn_scaling *x = &a->scaling[QN_X], *y = &b->scaling[QN_X];
    const int whole = x->span == QN_SPAN_TENSOR || x->span == QN_SPAN_GROUP;

    if (a->scaled != b->scaled || !a->scaled)
        return a->scaled == b->scaled;
    if (a->promote != b->promote)
        return 0;
    return x->span == y->span ||
           (whole && (y->span == QN_SPAN_TENSOR || y->span == QN_SPAN_GROUP));
}

/* Alike but for names and the tile: op and recipe show in no line of code but
   by the scales, and of types only the bytes. */
static int same_form(const struct quern_registry *r, const struct qn_kernel *a,
                     const struct qn_kernel *b)
{
    if (strcmp(a->dequantize, "none")) /* the rest is as of others */
        return a->ragged == b->ragged && !strcmp(a->addend, b->addend) &&
               !strcmp(a->dequantize, b->dequantize);
    return !strcmp(a->template_path, b->template_path) &&
           a->ragged == b->ragged && !strcmp(a->quantize, b->quantize) &&
           a->epilogue == b->epilogue && a->a.major == b->a.major &&
           a->b.major == b->b.major &&
           qn_type_bits(a->d.type) == qn_type_bits(b->d.type) &&
           !strcmp(a->schedule, b->schedule) && !strcmp(a->addend, b->addend) &&
           a->microbatches == b->microbatches &&
           !strcmp(a->dequantize, b->dequantize) &&
           !memcmp(a->cluster, b->cluster, sizeof a->cluster) &&
           same_scaling(recipe_of(r, a), recipe_of(r, b));
}

/* One kernel of each form, whose tile is another from form to form; NULL where
   `i` is not the first of its form. */
static const struct qn_kernel *take_of_form(const struct quern_registry *r,
                                            int i, int turn)
{
    const struct qn_kernel *tiles[FORM_TILES], *of = &r->kernels[i];
    int count = 0;

    for (int j = 0; j < i; j++)
        if (same_form(r, of, &r->kernels[j]))
            return NULL;
    for (int j = i; j < r->nkernels && count < FORM_TILES; j++)
        if (same_form(r, of, &r->kernels[j]) && r->kernels[j].op == of->op &&
            !strcmp(of->recipe, r->kernels[j].recipe) &&
            of->d.type == r->kernels[j].d.type)
            tiles[count++] = &r->kernels[j];
    return tiles[turn % count];
}

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

/* Copies are bytes of values: their casts are those of the quantizations. */
static int is_product(const struct qn_kernel *k)
{
    return !strncmp(k->template_path, "sm90/gemm", 9) &&
           k->epilogue < QN_COPIES;
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
        const struct qn_kernel *kernel =
            is_product(&r->kernels[i]) ? take_of_form(r, i, forms) : NULL;

        if (kernel && share_has(++forms))
            run_kernel(kernel, "torture", forms, &tally);
    }
    finish(gen, &tally);
    assert_true(forms > 0);
}
