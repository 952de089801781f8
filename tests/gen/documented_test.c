/* SPDX-License-Identifier: Apache-2.0 */
/* documented_test.c: the activation that docs/kernels.md adds, added as it
   says. */
#include "test_gen.h"

#include <stdlib.h>
#include <string.h>

/* Grids of each epilogue, of halves and of runs. */
static const char spec[] =
    "for _, name in ipairs { 'sm90_gemm_m_activate_halves',\n"
    "    'sm90_gemm_m_activate_runs',\n"
    "    'sm90_gemm_m_gradient_halves', 'sm90_gemm_m_gradient_runs',\n"
    "    'sm90_square_m_copies_halves', 'sm90_square_m_copies_runs',\n"
    "    'sm90_square_m_dy_copies_halves', 'sm90_square_m_dy_copies_runs'\n"
    "  } do\n"
    "  extend(name) { axis 'activation' { 'glu' } }\n"
    "end\n";

/* The block of C after the heading; its length. */
static const char *find_block(const char *page, size_t *length)
{
    static const char fence[] = "```c\n";
    const char *at = strstr(page, "\n## Add an activation\n"), *end;

    assert_non_null(at);
    at = strstr(at, fence);
    assert_non_null(at);
    at += strlen(fence);
    end = strstr(at, "```\n");
    assert_non_null(end);
    *length = (size_t)(end - at);
    return at;
}

/* The tree's specs and templates, and the page's. */
static struct qg *open_with_page(const char *page)
{
    struct files files = {.count = 0};
    size_t length;
    const char *block = find_block(page, &length);
    struct qg *q;

    files_read(&files, "specs", "specs");
    files_read(&files, "templates", "templates");
    files_put(&files, "templates/activation/glu.c", block, length);
    files_put(&files, "specs/kernels/own.lua", spec, sizeof spec - 1);
    q = open_files(&files);
    assert_string_equal(qg_diagnostics(q), "");
    files_free(&files);
    return q;
}

/* Its text calls the value, and back also the gradient. */
static void check_text(struct qg *q, const struct qn_kernel *k)
{
    const int back =
        k->epilogue == QN_GRADIENT || k->epilogue == QN_GRADIENT_COPIES;
    const char *text;
    size_t length;

    if (qg_source(q, k->name, &text, &length))
        fail_msg("%s: %s", k->name, qg_diagnostics(q));
    assert_non_null(strstr(text, "FN float glu(float a, float b)\n"));
    assert_int_equal(strstr(text, "= glu_gradient(*a, *b)") != NULL, back);
    assert_non_null(strstr(text, back ? "glu(*a, *b)" : "glu(a, b)"));
}

TEST(documented_activation)
{
    int found[QN_EPILOGUE_COUNT] = {0}, runs[33] = {0};
    const struct quern_registry *r;
    size_t length;
    char *page = file_read("docs/kernels.md", &length);
    struct qg *q;

    assert_non_null(page);
    q = open_with_page(page);
    r = qg_registry(q);
    for (int i = 0; i < r->nkernels; i++) {
        const struct qn_kernel *k = &r->kernels[i];

        if (strcmp(k->activation, "glu") != 0)
            continue;
        assert_in_range(k->interleave, 0, 32);
        runs[k->interleave]++;
        if (found[k->epilogue]++ % 8 == 0)
            check_text(q, k);
    }
    assert_true(found[QN_ACTIVATE] > 8 && found[QN_GRADIENT] > 8);
    assert_true(found[QN_COPIES] > 8 && found[QN_GRADIENT_COPIES] > 8);
    assert_true(runs[0] && runs[1] && runs[8] && runs[32]);
    qg_close(q);
    free(page);
}
