/*
** gradient.c: dgrad that goes back through an activation.
**
** Each tile knows a part of dbias and of dprob, and no tile all of it. So that
** the sums have one order whatever the tiles, parts are those of 32 rows and of
** 64 columns: they lie in the workspace, behind what all products have there,
** until a launch for each kind adds them up.
**
**     dbias   [strips of 32 rows][columns of D]   as a cast leaves them
**     dprob   [columns of the product / 64][m]
*/
#include "gradient.h"
#include "host_sizes.h"
#include "model.h"
#include "quantize.h"
#include "run.h"
#include "types.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 64 }; /* COUPLED: row partials */

struct space {
    size_t partials, row_partials, end;
};

static int64_t width_of(const struct quern_problem *p)
{
    return qn_geometry_halves(p) ? 2 * p->n : p->n;
}

/* Without an activation dbias is of what a run quantizes. */
size_t qn_gradient_dbias(const struct quern_problem *p)
{
    const int64_t width = qn_geometry_back(p) ? width_of(p) : p->k;

    return (size_t)p->groups * (size_t)width * sizeof(float);
}

/* Strips of 32 rows in tiles of 128, which each group begins anew. */
static int64_t strips_of(const struct quern_problem *p)
{
    return (p->m + 127ll * p->groups) / 128 * 4;
}

static void lay_out(const struct quern_problem *p, struct space *s)
{
    const int dbias = p->dbias && qn_geometry_back(p);

    s->partials = s->end = qn_host_size_end(p);
    if (dbias || p->dprob)
        s->partials = s->end = qn_padded(s->end);
    if (dbias)
        s->end +=
            qn_padded((size_t)(strips_of(p) * width_of(p)) * sizeof(float));
    s->row_partials = s->end;
    if (p->dprob)
        s->end += (size_t)(qn_quantize_ceil_div(p->n, COLUMNS) * p->m) *
                  sizeof(float);
}

size_t qn_gradient_end(const struct quern_problem *p)
{
    struct space s;

    lay_out(p, &s);
    return s.end;
}

/* ------------------------------------------------------------------- model */

/*
** The cast moves dh, P and D, and for dprob dh and P again; besides, there is a
** launch for each that adds up sums. All these weigh against a tile's last
** step, which is longer.
*/

static double cast_cycles(const struct quern_problem *p)
{
    const double rows = (double)p->m,
                 read = rows * (double)(p->n + width_of(p));
    const double bytes = qn_type_bits(p->d_type) / 8.0;
    double moved = (read + rows * (double)width_of(p)) * bytes;
    int launches = 1 + (p->dbias != 0);

    if (p->dprob) {
        moved += read * bytes;
        launches++;
    }
    return qn_model_cast(moved, launches);
}

static double sum_cycles(const struct quern_problem *p)
{
    struct space s;
    int launches = (p->dbias != 0) + p->dprob;

    lay_out(p, &s);
    return qn_model_cast(2 * (double)(s.end - s.partials), launches);
}

/* Of one of them; `cycles` stays where nothing serves it. */
static int look(struct qn_session *s, const struct quern_problem *p,
                int *served, double *cycles)
{
    struct qn_choice choice;
    int found;

    s->demand.problem = p;
    s->demand.recipe = qn_context_recipe(s->ctx, p->recipe);
    found = qn_select_best(s->ctx, &s->demand, &choice);
    *served = found > 0;
    if (found > 0)
        *cycles = choice.figures.cycles;
    return found < 0 ? QUERN_ENOMEM : QUERN_OK;
}

int qn_gradient_compare(struct quern_context *ctx,
                        const struct quern_problem *p,
                        const struct quern_problem *plain,
                        const struct quern_plan_options *options, int imagined,
                        struct qn_gradient_figures *f)
{
    struct qn_session s;
    int code = qn_session_machine(&s, ctx, options), apart = 0;

    memset(f, 0, sizeof *f);
    if (!code && imagined && !s.driver &&
        s.options.backend == QUERN_BACKEND_AUTO)
        qn_session_imagine(&s, QUERN_BACKEND_AUTO);
    if (!code)
        code = look(&s, p, &f->served, &f->cycles);
    if (!code)
        code = look(&s, plain, &apart, &f->product);
    f->cycles += sum_cycles(p);
    f->cast = cast_cycles(p);
    f->better = f->served && (s.demand.backend == QUERN_BACKEND_HOST ||
                              !apart || f->cycles < f->product + f->cast);
    qn_session_close(&s);
    return code;
}

/* -------------------------------------------------------------------- plan */

/* As a cast's whose sums they would be. */
static void find_quantization(const struct quern_problem *p,
                              struct quern_quantization *q)
{
    *q = (struct quern_quantization){.work = QUERN_QUANTIZE,
                                     .of = QUERN_DY,
                                     .type = p->d_type,
                                     .copies = QUERN_ROW,
                                     .groups = p->groups,
                                     .m = p->m,
                                     .k = width_of(p)};
    memcpy(q->recipe, p->recipe, sizeof q->recipe);
}

int qn_gradient_plan(struct quern_plan *plan, struct qn_session *s)
{
    const struct quern_problem *p = &plan->problem;
    struct quern_quantize_plan *sums;
    struct quern_quantization q;
    int ops[2], count = 0, code;

    if (p->dbias && qn_geometry_back(p))
        ops[count++] = QN_SUM;
    if (p->dprob)
        ops[count++] = QN_SUM_ROWS;
    if (!count)
        return QUERN_OK;
    find_quantization(p, &q);
    code = qn_quantize_steps(s, &q, plan->backend, ops, count, &sums);
    for (int i = 0; !code && i < count; i++) {
        struct qn_launch *launch = qn_launch_add(plan, QN_WORK_SUM);

        launch->cast = sums;
        launch->index = i;
    }
    return code;
}

/* --------------------------------------------------------------------- run */

void qn_gradient_place(const struct quern_problem *p,
                       const struct quern_args *args, struct qn_values *v)
{
    char *const base = args->workspace;
    struct space s;

    if (!qn_geometry_back(p))
        return; /* other kernels know sums of their own by these names */
    lay_out(p, &s);
    v->partials = p->dbias ? (float *)(void *)(base + s.partials) : NULL;
    v->row_partials =
        p->dprob ? (float *)(void *)(base + s.row_partials) : NULL;
    v->dbias = args->dbias;
    v->dbias_add = p->dbias == QUERN_DBIAS_ADD;
    v->dprob = args->dprob;
}

void qn_gradient_set(const struct quern_plan *plan,
                     const struct quern_args *args, struct qn_values *v)
{
    qn_gradient_place(&plan->problem, args, v);
}

int qn_gradient_sum(struct qn_frame *frame, const struct qn_launch *launch)
{
    const struct quern_problem *p =
        launch->product ? &launch->product->problem : &frame->plan->problem;
    const struct quern_quantize_plan *sums = launch->cast;
    const int columns = sums->steps[launch->index].kernel->op == QN_SUM;
    struct qn_values v;

    qn_plan_values(&v, &frame->values);
    v.k = (int)(columns ? width_of(p) : p->n);
    return qn_quantize_step_run(sums, launch->index, &v, frame->stream);
}
