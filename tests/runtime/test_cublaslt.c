/* SPDX-License-Identifier: Apache-2.0 */
/* test_cublaslt.c: the backend cublaslt over a fake that computes from the
   descriptors only. */
#include "test_cublaslt.h"

#include "base/context.h"
#include "cublaslt/cublaslt.h"
#include "cublaslt/cublaslt_api.h"
#include "product/plan.h"

_Alignas(256) float test_memory[4][ELEMENTS];
_Alignas(256) char test_workspace[WORKSPACE];

const struct qn_plan_options test_options = {.backend = QUERN_BACKEND_CUBLASLT};

const struct form test_plain = {.recipe = "bf16",
                                .a_major = QUERN_MAJOR_K,
                                .b_major = QUERN_MAJOR_K,
                                .ragged = QUERN_AXIS_M,
                                .d_type = QUERN_BF16};

void test_prepare(struct quern_context *ctx, const struct form *f,
                  struct run *r)
{
    void *const data[] = {test_memory[0], test_memory[1], test_memory[3],
                          test_memory[2]};

    test_expect(exact_prepare(ctx, f, data, sizeof test_memory[0], r), QUERN_OK,
                "");
    r->args.alpha = f->alpha ? exact_alphas : NULL;
    r->args.beta = f->beta == QUERN_BETA_ANY ? exact_betas : NULL;
    r->args.host_sizes = f->ragged ? exact_sizes : NULL;
    r->args.workspace = test_workspace + 16; /* as loose as is allowed */
    exact_fill(r, EXACT_A, sizeof test_memory[0], 1);
    exact_fill(r, EXACT_B, sizeof test_memory[1], 2);
    exact_fill(r, EXACT_D, sizeof test_memory[2], 3);
    if (f->beta == QUERN_BETA_ANY)
        exact_fill(r, EXACT_C, sizeof test_memory[3], 4);
}

static void *run_often(void *user)
{
    struct test_thread *t = user;

    for (int i = 0; i < t->times; i++)
        t->failed |= qn_run(t->plan, &t->args, NULL);
    return NULL;
}

void test_run_threads(struct test_thread *threads, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(
            pthread_create(&threads[i].id, NULL, run_often, &threads[i]), 0);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].id, NULL);
        assert_int_equal(threads[i].failed, 0);
    }
}

/* The first bytes after the workspace. */
static char *behind(const struct qn_plan *plan, const struct run *r)
{
    struct quern_plan_info info;

    qn_plan_info(plan, &info);
    return (char *)r->args.workspace + info.workspace_bytes;
}

/* Run, over so many streams, and compare the whole buffer. */
static void try_form(struct quern_context *ctx, const struct form *f,
                     int streams)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_CUBLASLT,
                                            .streams = streams};
    static _Alignas(256) float want[ELEMENTS];
    static const char untouched[256]; /* the error record's size */
    struct qn_plan *plan;
    struct run r;

    test_prepare(ctx, f, &r);
    if (f->beta == QUERN_BETA_ZERO) /* D is not read: poison it */
        memset(test_memory[2], 0xFF, sizeof test_memory[2]);
    exact_refer(&r, want, sizeof want);
    test_expect(qn_plan(ctx, &r.p, &options, &plan), QUERN_OK, "");
    memset(behind(plan, &r), 0, sizeof untouched);
    test_expect(qn_run(plan, &r.args, NULL), QUERN_OK, "");
    test_expect(qn_check(plan, &r.args, NULL), QUERN_OK, "");
    assert_memory_equal(r.args.workspace, untouched, sizeof untouched);
    assert_memory_equal(behind(plan, &r), untouched, sizeof untouched);
    qn_plan_free(plan);
    assert_null(test_cublaslt->broken);
    if (memcmp(test_memory[2], want, sizeof want)) {
        char text[512];

        qn_problem_print(&r.p, text, sizeof text);
        print_error("%s alpha=%d beta=%d scalars=%d wide=%d streams=%d\n", text,
                    f->alpha, f->beta, f->scalars, f->wide, streams);
        fail();
    }
}

/* Layouts x ragged axes x types x scalars x gaps. */
TEST(multiplies_every_form)
{
    static const struct {
        const char *recipe;
        int d_type;
    } types[] = {{"bf16", QUERN_BF16},
                 {"bf16", QUERN_F32},
                 {"fp16", QUERN_F16},
                 {"fp16", QUERN_F32}};
    static const int scalars[][3] = {
        /* alpha, beta, how many */
        {0, QUERN_BETA_ZERO, 0},     {0, QUERN_BETA_ONE, 0},
        {0, QUERN_BETA_ANY, 0},      {0, QUERN_BETA_ANY, GROUPS},
        {1, QUERN_BETA_ZERO, 1},     {1, QUERN_BETA_ZERO, GROUPS},
        {1, QUERN_BETA_ONE, GROUPS}, {1, QUERN_BETA_ANY, 1},
        {1, QUERN_BETA_ANY, GROUPS},
    };
    struct quern_context *ctx = test_open();
    int forms = 0;

    for (int i = 0; i < 4 * 4 * 4 * 9 * 2; i++) {
        const int *scalar = scalars[i / 64 % 9];
        const struct form f = {
            .recipe = types[i / 16 % 4].recipe,
            .d_type = types[i / 16 % 4].d_type,
            .a_major = i & 1,
            .b_major = i >> 1 & 1,
            .ragged = i / 4 % 4,
            .alpha = scalar[0],
            .beta = scalar[1],
            .scalars = scalar[2],
            .wide = i / 576,
        };

        try_form(ctx, &f, 1);
        try_form(ctx, &f, 3);
        test_cublaslt->groups = 1; /* in one call, those that may */
        try_form(ctx, &f, 1);
        test_cublaslt->groups = 0;
        forms++;
    }
    assert_int_equal(forms, 1152);
    assert_int_equal(test_cublaslt->contexts, 0);
    assert_int_equal(test_count("cublaslt open"), 1);
    qn_close(ctx);
}

/* The real library accepts what the fake accepts: needs no GPU. */
TEST(agrees_with_the_real_one)
{
    const int32_t operation = LT_OP_T, batch = 5, sms = 100;
    const int64_t step = 1000;
    const uint64_t scratch = 1 << 25;
    const uint32_t small = 2;
    const int32_t modes[] = {LT_SCALE_VECTOR_32, LT_SCALE_OUTER_VECTOR,
                             LT_SCALE_VECTOR_128, LT_SCALE_BLOCK_128};
    struct qn_cublaslt *lt;
    struct lt_desc desc;
    struct lt_layout layout;
    struct lt_preference preference;

    if (qn_cublaslt_open(NULL, getenv("CUDA_HOME"), &lt))
        TEST_SKIP("libcublasLt.so.12 or .13");
    assert_memory_equal(lt->version, "cublasLt 1", 10);
#define TAKES(call, ...) assert_int_equal(lt->call(__VA_ARGS__), LT_SUCCESS)
    TAKES(cublasLtMatmulDescInit_internal, &desc, sizeof desc, LT_COMPUTE_32F,
          LT_R_32F);
    for (int i = LT_DESC_POINTER_MODE; i <= LT_DESC_TRANSB; i++)
        TAKES(cublasLtMatmulDescSetAttribute, &desc, i, &operation, 4);
    TAKES(cublasLtMatmulDescSetAttribute, &desc, LT_DESC_SM_COUNT_TARGET, &sms,
          4);
    for (int i = 0; i < 8 && lt->number >= 120900; i++)
        TAKES(cublasLtMatmulDescSetAttribute, &desc,
              LT_DESC_A_SCALE_MODE + i / 4, &modes[i % 4], 4);
    TAKES(cublasLtMatrixLayoutInit_internal, &layout, sizeof layout, LT_R_16BF,
          7, 9, 16);
    TAKES(cublasLtMatrixLayoutSetAttribute, &layout, LT_LAYOUT_BATCH_COUNT,
          &batch, 4);
    TAKES(cublasLtMatrixLayoutSetAttribute, &layout, LT_LAYOUT_BATCH_OFFSET,
          &step, 8);
    TAKES(cublasLtMatmulPreferenceInit_internal, &preference,
          sizeof preference);
    TAKES(cublasLtMatmulPreferenceSetAttribute, &preference,
          LT_PREFER_WORKSPACE_BYTES, &scratch, 8);
    TAKES(cublasLtMatmulPreferenceSetAttribute, &preference,
          LT_PREFER_REDUCTIONS, &small, 4);
    for (int i = 0; i < 4; i++)
        TAKES(cublasLtMatmulPreferenceSetAttribute, &preference,
              LT_PREFER_ALIGNMENT_A + i, &small, 4);
    for (int i = 0; lt->cublasLtGroupedMatrixLayoutInit_internal && i < 3; i++)
        TAKES(cublasLtMatmulPreferenceSetAttribute, &preference,
              LT_PREFER_AVERAGE_K + i, &small, 4);
    if (lt->cublasLtGroupedMatrixLayoutInit_internal)
        TAKES(cublasLtGroupedMatrixLayoutInit_internal, &layout, sizeof layout,
              LT_R_16BF, 5, &sms, &sms, &sms);
#undef TAKES
    qn_cublaslt_close(lt);
}
