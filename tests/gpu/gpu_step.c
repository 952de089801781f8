/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_step.c: a training step of one layer, quantized and multiplied on the
   GPU, against float64's: the checks that the host passes, too. */
#include "gpu.h"

#include "support/step.h"

static void check(int right, const char *text)
{
    gpu_record(right ? NULL : text);
}

void gpu_step(void)
{
    const struct qn_recipe *recipe;
    char text[QT_STEP_TEXT];

    for (int i = 0; (recipe = qt_step_recipe(i)); i++) {
        check(qt_step_gradients(QUERN_BACKEND_JIT, recipe, text), text);
        check(qt_step_descends(QUERN_BACKEND_JIT, recipe, text), text);
        if (recipe->scaling[QN_DY].stochastic)
            check(qt_step_seeds(QUERN_BACKEND_JIT, recipe, text), text);
    }
}
