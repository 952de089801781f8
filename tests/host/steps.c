/* SPDX-License-Identifier: Apache-2.0 */
/* steps.c: a training step of one layer on the host, quantized in blocks,
   against float64's. */
#include "host.h"

#include "support/step.h"

typedef int check(int backend, const struct qn_recipe *, char *text);

/* All recipes, or only those that round dy by chance. */
static void check_all(check *right, int chance)
{
    const struct qn_recipe *recipe;
    char text[QT_STEP_TEXT];
    int count = 0;

    for (int i = 0; (recipe = qt_step_recipe(i)); i++) {
        if (chance && !recipe->scaling[QN_DY].stochastic)
            continue;
        count++;
        if (!right(QUERN_BACKEND_HOST, recipe, text))
            fail_msg("%s", text);
    }
    assert_int_equal(count, chance ? 1 : 4);
}

TEST(test_step_gradients)
{
    check_all(qt_step_gradients, 0);
}

TEST(test_step_seeds)
{
    check_all(qt_step_seeds, 1);
}

TEST(test_step_descends)
{
    check_all(qt_step_descends, 0);
}
