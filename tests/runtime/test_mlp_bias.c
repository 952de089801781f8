/* SPDX-License-Identifier: Apache-2.0 */
/* test_mlp_bias.c: the biases of a grouped MLP: which launches add them and sum
   their gradients, what each gets, and rows that are apart. */
#include "test.h"

#include "mlp_scene.h"

/* qn_mlp_why's text for an MLP of the recipe mx. */
static char *why(struct fixture *f, const char *sizes)
{
    struct qn_mlp_plan *plan;
    struct qn_mlp mlp;
    char line[128], *text = NULL;

    snprintf(line, sizeof line, "mlp mx %s prob=1 bias=1", sizes);
    test_expect(qn_mlp_parse(f->ctx, line, &mlp), QUERN_OK, "");
    test_expect(qn_mlp_why(f->ctx, &mlp, &test_aot, &text), QUERN_OK, "");
    test_expect(qn_mlp_plan(f->ctx, &mlp, &test_aot, &plan), QUERN_OK, "");
    qn_mlp_plan_free(plan);
    return text;
}

/* The pass is a step of its own, unless what is dequantized in a pass gets the
   bias from the kernel of bf16. */
TEST(explains_biases)
{
    struct fixture f = begin_with("mx", " bias=1", &with_biases);
    char *text = why(&f, "g=3 m=60 hidden=64 ffn=32");

    assert_non_null(strstr(text, "  pre + b1\n    bias bf16 of=x g=3 m=60 k=64 "
                                 "in=bf16\n    > bf16_bias"));
    assert_non_null(strstr(text, "  y + b2\n    bias bf16 of=x g=3 m=60 k=64 "
                                 "in=bf16 prob=1\n    > bf16_bias"));
    assert_non_null(strstr(text, "db2 and its part of dprob, from dy\n    "
                                 "quantize bf16 of=dy"));
    assert_null(strstr(text, "dequantize=pass"));
    quern_free(text);
    text = why(&f, "g=2 m=65536 hidden=4096 ffn=4096");
    assert_non_null(strstr(text, "d=bf16 bias=1 dequantize=pass"));
    assert_non_null(strstr(text, "d=bf16 bias=1 prob=1 dequantize=pass"));
    assert_non_null(strstr(text, "> bf16_biased"));
    assert_null(strstr(text, "y + b2"));
    quern_free(text);
    end(&f);
}

/* Nor does that kernel add it: why and plan fall back to the pass alike. */
TEST(explains_passes)
{
    struct qn_kernel left[ALL];
    const struct quern_registry fewer =
        test_without(&with_biases, "bf16_biased", left);
    struct fixture f = begin_with("mx", " bias=1", &fewer);
    char *text = why(&f, "g=2 m=65536 hidden=4096 ffn=4096");

    assert_non_null(strstr(text, "> mx_dequantize_x"));
    assert_non_null(strstr(text, "  pre + b1\n    bias bf16 of=x"));
    assert_non_null(strstr(text, "  y + b2\n    bias bf16 of=x"));
    assert_null(strstr(text, "bias=1 dequantize=pass"));
    quern_free(text);
    end(&f);
}

/* Nothing adds it: refused, with the step. */
TEST(needs_kernels)
{
    struct fixture f = begin_with("plain", "", &registry);
    struct qn_mlp_plan *plan;
    struct qn_mlp mlp;

    test_expect(
        qn_mlp_parse(f.ctx, "mlp plain g=3 m=60 hidden=64 ffn=32 bias=1", &mlp),
        QUERN_OK, "");
    test_expect(qn_mlp_plan(f.ctx, &mlp, &test_aot, &plan), QUERN_ENOKERNEL,
                "in the step pre + b1");
    end(&f);
}

/* Rows of the caller's tensors may be apart: kernels get their distance. */
TEST(strides_rows)
{
    struct fixture f = begin_with("plain", " bias=1", &with_biases);
    struct qn_mlp_args *a = &f.args;
    struct qn_tensor *const tensors[] = {&a->x, &a->y, &a->dy, &a->dx};

    for (int i = 0; i < 4; i++) {
        tensors[i]->stride = 72 + 8 * i;
        tensors[i]->bytes = (size_t)(59 * tensors[i]->stride + 64) * 2;
    }
    test_expect(qn_mlp_run(f.plan, a, QUERN_PHASE_FORWARD, NULL), QUERN_OK, "");
    assert_int_equal((int)(uintptr_t)param(2, BIASED_D_STRIDE), 80);
    LAUNCHED("plain_biased", "plain_h", "plain_biased");
    test_expect(qn_mlp_run(f.plan, a, QUERN_PHASE_BACKWARD, NULL), QUERN_OK,
                "");
    assert_int_equal((int)(uintptr_t)param(0, A_STRIDE), 88);
    assert_int_equal((int)(uintptr_t)param(4, SUMMED_STRIDE), 88);
    assert_int_equal((int)(uintptr_t)param(6, SUMMED_STRIDE), 88);
    LAUNCHED("plain_dgrad", "plain_dpre", "plain_sum", "plain_dprob",
             "plain_sums", "plain_sum", "plain_dprob_b2", "plain_dgrad",
             "plain_wgrad", "plain_wgrad");
    a->y.stride = 76;
    test_expect(qn_mlp_run(f.plan, a, QUERN_PHASE_FORWARD, NULL), QUERN_EINVAL,
                "rows that are not packed must start at multiples of 16");
    end(&f);
}
