/*
** why.c: explain which kernel would run and why each other one would not.
*/
#include "ahead.h"
#include "cublaslt_loop.h"
#include "epilogue.h"
#include "result.h"
#include "session.h"
#include "fuse.h"
#include "text.h"
#include "types.h"
#include "why.h"

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
static int choose(struct qn_session *s, struct qn_choice **list, int *count)
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
static void add_title(struct qn_text *text, const struct qn_session *s)
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

/* Kernels that read copies are out of the question. */
static int explain_asked(struct qn_session *s,
                         const struct qn_ahead_choice *way,
                         struct qn_why_choice *choice, struct qn_text *text)
{
    int code;

    add_title(text, s);
    code = qn_ahead_why(s, way, &choice->served, text);
    return code || choice->served ? code : qn_epilogue_why(s, choice, text);
}

/* Nothing serves the problem as it is. */
static int explain_unfused(struct qn_session *s, struct qn_why_choice *choice,
                           const struct qn_choice *list, int count,
                           struct qn_text *text)
{
    int code;

    choice->served = 0;
    code = qn_epilogue_why(s, choice, text);
    if (code || choice->served)
        return code;
    qn_select_none(s->ctx, &s->demand, list, 0);
    qn_text_add(text, "%s\n", count ? "no kernel fits" : qn_error_text());
    return QUERN_OK;
}

/* Three lists: what fits, what does not, what does not exist. */
static int explain(struct qn_session *s, struct qn_why_choice *choice,
                   struct qn_text *text)
{
    struct qn_ahead_choice way;
    const int backend = s->demand.backend;
    struct qn_choice *list;
    int count, code = qn_ahead_choose(s, &way);

    *choice = (struct qn_why_choice){.served = 1, .expand = way.way};
    if (!code && s->demand.backend == QUERN_BACKEND_CUBLASLT) {
        add_title(text, s);
        return qn_cublaslt_why(s, &choice->served, text);
    }
    if (!code && way.asked && !s->problem->copies)
        return explain_asked(s, &way, choice, text);
    if (!code)
        code = choose(s, &list, &count);
    if (code)
        return code;
    add_title(text, s);
    choice->apart =
        s->problem->copies && !qn_result_named(s) && (!count || !list[0].fits);
    code = s->problem->copies
               ? qn_result_why(s, choice->apart, &choice->served, text)
               : qn_ahead_why(s, &way, &choice->served, text);
    qn_tuned_why(s, way.tuned, text);
    if (!code && !choice->apart && (count == 0 || !list[0].fits)) {
        s->demand.backend = backend;
        code = explain_unfused(s, choice, list, count, text);
    } else if (!choice->apart)
        add_floors(text, s->problem, list, s->demand.sms);
    add_choices(text, list, count, s->tuned.kernel,
                way.way != QUERN_EXPAND_INSIDE);
    add_excluded(text, list, count);
    add_rejected(text, s->ctx->base, s->problem);
    add_rejected(text, s->ctx->linked, s->problem);
    free(list);
    return code;
}

int qn_why_explain(struct quern_context *ctx,
                   const struct quern_problem *problem,
                   const struct quern_plan_options *options,
                   struct qn_why_choice *choice, char **out)
{
    struct qn_session session;
    struct qn_text text = {0};
    int wanted = options ? options->backend : QUERN_BACKEND_AUTO;
    int code;

    if (!ctx || !problem || !out)
        return qn_error_null("ctx", ctx, "problem", problem, "text");
    *out = NULL;
    code = qn_session_open(&session, ctx, problem, options);
    if (code == QUERN_ENODEVICE ||
        (!code && wanted == QUERN_BACKEND_AUTO && !session.driver)) {
        code = imagine_device(&session, &text);
    }
    if (!code)
        code = qn_session_name(&session);
    if (!code)
        code = explain(&session, choice, &text);
    qn_session_close(&session);
    if (!code) {
        *out = qn_text_take(&text);
        code = *out ? QUERN_OK : qn_error_memory();
    }
    qn_text_free(&text);
    return code;
}

int quern_why(struct quern_context *ctx, const struct quern_problem *problem,
              const struct quern_plan_options *options, char **out)
{
    struct qn_why_choice choice;

    return qn_error_done(qn_why_explain(ctx, problem, options, &choice, out));
}
