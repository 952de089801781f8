/*
** fuse.c: products that quantize what they multiply.
**
** Kernels whose field `quantize` says "inline" quantize A in shared memory,
** again for each column of tiles, and write no copy of it; before all others a
** cast runs, in a launch of its own.
*/
#include "fuse.h"
#include "ahead.h"
#include "args.h"
#include "gradient.h"
#include "host_sizes.h"
#include "model.h"
#include "run.h"
#include "select.h"
#include "types.h"

#include <stdlib.h>
#include <string.h>

/* Numbers are read 16 bytes at a time. */
enum { NUMBERS = QN_ALIGNMENT / 2 };

/* What a kernel's field `quantize` says. */
static int way_of(const char *quantize)
{
    int way = QUERN_APART;

    if (quantize && *quantize)
        qn_fusion_find(quantize, &way);
    return way;
}

int qn_fuse_way(const struct qn_kernel *kernel)
{
    return way_of(kernel->quantize);
}

int qn_fuse_serves(int wanted, const char *quantize)
{
    int way = way_of(quantize);

    return !way || wanted == way || wanted == QUERN_FUSE_ANY;
}

int qn_fuse_wanted(int wanted, const struct qn_kernel *kernel)
{
    return wanted && wanted == qn_fuse_way(kernel);
}

/* ----------------------------------------------------------------- problem */

/* What the run makes of A. */
static void find_quantization(const struct quern_problem *p,
                              const struct qn_recipe *recipe,
                              struct quern_quantization *q)
{
    qn_scale_source(p, recipe, QN_ROLE_A, q);
    q->copies = QUERN_ROW | QUERN_COLUMN;
    q->dbias = qn_fuse_sums(p) ? p->dbias : QUERN_NO_DBIAS;
}

int qn_fuse_sums(const struct quern_problem *p)
{
    return p->dbias && p->quantize && !qn_geometry_back(p);
}

/* The same sums by a launch for these alone, of what nobody quantizes. */
static void find_sums(const struct quern_problem *p,
                      const struct qn_recipe *recipe,
                      const struct qn_recipe *plain,
                      struct quern_quantization *q)
{
    find_quantization(p, recipe, q);
    q->copies = QUERN_ROW;
    memset(q->recipe, 0, sizeof q->recipe);
    strncpy(q->recipe, plain->name, sizeof q->recipe - 1);
}

int qn_fuse_problem(const struct quern_problem *p,
                    const struct qn_recipe *recipe)
{
    const char *word = qn_fusion_name(p->quantize);
    struct quern_quantization q;
    const struct qn_scaling *s;

    if (!p->quantize)
        return QUERN_OK;
    if (p->op == QUERN_WGRAD)
        return qn_error_set(QUERN_EINVAL,
                            "quantize=%s: wgrad multiplies column copies, "
                            "which fprop and dgrad make",
                            word);
    s = qn_scale_source(p, recipe, QN_ROLE_A, &q);
    if (!s)
        return qn_error_set(QUERN_EINVAL,
                            "quantize=%s: recipe %s keeps a as it is, there is "
                            "nothing to quantize",
                            word, p->recipe);
    if (s->stochastic || s->history)
        return qn_error_set(QUERN_EINVAL,
                            "quantize=%s: recipe %s needs %s, which products "
                            "do not take; quantize a by itself",
                            word, p->recipe,
                            s->history ? "a history" : "a seed");
    return QUERN_OK;
}

/* The part of a cast begins after the sums of a product that goes back through
   an activation. */
static size_t begins_at(const struct quern_problem *p)
{
    return qn_padded(qn_gradient_end(p));
}

/* The plan's own problem, of a run that may have fewer rows: each part of the
   workspace stays where it was. */
static struct quern_problem whole_of(const struct quern_plan *plan)
{
    struct quern_problem whole = plan->problem;

    whole.m = qn_launch_find(plan, QN_WORK_QUANTIZE_A)->cast->q.m;
    return whole;
}

/* The part of sums that no cast makes comes after it. */
static size_t ends_at(const struct quern_problem *p,
                      const struct qn_recipe *recipe)
{
    struct qn_quantize_space apart;
    struct quern_quantization q;

    find_quantization(p, recipe, &q);
    qn_quantize_lay_out(&q, recipe, &apart);
    return begins_at(p) + apart.end;
}

size_t qn_fuse_end(const struct quern_problem *p,
                   const struct qn_recipe *recipe)
{
    struct qn_quantize_space sums;
    struct quern_quantization q;

    if (!qn_fuse_sums(p))
        return ends_at(p, recipe);
    find_quantization(p, recipe, &q);
    qn_quantize_lay_out(&q, recipe, &sums); /* which has more than it needs */
    return qn_padded(ends_at(p, recipe)) + sums.end;
}

int qn_fuse_describe(struct quern_context *ctx, const struct quern_problem *p,
                     const struct qn_recipe *recipe,
                     struct quern_description *d)
{
    struct quern_quantize_description made;
    struct quern_quantization q;
    int code;

    if (!p->quantize)
        return QUERN_OK;
    find_quantization(p, recipe, &q);
    code = qn_quantize_describe(ctx, &q, &made, NULL, NULL);
    if (code)
        return code;
    d->args.in = made.args.in;
    d->args.in.alignment = QN_ALIGNMENT;
    d->args.column = made.args.column;
    return QUERN_OK;
}

/* ------------------------------------------------------------------- model */

/*
** Figures are of runs that want no column copy: with one, a cast of both copies
** moves a byte more for each value, and one before an inline product three.
** A cast by itself waits for memory (qn_model_cast):
**     apart     cycles + those of the cast
** Next to the math warps three warps quantize so many values of a tile's rows
** a cycle, and need STEP for 128 of k besides; again for each column of tiles,
** or if a cluster has several, once for these. Numbers are read instead of the
** copy:
**     inline    a tile takes at least k * (tile_m / cluster_n / INLINE
**               + STEP / 128)
*/
#define INLINE 11.0
#define STEP   1800.0

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double qn_fuse_tile(const struct qn_kernel *kernel, double k)
{
    double rows = kernel->tile[0] / larger(kernel->cluster[1], 1);

    if (qn_fuse_way(kernel) != QUERN_INLINE)
        return 0;
    return k * (rows / INLINE + STEP / 128);
}

double qn_fuse_bytes(const struct qn_kernel *kernel)
{
    int numbers = qn_fuse_way(kernel) == QUERN_INLINE;

    return qn_type_bits(numbers ? QUERN_BF16 : kernel->a.type) / 8.0;
}

void qn_fuse_estimate(const struct qn_demand *demand,
                      const struct qn_kernel *kernel, double rate,
                      struct qn_figures *f)
{
    const double values = (double)demand->problem->m * demand->problem->k;
    const int way = qn_fuse_way(kernel);
    struct quern_tensor row = {0};
    struct quern_quantization q;
    double bytes;

    if (!demand->problem->quantize)
        return;
    find_quantization(demand->problem, demand->recipe, &q);
    qn_quantize_copy(&q, demand->recipe, QUERN_ROW, &row);
    bytes = 2 * values + (double)row.bytes + (double)row.sf_bytes;
    f->quantize_cycles = qn_model_cast(bytes, 0);
    if (way == QUERN_APART)
        f->cycles += f->quantize_cycles;
    if (way == QUERN_INLINE) {
        f->memory_cycles += (2 * values - (double)row.bytes) / rate;
        f->cycles = larger(f->cycles, f->memory_cycles);
    }
}

void qn_fuse_why(const struct quern_problem *p, const struct qn_choice *best,
                 struct qn_text *text)
{
    static const char *const where[] = {
        [QUERN_APART] = "by a launch before the product's",
        [QUERN_INLINE] = "in shared memory, beside the products"};
    const struct qn_kernel *kernel = best->candidate->kernel;
    const int way = qn_fuse_way(kernel);
    int64_t columns = (int64_t)kernel->tile[1] * kernel->cluster[1];
    long long times = columns > 0 ? (p->n + columns - 1) / columns : 1;

    qn_text_add(text, "a is quantized %s; ", where[way]);
    if (way == QUERN_INLINE)
        qn_text_add(text, "at least %.0f cycles of a tile, %lld %s; ",
                    qn_fuse_tile(kernel, (double)p->k), times,
                    times == 1 ? "time for each row" : "times for each row");
    if (qn_fuse_sums(p))
        qn_text_add(text, "its dbias %s; ",
                    way == QUERN_APART
                        ? "by the same"
                        : "by one of its own, or by that of a column copy");
    qn_text_add(text, "a launch for that alone would take %.0f cycles\n\n",
                best->figures.quantize_cycles);
}

/* -------------------------------------------------------------------- plan */

/* For sums of what no cast reads. */
static int add_sums(struct quern_plan *plan, const struct qn_session *s,
                    const struct quern_plan_options *options)
{
    const struct qn_recipe *plain = qn_ahead_plain(s->ctx);
    struct quern_quantize_plan *cast;
    struct quern_quantization q;
    int code;

    if (!plain)
        return qn_error_set(QUERN_ENOKERNEL,
                            "dbias: no recipe has bf16 for x, w and dy, whose "
                            "kernels would sum dy");
    find_sums(&plan->problem, s->demand.recipe, plain, &q);
    code = quern_quantize_plan(s->ctx, &q, options, &cast);
    if (code)
        qn_error_add("  in the sums of dy");
    else
        qn_launch_add(plan, QN_WORK_SUM_A)->cast = cast;
    return code;
}

int qn_fuse_plan(struct quern_plan *plan, const struct qn_session *s)
{
    const struct quern_plan_options options = {
        .backend = plan->driver && s->options.backend == QUERN_BACKEND_AUTO
                       ? QUERN_BACKEND_AUTO
                       : plan->backend,
        .sms = s->options.sms};
    struct quern_quantize_plan *cast;
    struct quern_quantization q;
    int code = QUERN_OK;

    if (!plan->problem.quantize)
        return QUERN_OK;
    find_quantization(&plan->problem, s->demand.recipe, &q);
    if (qn_fuse_way(plan->kernel) && qn_fuse_sums(&plan->problem))
        code = add_sums(plan, s, &options);
    if (!code)
        code = quern_quantize_plan(s->ctx, &q, &options, &cast);
    if (!code)
        qn_launch_add(plan, QN_WORK_QUANTIZE_A)->cast = cast;
    return code;
}

/* The arguments of a cast; its sizes are those of the run. `a` is room that a run
   may leave alone. */
static void find_args(const struct quern_plan *plan,
                      const struct quern_quantize_plan *cast,
                      const struct quern_args *args,
                      struct quern_quantize_args *out)
{
    const struct quern_problem whole = whole_of(plan);

    *out = cast->need.args;
    out->in = args->in;
    out->row = args->a;
    out->column = args->column;
    out->dbias = qn_fuse_sums(&plan->problem) ? args->dbias : NULL;
    out->noop = args->noop;
    out->workspace = (char *)args->workspace + begins_at(&whole);
}

/* Where the caller has the groups' sizes. */
static void find_sizes(const struct quern_plan *plan,
                       const struct quern_args *args,
                       struct quern_quantize_args *out)
{
    const int from = qn_args_sizes(plan, args);
    const struct quern_tensor *tensor = qn_args_tensor(args, from);

    out->first_dims = args->host_sizes
                          ? (const void *)args->host_sizes
                          : qn_args_lengths(tensor, &plan->operands[from]);
    out->offsets = args->host_sizes ? NULL : tensor->offsets;
    out->sizes_type = args->host_sizes ? QUERN_I64 : tensor->sizes_type;
}

/* --------------------------------------------------------------------- run */

/* What kernels of products ask for besides. */
static int check_reads(const struct quern_plan *plan,
                       const struct quern_tensor *in)
{
    if ((uintptr_t)in->data % QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL,
                            "in.data is %p: it must be a multiple of %d",
                            in->data, QN_ALIGNMENT);
    if (qn_fuse_way(plan->kernel) && in->stride % NUMBERS)
        return qn_error_set(QUERN_EINVAL,
                            "in.stride is %lld: %s reads rows at multiples of "
                            "%d bytes, a multiple of %d is expected",
                            (long long)in->stride, plan->kernel->name,
                            QN_ALIGNMENT, NUMBERS);
    return QUERN_OK;
}

/* What only such problems have. */
static int check_none(const struct quern_args *args)
{
    if (!args->in.data && !args->column.data)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s.data is not NULL: the problem does not say "
                        "quantize=, a is there already",
                        args->in.data ? "in" : "column");
}

int qn_fuse_check(const struct quern_plan *plan, const struct quern_args *args)
{
    const struct qn_launch *launch = qn_launch_find(plan, QN_WORK_QUANTIZE_A);
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args made;
    int code;

    if (!launch)
        return check_none(args);
    code = check_reads(plan, &args->in);
    if (!code)
        code = qn_quantize_fit(launch->cast, plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(plan, fitted, args, &made);
    find_sizes(plan, args, &made);
    return qn_quantize_args_given(fitted, &made);
}

/* A product in whose mainloop A is quantized needs no cast of it, but for a
   columnwise tensor. */
static int needs_no_cast(const struct qn_frame *f)
{
    return qn_fuse_way(f->plan->kernel) == QUERN_INLINE &&
           !f->args->column.data;
}

static void set_sizes(const struct qn_frame *f, struct quern_quantize_args *a)
{
    a->first_dims = f->lengths;
    a->offsets = f->offsets;
    a->sizes_type = f->sizes_type;
}

int qn_fuse_sum(struct qn_frame *f, const struct qn_launch *launch)
{
    const struct quern_quantize_plan *fitted;
    const struct quern_problem whole = whole_of(f->plan);
    struct quern_quantize_plan room;
    struct quern_quantize_args sums;
    int code;

    if (!needs_no_cast(f))
        return QUERN_OK;
    code = qn_quantize_fit(launch->cast, f->plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(f->plan, fitted, f->args, &sums);
    set_sizes(f, &sums);
    sums.row = fitted->need.args.row;
    sums.column = fitted->need.args.column;
    sums.workspace =
        qn_frame_at(f, qn_padded(ends_at(&whole, f->plan->recipe)));
    return qn_quantize_launch(fitted, &sums, f->stream);
}

int qn_fuse_quantize(struct qn_frame *f, const struct qn_launch *launch)
{
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args made;
    int code;

    if (needs_no_cast(f))
        return QUERN_OK;
    code = qn_quantize_fit(launch->cast, f->plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(f->plan, fitted, f->args, &made);
    set_sizes(f, &made);
    if (qn_fuse_way(f->plan->kernel) == QUERN_INLINE)
        made.row.data = NULL; /* nobody reads it */
    return qn_quantize_launch(fitted, &made, f->stream);
}
