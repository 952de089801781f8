/* SPDX-License-Identifier: Apache-2.0 */
/* scale_ends.c: the ends of the scales of blocks on the host, of A and of B,
   dequantized in the mainloop and by a pass. */
#include "support/ends.h"
#include "host.h"

#include "base/context.h"

static void run(const struct qt_case *c, const struct qt_data *data,
                struct host_output *out)
{
    host_output_free(out);
    host_multiply(c, data, 1, out);
}

static void check_role(const struct qt_case *c, int role)
{
    const int type = qt_ends_scaling(c, role)->type;
    struct host_output before = {0}, without = {0}, after = {0};
    struct qt_block b;
    struct qt_data data;
    unsigned char *kept, scale;
    char text[200];

    assert_int_equal(qt_data_make(c, &data), 0);
    qt_ends_find(c, &data, role, &b);
    kept = malloc((size_t)b.lines * b.bytes);
    assert_non_null(kept);
    run(c, &data, &before);
    qt_ends_clear(&b, kept);
    run(c, &data, &without);
    qt_ends_restore(&b, kept);
    scale = *b.scale;
    for (int i = 0; i < qt_nends; i++) {
        if (qt_ends[i].type != type)
            continue;
        *b.scale = qt_ends[i].code;
        run(c, &data, &after);
        if (!qt_ends_right(c, &b, before.d, after.d, without.d,
                           qt_ends[i].outcome, text, sizeof text))
            fail_msg("%s, op %d, ahead %d, code %02x: %s", c->recipe->name,
                     c->op, c->dequantize == QUERN_DEQUANTIZE_PASS,
                     qt_ends[i].code, text);
    }
    *b.scale = scale;
    free(kept);
    host_output_free(&before);
    host_output_free(&without);
    host_output_free(&after);
    qt_data_free(&data);
}

/* How many operands of the recipe's fprop and dgrad were checked. */
static int check_recipe(const struct qn_recipe *recipe)
{
    const struct qn_scaling *x = &recipe->scaling[QN_X];
    const int passes = x->type == QUERN_TYPE_NONE || x->span == QN_SPAN_BLOCK;
    int checked = 0;

    /* Packed weights are read across by dgrad, where a scale has no row. */
    for (int i = 0; i < (recipe->scaling[QN_W].packed ? 2 : 4); i++) {
        struct qt_case c = {.what = "the ends of scales",
                            .recipe = recipe,
                            .type = QUERN_BF16,
                            .d_type = recipe->default_d,
                            .dequantize = i % 2 ? QUERN_DEQUANTIZE_PASS
                                                : QUERN_DEQUANTIZE_AUTO,
                            .n = 40,
                            .k = 96,
                            .sizes_type = QUERN_I32,
                            .fill = QT_NORMAL,
                            .seed = 3};

        if (i % 2 && !passes)
            continue;
        qt_case_op(&c, i / 2 ? QUERN_DGRAD : QUERN_FPROP);
        qt_case_layout(&c, &qt_patterns[4]);
        for (int role = QT_A; role <= QT_B; role++)
            if (qt_ends_scaling(&c, role)) {
                check_role(&c, role);
                checked++;
            }
    }
    return checked;
}

/* Both operands of mxfp8, mxfp4, nvfp4 and their like. */
TEST(test_scale_ends)
{
    const struct qn_recipe *recipe = qn_registry_builtin.recipes;
    int checked = 0;

    for (int i = 0; i < qn_registry_builtin.nrecipes; i++, recipe++)
        if (recipe->scaled)
            checked += check_recipe(recipe);
    assert_true(checked >= 4 * 2 * 4);
}

/* Weights next to other values; generated and compiled here. */
TEST(test_scale_ends_mixed)
{
    static const struct {
        const char *name;
        int checked; /* of two ops, in the mainloop and by a pass */
    } recipes[] = {{"mix_16_4", 4}, {"mix_8_4", 8}};
    struct host_specs specs;

    host_specs_open(&specs, "tests/gpu/specs");
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            check_recipe(qn_context_recipe(host_ctx, recipes[i].name)),
            recipes[i].checked);
    host_specs_close(&specs);
}
