/* SPDX-License-Identifier: Apache-2.0 */
/* requantize.c: the launches that encode operands as FP8. */
#include "product/frame.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/session.h"
#include "choose/step.h"
#include "problem/quantize.h"
#include "problem/requantize_rules.h"
#include "problem/scale.h"

int qn_requantize_load(struct qn_session *s, int role, int backend,
                       struct qn_step *step)
{
    struct qn_quantization q;

    qn_scale_source(s->problem, s->demand.recipe, role, &q);
    return qn_step_load(s, QN_REQUANTIZE, q.of, "encodes a copy again",
                        s->problem->recipe, backend, step);
}

/* Elements from one line of a copy to the next. */
static long long stride_of(const struct qn_tensor *t)
{
    return t->stride ? t->stride : t->shape[t->ndim - 1];
}

int qn_requantize_launch(struct qn_driver *driver, const struct qn_step *step,
                         const struct qn_reencoding *e, void *stream)
{
    struct qn_tensor from = {.ndim = 0}, to;
    struct qn_quantization q;
    const void *data[2] = {NULL}, *sf[2] = {NULL};
    long long stride, out_stride;
    int m, k, column;

    qn_scale_source(e->problem, e->recipe, e->role, &q);
    qn_quantize_copy(&q, e->recipe, q.copies, &from);
    qn_requantize_copy(e->problem, e->target, e->role, &to);
    column = q.copies == QUERN_COLUMNWISE;
    data[column] = e->copy->data;
    sf[column] = e->copy->sf;
    stride = stride_of(&from);
    out_stride = stride_of(&to);
    m = (int)q.m;
    k = (int)q.k;
    void *const values[QN_PARAM_COUNT] = {
        [QN_PARAM_row] = &data[0],
        [QN_PARAM_row_stride] = &stride,
        [QN_PARAM_row_sf] = &sf[0],
        [QN_PARAM_column] = &data[1],
        [QN_PARAM_column_stride] = &stride,
        [QN_PARAM_column_sf] = &sf[1],
        [QN_PARAM_out] = (void *)&e->codes,
        [QN_PARAM_out_stride] = &out_stride,
        [QN_PARAM_out_sf] = (void *)&e->sf,
        [QN_PARAM_flags] = (void *)&e->flags,
        [QN_PARAM_groups] = (void *)&q.groups,
        [QN_PARAM_m] = &m,
        [QN_PARAM_k] = &k,
        [QN_PARAM_noop] = (void *)&e->noop,
        [QN_PARAM_first_dims] = (void *)&e->first_dims,
        [QN_PARAM_offsets] = (void *)&e->offsets,
        [QN_PARAM_sizes_bytes] = (void *)&e->sizes_bytes,
        [QN_PARAM_error] = (void *)&e->error};

    return qn_step_launch(driver, step, values, stream);
}
