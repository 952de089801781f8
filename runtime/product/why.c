/* SPDX-License-Identifier: Apache-2.0 */
/*
** why.c: explain which kernel would run and why each other one would not.
*/
#include "product/why.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/fuse_model.h"
#include "choose/session.h"
#include "problem/fuse_rules.h"
#include "problem/problem.h"
#include "product/backend.h"

#include <stdlib.h>
#include <string.h>

/* Say what the figures are for, when this machine has no such GPU. */
static int imagine_device(struct qn_session *s, struct qn_text *text)
{
    qn_session_imagine(s, s->options.backend);
    qn_text_add(text, "%s\nfigures are for %s%s\n\n", qn_error_text(),
                s->device.name,
                s->options.backend == QUERN_BACKEND_AUTO
                    ? "; on this machine the host computes"
                    : "");
    return QUERN_OK;
}

/* What no choice of tiles can beat, by the kernel that would run: rows of
   padding cost nothing where memory takes longer. */
static void add_floors(struct qn_text *text, const struct quern_problem *p,
                       const struct qn_choice *best, int sms)
{
    const struct qn_figures *f = &best->figures;

    qn_text_add(
        text,
        "products alone take %.0f cycles, with the padding of tiles %.0f; "
        "memory alone %.0f\n\n",
        f->tiles * f->real * f->math / sms, f->tiles * f->math / sms,
        f->memory_cycles);
    if (f->quantize_cycles > 0)
        qn_fuse_why(p, best, text);
}

/* In the model's order, but for a measured winner; the first would run, unless
   operands are expanded `ahead`. */
static void add_choices(struct qn_text *text, const struct qn_choice *list,
                        int count, const struct qn_kernel *tuned, int ahead)
{
    for (int i = 0; i < count && list[i].fits; i++) {
        const struct qn_figures *f = &list[i].figures;
        const struct qn_kernel *kernel = list[i].candidate->kernel;

        qn_text_add(
            text,
            "%s %s%s%s\n    %.0f cycles (%.0f with what bytes out of "
            "L2 cost): %.0f tiles in %.0f waves of %.0f, memory %.0f\n"
            "    a tile: math %.0f, copies %.0f, store %.0f; %.0f %% of "
            "it real\n",
            i || ahead ? " " : ">", kernel->name,
            kernel->cubin || kernel->host ? " (linked)" : "",
            kernel == tuned ? " (tuned)" : "", f->cycles, f->order, f->tiles,
            f->waves, f->tile_cycles, f->memory_cycles, f->math, f->copy,
            f->store, 100 * f->real);
    }
}

/* With the first rule that each one breaks. */
static void add_excluded(struct qn_text *text, const struct qn_choice *list,
                         int count)
{
    int first = 1;

    for (int i = 0; i < count; i++) {
        if (list[i].fits)
            continue;
        qn_text_add(text, "%s  %s\n    %s\n", first ? "\nexcluded\n" : "",
                    list[i].candidate->kernel->name, list[i].reason);
        first = 0;
    }
}

/* A point that would have been a kernel of the problem's variant. */
static int of_variant(const struct quern_problem *p,
                      const struct qn_rejected *point)
{
    return point->op == p->op && point->ragged == p->ragged &&
           qn_fuse_serves(p->quantize, point->quantize) &&
           point->a_major == p->a_major && point->b_major == p->b_major &&
           point->d_type == p->d_type && !strcmp(point->recipe, p->recipe) &&
           qn_problem_takes(p, point->epilogue, point->activation,
                            point->interleave);
}

/* With the sentence of their spec. */
static void add_rejected(struct qn_text *text,
                         const struct quern_registry *registry,
                         const struct quern_problem *p)
{
    int first = 1;

    for (int i = 0; registry && i < registry->nrejected; i++) {
        const struct qn_rejected *point = &registry->rejected[i];

        if (!of_variant(p, point))
            continue;
        qn_text_add(text, "%s  %s\n    %s (%s)\n",
                    first ? "\nnot made, for this variant\n" : "", point->name,
                    point->reason, point->spec);
        first = 0;
    }
}

/* Judged for one backend. */
static int list_for(struct qn_session *s, int backend, struct qn_choice **list,
                    int *count)
{
    int code;

    s->demand.backend = backend;
    code = qn_select_list(s->ctx, &s->demand, list, count);
    if (code)
        return code;
    code = qn_tuned_prefer(s, *list, *count);
    if (code)
        free(*list);
    return code;
}

/* The same order in which quern_plan tries the backends. */
int qn_why_list(struct qn_session *s, struct qn_choice **list, int *count)
{
    int code;

    if (s->demand.backend != QUERN_BACKEND_AUTO)
        return list_for(s, s->demand.backend, list, count);
    code = list_for(s, QUERN_BACKEND_AOT, list, count);
    if (code || (*count && (*list)[0].fits))
        return code;
    free(*list);
    return list_for(s, QUERN_BACKEND_JIT, list, count);
}

/* The problem, and where it would run. */
void qn_why_title(struct qn_text *text, const struct qn_session *s)
{
    char problem[512];

    quern_problem_print(s->problem, problem, sizeof problem);
    qn_text_add(text, "%s\nbackend %s, %d %s\n\n", problem,
                qn_backend_name(s->demand.backend), s->demand.sms,
                s->demand.backend == QUERN_BACKEND_HOST ? "threads"
                                                        : "multiprocessors");
    if (s->problem->sizes && s->demand.backend != QUERN_BACKEND_HOST &&
        s->demand.backend != QUERN_BACKEND_CUBLASLT)
        qn_text_add(text,
                    "sizes from the host come with a launch of their own%s\n\n",
                    s->problem->sizes == QUERN_SIZES_FIXED
                        ? ", which graphs keep"
                        : ", which no graph captures");
}

void qn_why_kernels(struct qn_session *s, const struct qn_choice *list,
                    int count, int ahead, struct qn_text *text)
{
    add_choices(text, list, count, s->tuned.kernel, ahead);
    add_excluded(text, list, count);
    add_rejected(text, s->ctx->base, s->problem);
    add_rejected(text, s->ctx->linked, s->problem);
}

void qn_why_best(struct qn_session *s, const struct qn_choice *list, int count,
                 int *served, struct qn_text *text)
{
    if (count && list[0].fits) {
        add_floors(text, s->problem, list, s->demand.sms);
        return;
    }
    *served = 0;
    qn_select_none(s->ctx, &s->demand, list, 0);
    qn_text_add(text, "%s\n", count ? "no kernel fits" : qn_error_text());
}

int qn_why_begin(struct qn_session *s, struct quern_context *ctx,
                 const struct quern_problem *problem,
                 const struct quern_plan_options *options, struct qn_text *text)
{
    int wanted = options ? options->backend : QUERN_BACKEND_AUTO;
    int code = qn_session_open(s, ctx, problem, options);

    if (code == QUERN_ENODEVICE ||
        (!code && wanted == QUERN_BACKEND_AUTO && !s->driver))
        code = imagine_device(s, text);
    return code ? code : qn_session_name(s);
}

int qn_why_end(struct qn_session *s, struct qn_text *text, int code, char **out)
{
    *out = NULL;
    qn_session_close(s);
    if (!code) {
        *out = qn_text_take(text);
        code = *out ? QUERN_OK : qn_error_memory();
    }
    qn_text_free(text);
    return code;
}

/* Three lists: what fits, what does not, what does not exist. */
static int explain(struct qn_session *s, struct qn_why_choice *choice,
                   struct qn_text *text)
{
    struct qn_choice *list;
    int count, code;

    *choice =
        (struct qn_why_choice){.served = 1, .expand = QUERN_EXPAND_INSIDE};
    if (s->demand.backend == QUERN_BACKEND_CUBLASLT) {
        qn_why_title(text, s);
        return s->ctx->cublaslt->explain(s, &choice->served, text);
    }
    code = qn_why_list(s, &list, &count);
    if (code)
        return code;
    qn_why_title(text, s);
    qn_tuned_why(s, 0, text);
    qn_why_best(s, list, count, &choice->served, text);
    qn_why_kernels(s, list, count, 0, text);
    free(list);
    return QUERN_OK;
}

int qn_why_one(struct quern_context *ctx, const struct quern_problem *problem,
               const struct quern_plan_options *options,
               struct qn_why_choice *choice, char **out)
{
    struct qn_session session;
    struct qn_text text = {0};
    int code = qn_why_begin(&session, ctx, problem, options, &text);

    if (!code)
        code = explain(&session, choice, &text);
    return qn_why_end(&session, &text, code, out);
}
