/* SPDX-License-Identifier: Apache-2.0 */
/*
** look.c: the kernel that looks whether the operands of a product fit f16.
*/
#include "product/look.h"
#include "base/text.h"
#include "choose/session.h"
#include "choose/step.h"

int qn_look_load(struct qn_session *s, int backend, struct qn_step *step)
{
    return qn_step_load(s, QN_LOOK, QUERN_X, "looks whether values fit f16",
                        s->problem->recipe, backend, step);
}

void qn_look_why(struct qn_session *s, struct qn_text *text)
{
    const struct qn_kernel *kernel =
        qn_step_find(s, QN_LOOK, QUERN_X, s->problem->recipe);

    qn_text_add(text, "%s %s\n", kernel ? ">" : " ",
                kernel ? kernel->name : "no kernel of this GPU looks at them");
}
