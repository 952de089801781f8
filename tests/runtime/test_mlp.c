/* SPDX-License-Identifier: Apache-2.0 */
/* test_mlp.c: plans and runs of a grouped MLP: optional outputs, sizes from
   the host, queues and failures. Launches are in tests/launches. */
#include "test.h"
#include "problem/mlp.h"

#include "mlp_scene.h"

/* ------------------------------------------------------------------- tests */

static struct fixture begin(const char *recipe)
{
    return begin_with(recipe, "", &registry);
}

/* Whether forward and backward fuse, and why not. */

TEST(runs_on_its_stream)
{
    struct fixture f = begin("scaled");

    for (int i = 0; qn_mlp_phase_order[i] != QUERN_PHASE_WGRAD; i++) {
        test_cuda->launches = 0;
        test_expect(
            qn_mlp_run(f.plan, &f.args, qn_mlp_phase_order[i], (void *)256),
            QUERN_OK, "");
        assert_true(test_cuda->launches > 1);
        for (int j = 0; j < test_cuda->launches; j++)
            assert_ptr_equal(test_cuda->trail[j].stream, (void *)256);
    }
    end(&f);
}

TEST(explains_fusion)
{
    static const struct {
        const struct quern_registry *registry;
        const char *recipe, *part, *lacks;
    } rows[] = {
        {&with_fused, "plain", "  pre = x w1^T and h = activation(pre)",
         "  h = activation(pre)"},
        {&registry, "plain", "  h in a launch after pre: no kernel serves",
         "x w1^T and h"},
        {&registry, "scaled", "  h in a launch after pre: no kernel serves",
         "x w1^T and h"},
        {&with_fused, "scaled", "copies=both\n    > scaled_fused",
         "  h = activation(pre)"},
    };

    for (int i = 0; i < 4; i++) {
        struct fixture f = begin_with(rows[i].recipe, "", rows[i].registry);
        struct qn_mlp mlp;
        char line[128], *text = NULL;

        snprintf(line, sizeof line, "mlp %s g=3 m=60 hidden=64 ffn=32 prob=1",
                 rows[i].recipe);
        test_expect(qn_mlp_parse(f.ctx, line, &mlp), QUERN_OK, "");
        test_expect(qn_mlp_why(f.ctx, &mlp, &test_aot, &text), QUERN_OK, "");
        assert_non_null(strstr(text, rows[i].part));
        assert_null(strstr(text, rows[i].lacks));
        quern_free(text);
        end(&f);
    }
}

/* Unwanted outputs are not launched. */
TEST(leaves_out)
{
    struct fixture f = begin("scaled");
    struct qn_mlp_args a = f.args;

    a.dx.data = a.dw1.data = NULL;
    test_expect(qn_mlp_run(f.plan, &a, QUERN_PHASE_BACKWARD, NULL), QUERN_OK,
                "");
    LAUNCHED("cast_dy", "dgrad", "cast_dpre", "dprob", "wgrad");
    a.dw1.data = f.args.dw1.data;
    a.dw2.data = NULL;
    test_expect(qn_mlp_run(f.plan, &a, QUERN_PHASE_WGRAD, NULL), QUERN_OK, "");
    LAUNCHED("wgrad");
    a.w1_row.data = a.w1_column.data = NULL;
    test_expect(qn_mlp_run(f.plan, &a, QUERN_PHASE_WEIGHTS, NULL), QUERN_OK,
                "");
    LAUNCHED("cast_w");
    a.dy.data = NULL; /* nothing is queued where anything is refused */
    test_expect(qn_mlp_run(f.plan, &a, QUERN_PHASE_BACKWARD, NULL),
                QUERN_EINVAL, "dy");
    assert_int_equal(test_cuda->launches, 0);
    end(&f);
}

TEST(refuses_options)
{
    const struct qn_plan_options named = {.kernel = "fprop"};
    const struct qn_plan_options loop = {.backend = QUERN_BACKEND_CUBLASLT};
    struct fixture f = begin("plain");
    struct qn_mlp_plan *plan;
    struct qn_mlp mlp;
    char *text;

    test_expect(qn_mlp_parse(f.ctx, "mlp plain g=1 m=1 hidden=8 ffn=8", &mlp),
                QUERN_OK, "");
    test_expect(qn_mlp_plan(f.ctx, &mlp, &named, &plan), QUERN_EINVAL,
                "none is to be named");
    test_expect(qn_mlp_plan(f.ctx, &mlp, &loop, &plan), QUERN_EINVAL,
                "quantizes nothing");
    test_expect(qn_mlp_why(f.ctx, &mlp, NULL, &text), QUERN_OK, "");
    assert_non_null(strstr(text, "pre = x w1^T"));
    assert_non_null(strstr(text, "> plain_fprop"));
    quern_free(text);
    strcpy(mlp.recipe, "scaled");
    mlp.activation = QUERN_NO_ACTIVATION;
    test_expect(qn_mlp_plan(f.ctx, &mlp, NULL, &plan), QUERN_EINVAL,
                "activation is 0");
    mlp.activation = QUERN_SWIGLU;
    mlp.type = QUERN_F32; /* products have no such D */
    test_expect(qn_mlp_plan(f.ctx, &mlp, NULL, &plan), QUERN_EINVAL,
                "in=f32: recipe scaled writes");
    end(&f);
}

/* Every driver call fails once: the code is the driver's, unless nothing hangs
   on the call, and all is freed. */
TEST(fails_each_driver_call)
{
    for (int n = 1;; n++) {
        struct fixture f = begin("scaled");
        int code;

        test_cuda->fail_code = 999;
        test_cuda->calls = 0;
        test_cuda->fail_at = n;
        test_cuda->failed = NULL;
        code = qn_mlp_run(f.plan, &f.args, QUERN_PHASE_FORWARD, NULL);
        if (!code)
            code = qn_mlp_run(f.plan, &f.args, QUERN_PHASE_BACKWARD, NULL);
        test_cuda->fail_at = 0;
        if (!test_cuda->failed ||
            strcmp(test_cuda->failed, "cuCtxPopCurrent_v2"))
            assert_int_equal(code, test_cuda->failed ? QUERN_ECUDA : QUERN_OK);
        assert_int_equal(test_cuda->depth, 0);
        end(&f);
        assert_int_equal(test_cuda->libraries, 0);
        if (!test_cuda->failed) {
            assert_true(n > 11); /* at least each launch */
            break;
        }
    }
}

/* And every allocation of a plan. */
TEST(fails_each_allocation)
{
    struct fixture f = begin("scaled");
    struct qn_mlp_plan *plan;
    struct qn_mlp mlp;
    int code, n = 0;

    test_expect(qn_mlp_parse(f.ctx, "mlp scaled g=1 m=1 hidden=8 ffn=8", &mlp),
                QUERN_OK, "");
    do {
        test_fail_allocation(++n);
        code = qn_mlp_plan(f.ctx, &mlp, &test_aot, &plan);
        test_fail_allocation(0);
        assert_true(code == QUERN_OK || code == QUERN_ENOMEM);
    } while (code);
    assert_true(n > 11); /* a plan for each step */
    qn_mlp_plan_free(plan);
    end(&f);
}

/* All steps of a call but those of weights read the same sizes, which one small
   launch brought. */
static void expect_brought(const struct fixture *f, const int64_t *sizes)
{
    const void *place = param(1, FIRST_DIMS);

    assert_true(is_scratch(f, place));
    for (int i = 1; i < test_cuda->launches; i++) {
        assert_ptr_equal(param(i, FIRST_DIMS), place);
        assert_true(strncmp(test_cuda->trail[i].kernel, "k_sizes", 7) != 0);
    }
    for (int g = 0; g < 3; g++)
        assert_int_equal(((const int32_t *)place)[g], sizes[g]);
}

TEST(takes_host_sizes)
{
    static const int64_t sizes[] = {20, 0, 40}, bad[] = {20, -1, 0};
    static const char *const recipes_[] = {"plain", "scaled"};

    for (int i = 0; i < 4; i++) {
        struct fixture f = begin_with(
            recipes_[i % 2], i < 2 ? " sizes=host" : " sizes=fixed", &registry);

        test_cuda->launches = test_cuda->copies = 0;
        f.args.first_dims = NULL;
        f.args.host_sizes = bad;
        test_expect(qn_mlp_run(f.plan, &f.args, QUERN_PHASE_FORWARD, NULL),
                    QUERN_EINVAL,
                    "host_sizes[1] is -1: a group's size must not");
        assert_int_equal(test_cuda->launches, 0);
        f.args.host_sizes = sizes;
        test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
        test_expect(qn_mlp_run(f.plan, &f.args, QUERN_PHASE_BACKWARD, NULL),
                    i < 2 ? QUERN_ECAPTURE : QUERN_OK,
                    i < 2 ? "would be frozen into the graph" : "");
        test_cuda->capture_status = QN_CU_CAPTURE_NONE;
        assert_true(i < 2 ? !test_cuda->launches : test_cuda->launches > 3);
        test_cuda->launches = 0;
        test_expect(qn_mlp_run(f.plan, &f.args, QUERN_PHASE_FORWARD, NULL),
                    QUERN_OK, "");
        assert_true(test_cuda->launches > 3);
        expect_brought(&f, sizes);
        test_cuda->launches = 0;
        test_expect(qn_mlp_run(f.plan, &f.args, QUERN_PHASE_WGRAD, NULL),
                    QUERN_OK, "");
        assert_int_equal(test_cuda->launches, 3);
        expect_brought(&f, sizes);
        test_cuda->launches = 0;
        end(&f);
    }
}

#define REFUSED(which, change, part)                                           \
    do {                                                                       \
        struct qn_mlp_args a = f.args;                                         \
        change;                                                                \
        test_expect(qn_mlp_run(f.plan, &a, QUERN_PHASE_##which, NULL),         \
                    QUERN_EINVAL, part);                                       \
        assert_int_equal(test_cuda->launches, 0);                              \
    } while (0)
#define TAKEN(which, change)                                                   \
    do {                                                                       \
        struct qn_mlp_args a = f.args;                                         \
        change;                                                                \
        test_expect(qn_mlp_run(f.plan, &a, QUERN_PHASE_##which, NULL),         \
                    QUERN_OK, "");                                             \
        test_cuda->launches = 0;                                               \
    } while (0)

/* Unwanted tensors need no values, and no tokens leave nothing. */
TEST(needs_what_it_uses)
{
    struct fixture f = begin("scaled");

    TAKEN(WEIGHTS, (a.w1.data = a.w1_row.data = a.w1_column.data = NULL));
    REFUSED(WEIGHTS, a.w1.data = a.w1_row.data = NULL, "w1 is NULL");
    end(&f);
}

/* Arguments that a later step would refuse are refused before the first. */
TEST(queues_all_or_nothing)
{
    struct fixture f = begin("scaled");

    REFUSED(WEIGHTS, a.w2_column.sf = a.w2.data,
            "w2_columnwise.sf overlaps w2");
    REFUSED(WEIGHTS, a.w2_row.sf = a.w1_row.sf,
            "w1_rowwise.sf overlaps w2_rowwise.sf");
    REFUSED(FORWARD, a.y.data = a.w2_row.sf, "y overlaps w2_rowwise.sf");
    REFUSED(FORWARD, a.y.data = a.workspace, "workspace overlaps y");
    end(&f);
    f = begin("plain");
    REFUSED(BACKWARD, a.dx.data = a.x.data, "dx overlaps x");
    REFUSED(BACKWARD, a.dw1.data = a.w1.data, "dw1 overlaps w1");
    end(&f);
    f = begin_with("plain", " sizes=host", &registry);
    REFUSED(FORWARD, (a.first_dims = NULL, a.host_sizes = a.saved),
            "saved overlaps host_sizes");
    REFUSED(FORWARD,
            (a.first_dims = NULL,
             a.host_sizes = (const void *)((const char *)a.saved + 1)),
            "host_sizes is 0x");
    end(&f);
}

/* Nor does it matter what the memory of others holds by now. */
TEST(reads_only_what_it_uses)
{
    struct fixture f = begin("scaled");

    TAKEN(BACKWARD, a.y.data = a.dy.data);
    TAKEN(BACKWARD, (a.y.stride = INT64_MAX, a.x.data = a.dx.data));
    TAKEN(BACKWARD, a.w1_row.data = a.dx.data);
    TAKEN(WEIGHTS, (a.saved = a.w1_row.data, a.y.data = a.w1.data));
    TAKEN(WGRAD, a.dy.data = a.dx.data = a.dw1.data);
    REFUSED(WEIGHTS, a.w1_column.sf = a.w1_row.sf, /* those of blocks differ */
            "w1_rowwise.sf overlaps w1_columnwise.sf");
    end(&f);
}

/* The launches of wgrad, from a queue. */
TEST(lets_both_wait_or_none)
{
    struct fixture f = begin("scaled");
    struct quern_queue *queue, *full;
    struct qn_mlp_args a = f.args;
    static const int64_t sizes[] = {20, 0, 40};

    test_expect(quern_queue_create(f.ctx, 3, &queue), QUERN_OK, "");
    test_expect(quern_queue_create(f.ctx, 1, &full), QUERN_OK, "");
    test_expect(qn_mlp_put(f.plan, &a, queue, -1), QUERN_EINVAL, "layer is -1");
    a.first_dims = NULL;
    a.host_sizes = sizes;
    test_expect(qn_mlp_put(f.plan, &a, queue, 0), QUERN_EINVAL, "host_sizes");
    a = f.args;
    test_fail_allocation(0);
    test_expect(qn_mlp_put(f.plan, &a, full, 0), QUERN_EFULL, "1 products");
    assert_int_equal(quern_queue_count(full, QUERN_ALL_LAYERS), 0);
    test_expect(qn_mlp_put(f.plan, &a, queue, 5), QUERN_OK, "");
    assert_int_equal(quern_queue_count(queue, 5), 2);
    a.dw2.data = NULL;
    a.dw1.data = room(&f);
    test_expect(qn_mlp_put(f.plan, &a, queue, 6), QUERN_OK, "");
    assert_int_equal(quern_queue_count(queue, 6), 1);
    assert_int_equal(test_fail_allocation(0), 0);
    assert_int_equal(test_cuda->launches, 0);
    test_expect(quern_queue_flush(queue, 5, 0, (void *)256), QUERN_OK, "");
    assert_ptr_equal(param(0, D), f.args.dw2.data);
    assert_ptr_equal(param(1, D), f.args.dw1.data);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(test_cuda->trail[i].stream, (void *)256);
    LAUNCHED("wgrad", "wgrad");
    test_expect(quern_queue_flush(queue, 6, 0, NULL), QUERN_OK, "");
    assert_ptr_equal(param(0, D), a.dw1.data);
    LAUNCHED("wgrad");
    quern_queue_destroy(queue);
    quern_queue_destroy(full);
    end(&f);
}
