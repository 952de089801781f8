/* SPDX-License-Identifier: Apache-2.0 */
/*
** tuned.c: measured winners for the choice of a kernel.
**
** A line of a file is a hint: the kernel that it names is looked for among
** those that were judged for the exact problem, so a hostile or an outdated
** line chooses a slower kernel at worst.
*/
#include "choose/tuned.h"
#include "base/context.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/session.h"
#include "problem/geometry.h"

#include <stdio.h>
#include <string.h>

/* Nothing is measured for the host, for cuBLAS, for a GPU that is not there,
   nor for merged products, whose fastest kernels are others, nor for those that
   quantize. */
static int can_know(const struct qn_session *s)
{
    return s->device.present && !s->demand.kernel &&
           s->demand.backend != QUERN_BACKEND_HOST &&
           s->demand.backend != QUERN_BACKEND_CUBLASLT &&
           s->problem->microbatches <= 1 && !s->problem->quantize;
}

/* A kernel for a problem that leaves the strategy open serves one that names
   it, too. */
int qn_tuned_look(struct qn_session *s)
{
    struct qn_problem open = *s->problem;
    int code;

    memset(&s->tuned, 0, sizeof s->tuned);
    if (!can_know(s))
        return QUERN_OK;
    code = qn_tune_store_find(s->ctx, s->device.name, s->problem, s->demand.sms,
                              &s->tuned.found, &s->tuned.known);
    if (code || s->tuned.known ||
        s->problem->dequantize != QUERN_DEQUANTIZE_MAINLOOP)
        return code;
    open.dequantize = QUERN_DEQUANTIZE_AUTO;
    code = qn_tune_store_find(s->ctx, s->device.name, &open, s->demand.sms,
                              &s->tuned.found, &s->tuned.known);
    s->tuned.known &=
        s->tuned.found.line.dequantize <= QUERN_DEQUANTIZE_MAINLOOP;
    return code;
}

int qn_tuned_prefer(struct qn_session *s, struct qn_choice *list, int count)
{
    struct qn_tuned *tuned = &s->tuned;
    struct qn_choice winner;
    int i = 0, code = qn_tuned_look(s);

    if (code || !tuned->known ||
        tuned->found.line.dequantize > QUERN_DEQUANTIZE_MAINLOOP)
        return code;
    while (i < count &&
           strcmp(list[i].candidate->kernel->name, tuned->found.line.kernel))
        i++;
    if (i == count || !list[i].fits) {
        snprintf(tuned->misfit, sizeof tuned->misfit, "%s",
                 i < count ? list[i].reason
                           : "the variant has no kernel of that name");
        return QUERN_OK;
    }
    winner = list[i];
    memmove(&list[1], &list[0], (size_t)i * sizeof *list);
    list[0] = winner;
    tuned->kernel = winner.candidate->kernel;
    return QUERN_OK;
}

int qn_tuned_band(const struct qn_session *s, const struct qn_kernel *kernel,
                  int usual)
{
    if (s->band > 0)
        return s->band;
    return s->tuned.kernel == kernel && s->tuned.found.line.band > 0
               ? (int)s->tuned.found.line.band
               : usual;
}

/* Nothing without a ragged axis. */
static void add_bucket(struct qn_text *text, const struct qn_problem *p)
{
    int64_t least;

    if (p->ragged == QUERN_AXIS_NONE)
        return;
    least = qn_tune_file_bucket(qn_geometry_length(p, p->ragged) / p->groups);
    qn_text_add(text, ", groups of %lld to %lld along %s", (long long)least,
                (long long)qn_tune_file_next(least) - 1,
                qn_axis_name(p->ragged));
}

static void add_line(struct qn_text *text, const struct qn_session *s,
                     int taken)
{
    const struct qn_tune_line *l = &s->tuned.found.line;

    if (l->permille <= 1000 && (l->dequantize > QUERN_DEQUANTIZE_MAINLOOP ||
                                !strcmp(l->kernel, l->model)))
        qn_text_add(text, "tuned: the model's choice is the fastest");
    else
        qn_text_add(text, "tuned: %lld.%02lld x the model's choice",
                    ((long long)l->permille + 5) / 1000,
                    ((long long)l->permille + 5) % 1000 / 10);
    if (l->dequantize)
        qn_text_add(text, ", dequantize=%s",
                    qn_dequantize_name((int)l->dequantize));
    if (l->band)
        qn_text_add(text, ", in bands of %lld", (long long)l->band);
    if (!l->certain)
        qn_text_add(text, " (time was up before that was certain)");
    add_bucket(text, s->problem);
    qn_text_add(text, "\n    %.1f us, the model's %.1f us", (double)l->ns / 1e3,
                (double)l->model_ns / 1e3);
    if (l->mhz)
        qn_text_add(text, " at %lld MHz", (long long)l->mhz);
    qn_text_add(text, "; %s\n", s->tuned.found.path);
    if (l->dequantize == QUERN_DEQUANTIZE_FP8 && !taken)
        qn_text_add(text, "    but FP8 tensor cores sum about 13 bits: only a "
                          "problem's own dequantize=fp8 asks for that\n");
    else if (l->dequantize > QUERN_DEQUANTIZE_MAINLOOP && !taken)
        qn_text_add(text,
                    "    but that strategy does not serve this problem\n");
    if (l->dequantize <= QUERN_DEQUANTIZE_MAINLOOP && !s->tuned.kernel)
        qn_text_add(text, "    but %s does not serve this problem: %s\n",
                    l->kernel, s->tuned.misfit);
}

void qn_tuned_why(struct qn_session *s, int taken, struct qn_text *text)
{
    size_t before = text->length;

    if (s->tuned.known)
        add_line(text, s, taken);
    if (*s->tuned.found.stale)
        qn_text_add(text, "not used: %s; quern tune measures it again\n",
                    s->tuned.found.stale);
    if (can_know(s))
        qn_tune_store_refused(s->ctx, s->device.name, text);
    if (text->length > before)
        qn_text_add(text, "\n");
}
