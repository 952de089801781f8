/* SPDX-License-Identifier: Apache-2.0 */
/* fields_test.c: a kernel's actions follow from its recipe's fields, where
   shortcuts hold only for some. */
#include "test_gen.h"

#include <stdio.h>
#include <string.h>

/* Recipes of which quern itself has none. */
static struct qg *open_mixes(void)
{
    const char *folder = "tests/gpu/specs";
    struct qg *q;

    assert_int_equal(qg_open(&folder, 1, &q), 0);
    assert_string_equal(qg_diagnostics(q), "");
    return q;
}

/* The cast for Hopper of mix_strange's tensor, from bf16. */
static const char *cast_of(struct qg *q, const char *tensor)
{
    char name[96];
    const char *text;
    size_t length;

    snprintf(name, sizeof name, "quern_mix_strange_quantize_%s_bf16_sm90a",
             tensor);
    assert_int_equal(qg_source(q, name, &text, &length), 0);
    return text;
}

/* Four scales of a line make a word where they are side by side. */
TEST(words_of_scales)
{
    struct qg *q = open_mixes();

    assert_non_null(strstr(cast_of(q, "w"), "store_word("));
    assert_null(strstr(cast_of(q, "dy"), "store_word("));
    qg_close(q);
}

/* fp16 holds a number of 16 bits times a power of two, no other product. */
TEST(powers_in_f16)
{
    struct qg *q = open_mixes();

    assert_non_null(strstr(cast_of(q, "x"), "to_e2m1_x2_of_f16(a, b)"));
    assert_null(strstr(cast_of(q, "w"), "to_e2m1_x2_of_f16(a, b)"));
    assert_non_null(strstr(cast_of(q, "w"), "to_e2m1_x2(a, b)"));
    qg_close(q);
}

/* Squares begin with each group: products count those of the groups before. */
TEST(squares_of_groups)
{
    struct qg *q = open_mixes();
    const struct quern_registry *registry = qg_registry(q);
    int number = 0;

    for (int i = 0; i < registry->nkernels; i++) {
        const struct qn_kernel *kernel = &registry->kernels[i];
        const char *text;
        size_t length;

        if (strcmp(kernel->recipe, "mix_strange") != 0 ||
            kernel->op != QUERN_FPROP ||
            strncmp(kernel->template_path, "sm90/gemm", 9) != 0)
            continue;
        assert_int_equal(qg_source(q, kernel->name, &text, &length), 0);
        assert_non_null(strstr(text, "t->runs"));
        number++;
    }
    assert_true(number > 0);
    qg_close(q);
}
