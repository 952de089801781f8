/*
** streamed.c: products that make what they multiply.
**
** Kernels whose field `quantize` says "streamed" write A's copies in the
** product's own launch; those that say "inline" make A in shared memory, again
** for each column of tiles, and write nothing of it.
**
** What is read and what is made obeys the rules of a quantization, which the
** plan holds: with its kernels where they run before the product, and without
** where the product's kernel does their work.
*/
#include "streamed.h"
#include "ahead.h"
#include "args.h"
#include "gradient.h"
#include "host_sizes.h"
#include "model.h"
#include "select.h"
#include "types.h"

#include <stdlib.h>
#include <string.h>

/* Words of the workspace: tickets, and a flag for each run of 128 rows and 512
   steps of k.                               COUPLED: flags */
enum { CHUNK = 512, FIRST_FLAG = 64 };

/* Numbers are read 16 bytes at a time. */
enum { NUMBERS = QN_ALIGNMENT / 2 };

static const char *const words[] = {"apart", "streamed", "inline", "any"};
enum { WORDS = sizeof words / sizeof *words };

const char *qn_streamed_at(int i)
{
    return i >= 0 && i < WORDS ? words[i] : NULL;
}

const char *qn_streamed_name(int quantize)
{
    const char *name = qn_streamed_at(quantize);

    return name ? name : "?";
}

int qn_streamed_find(const char *name, int *quantize)
{
    for (int i = 0; i < WORDS; i++)
        if (!strcmp(words[i], name)) {
            *quantize = i;
            return 1;
        }
    return 0;
}

/* What a kernel's field `quantize` says. */
static int way_of(const char *quantize)
{
    int way = QUERN_APART;

    if (quantize && *quantize)
        qn_streamed_find(quantize, &way);
    return way;
}

int qn_streamed_way(const struct qn_kernel *kernel)
{
    return way_of(kernel->quantize);
}

int qn_streamed_serves(int wanted, const char *quantize)
{
    int way = way_of(quantize);

    return !way || wanted == way || wanted == QUERN_FUSE_ANY;
}

int qn_streamed_wanted(int wanted, const struct qn_kernel *kernel)
{
    return wanted && wanted == qn_streamed_way(kernel);
}

/* ----------------------------------------------------------------- problem */

/* What the run makes of A. */
static void find_quantization(const struct quern_problem *p,
                              const struct qn_recipe *recipe,
                              struct quern_quantization *q)
{
    qn_scale_source(p, recipe, QN_ROLE_A, q);
    q->copies = QUERN_ROW | QUERN_COLUMN;
    q->dbias = qn_streamed_sums(p) ? p->dbias : QUERN_NO_DBIAS;
}

int qn_streamed_sums(const struct quern_problem *p)
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

int qn_streamed_problem(const struct quern_problem *p,
                        const struct qn_recipe *recipe)
{
    const char *word = qn_streamed_name(p->quantize);
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

static size_t flag_bytes(const struct quern_quantization *q)
{
    return (size_t)(FIRST_FLAG +
                    qn_quantize_tiles(q) * qn_quantize_ceil_div(q->k, CHUNK)) *
           sizeof(unsigned);
}

/* Where the part of flags or of a cast begins: behind what a product that goes
   back through an activation leaves for sums. */
static size_t begins_at(const struct quern_problem *p)
{
    return qn_padded(qn_gradient_end(p));
}

/* The same of a run, whose rows may be fewer: flags of any run lie there, and
   nothing else ever does. */
static struct quern_problem whole_of(const struct quern_plan *plan)
{
    struct quern_problem whole = plan->problem;

    whole.m = plan->quantizer->q.m;
    return whole;
}

/* Where that ends: a launch leaves flags as it found them, so that sums of
   their own lie behind. */
static size_t ends_at(const struct quern_problem *p,
                      const struct qn_recipe *recipe)
{
    struct qn_quantize_space apart;
    struct quern_quantization q;
    size_t flags, most;

    find_quantization(p, recipe, &q);
    qn_quantize_lay_out(&q, recipe, &apart);
    flags = flag_bytes(&q);
    most = flags > apart.end ? flags : apart.end;
    return begins_at(p) + most;
}

size_t qn_streamed_end(const struct quern_problem *p,
                       const struct qn_recipe *recipe)
{
    struct qn_quantize_space sums;
    struct quern_quantization q;

    if (!qn_streamed_sums(p))
        return ends_at(p, recipe);
    find_quantization(p, recipe, &q);
    qn_quantize_lay_out(&q, recipe, &sums); /* which has more than it needs */
    return qn_padded(ends_at(p, recipe)) + sums.end;
}

int qn_streamed_describe(struct quern_context *ctx,
                         const struct quern_problem *p,
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
** Figures are of runs that want no column copy: where they do, a cast of both
** moves a byte more for each value, and one beside an inline product three.
** A cast alone waits for memory (qn_model_cast):
**     apart     cycles + those of the cast
** Three warps of each CTA beside the product make so many values of both copies
** a cycle, and the first tiles wait for their rows:
**     streamed  max(cycles, values / (CTAs * VALUES), memory of both) + START
** Beside the math warps they make so many values of a tile's rows a cycle, and
** need STEP for 128 of k besides; again for each column of tiles, or where a
** cluster has several, once for these. Numbers are read instead of the copy:
**     inline    a tile takes at least k * (tile_m / cluster_n / INLINE
**               + STEP / 128)
*/
#define VALUES 0.5 /* bench/NOTES.md, 17 */
#define START  15000.0
#define INLINE 11.0
#define STEP   1800.0

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double qn_streamed_tile(const struct qn_kernel *kernel, double k)
{
    double rows = kernel->tile[0] / larger(kernel->cluster[1], 1);

    if (qn_streamed_way(kernel) != QUERN_INLINE)
        return 0;
    return k * (rows / INLINE + STEP / 128);
}

double qn_streamed_bytes(const struct qn_kernel *kernel)
{
    int numbers = qn_streamed_way(kernel) == QUERN_INLINE;

    return qn_type_bits(numbers ? QUERN_BF16 : kernel->a.type) / 8.0;
}

void qn_streamed_estimate(const struct qn_demand *demand,
                          const struct qn_kernel *kernel, double rate,
                          struct qn_figures *f)
{
    const double values = (double)demand->problem->m * demand->problem->k;
    const int way = qn_streamed_way(kernel);
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
    if (way != QUERN_STREAMED)
        return;
    f->cycles = larger(f->cycles, values / (VALUES * larger(demand->sms, 1)));
    f->cycles = larger(f->cycles, f->memory_cycles + bytes / rate) + START;
}

void qn_streamed_why(const struct quern_problem *p,
                     const struct qn_choice *best, struct qn_text *text)
{
    static const char *const where[] = {
        [QUERN_APART] = "by a launch before the product's",
        [QUERN_STREAMED] = "in the product's own launch, ahead of its tiles",
        [QUERN_INLINE] = "in shared memory, beside the products"};
    const struct qn_kernel *kernel = best->candidate->kernel;
    const int way = qn_streamed_way(kernel);
    int64_t columns = (int64_t)kernel->tile[1] * kernel->cluster[1];
    long long times = columns > 0 ? (p->n + columns - 1) / columns : 1;

    qn_text_add(text, "a is quantized %s; ", where[way]);
    if (way == QUERN_INLINE)
        qn_text_add(text, "at least %.0f cycles of a tile, %lld %s; ",
                    qn_streamed_tile(kernel, (double)p->k), times,
                    times == 1 ? "time for each row" : "times for each row");
    if (qn_streamed_sums(p))
        qn_text_add(text, "its dbias %s; ",
                    way == QUERN_APART ? "by the same"
                    : way == QUERN_STREAMED
                        ? "by a launch of its own"
                        : "by one of its own, or by that of a column copy");
    qn_text_add(text, "a launch for that alone would take %.0f cycles\n\n",
                best->figures.quantize_cycles);
}

/* -------------------------------------------------------------------- plan */

/* For sums of what no cast reads. */
static int plan_sums(struct quern_plan *plan, const struct qn_session *s,
                     const struct quern_plan_options *options)
{
    const struct qn_recipe *plain = qn_ahead_plain(s->ctx);
    struct quern_quantization q;
    int code;

    if (!plain)
        return qn_error_set(QUERN_ENOKERNEL,
                            "dbias: no recipe has bf16 for x, w and dy, whose "
                            "kernels would sum dy");
    find_sums(&plan->problem, s->demand.recipe, plain, &q);
    code = quern_quantize_plan(s->ctx, &q, options, &plan->of_in);
    if (code)
        qn_error_add("  in the sums of dy");
    return code;
}

int qn_streamed_plan(struct quern_plan *plan, const struct qn_session *s)
{
    const struct quern_plan_options options = {
        .backend = plan->driver && s->options.backend == QUERN_BACKEND_AUTO
                       ? QUERN_BACKEND_AUTO
                       : plan->backend,
        .sms = s->options.sms};
    struct quern_quantization q;
    int way, code = QUERN_OK;

    if (!plan->problem.quantize)
        return QUERN_OK;
    way = qn_streamed_way(plan->kernel);
    find_quantization(&plan->problem, s->demand.recipe, &q);
    if (way && qn_streamed_sums(&plan->problem))
        code = plan_sums(plan, s, &options);
    if (code)
        return code;
    if (way == QUERN_STREAMED)
        return qn_quantize_outline(s->ctx, &q, &plan->quantizer);
    return quern_quantize_plan(s->ctx, &q, &options, &plan->quantizer);
}

void qn_streamed_plan_free(struct quern_plan *plan)
{
    quern_quantize_plan_free(plan->quantizer);
    quern_quantize_plan_free(plan->of_in);
}

/* Where the caller has the groups' sizes. */
static void find_sizes(const struct quern_plan *plan,
                       const struct quern_args *args, struct qn_values *v)
{
    const int from = qn_args_sizes(plan, args);
    const struct quern_tensor *tensor = qn_args_tensor(args, from);

    v->first_dims = args->host_sizes
                        ? (const void *)args->host_sizes
                        : qn_args_lengths(tensor, &plan->operands[from]);
    v->offsets = args->host_sizes ? NULL : tensor->offsets;
    v->sizes_bytes =
        args->host_sizes || tensor->sizes_type == QUERN_I64 ? 8 : 4;
}

/* The quantization's arguments, with the groups' sizes of `values`; a is room
   that a run may leave alone. */
static void find_args(const struct quern_plan *plan,
                      const struct quern_quantize_plan *quantizer,
                      const struct quern_args *args,
                      const struct qn_values *values,
                      struct quern_quantize_args *out)
{
    const struct quern_problem whole = whole_of(plan);

    *out = quantizer->need.args;
    out->in = args->in;
    out->row = args->a;
    out->column = args->column;
    out->dbias = qn_streamed_sums(&plan->problem) ? args->dbias : NULL;
    out->noop = args->noop;
    out->workspace = (char *)args->workspace + begins_at(&whole);
    out->first_dims = values->first_dims;
    out->offsets = values->offsets;
    out->sizes_type = values->sizes_bytes == 8 ? QUERN_I64 : QUERN_I32;
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
    if (qn_streamed_way(plan->kernel) && in->stride % NUMBERS)
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

int qn_streamed_check(const struct quern_plan *plan,
                      const struct quern_args *args)
{
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args made;
    struct qn_values sizes;
    int code;

    if (!plan->problem.quantize)
        return check_none(args);
    if (!plan->quantizer) /* the run of the product, which comes first, does */
        return QUERN_OK;
    find_sizes(plan, args, &sizes);
    code = check_reads(plan, &args->in);
    if (!code)
        code =
            qn_quantize_fit(plan->quantizer, plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(plan, fitted, args, &sizes, &made);
    return qn_quantize_args_given(fitted, &made);
}

void qn_streamed_set(const struct quern_plan *plan,
                     const struct quern_args *args, struct qn_values *v)
{
    const struct quern_problem *p = &plan->problem;
    struct quern_problem whole;

    if (!p->quantize || qn_streamed_way(plan->kernel) != QUERN_STREAMED)
        return; /* other kernels know copies of their own by these names */
    whole = whole_of(plan);
    v->in = args->in.data;
    v->in_stride = args->in.stride ? args->in.stride : p->k;
    v->row = args->a.data;
    v->row_sf = args->a.sf;
    v->row_stride = args->a.stride ? args->a.stride : p->k;
    v->column = args->column.data;
    v->column_sf = args->column.sf;
    v->column_stride = plan->need.args.column.shape[1];
    v->flags =
        (unsigned *)(void *)((char *)args->workspace + begins_at(&whole));
}

/* What is quantized, of which no cast makes dbias. */
static int run_sums(const struct quern_plan *plan,
                    const struct quern_args *args,
                    const struct qn_values *values, void *stream)
{
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args sums;
    struct quern_problem whole;
    int code;

    if (!plan->of_in)
        return QUERN_OK;
    whole = whole_of(plan);
    code = qn_quantize_fit(plan->of_in, plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(plan, fitted, args, values, &sums);
    sums.row = fitted->need.args.row;
    sums.column = fitted->need.args.column;
    sums.workspace = (char *)args->workspace +
                     qn_padded(ends_at(&whole, plan->quantizer->recipe));
    return quern_quantize_run(fitted, &sums, stream);
}

int qn_streamed_run(const struct quern_plan *plan,
                    const struct quern_args *args,
                    const struct qn_values *values, void *stream)
{
    const struct quern_quantize_plan *fitted;
    struct quern_quantize_plan room;
    struct quern_quantize_args made;
    const int way = plan->quantizer ? qn_streamed_way(plan->kernel) : 0;
    int code;

    if (!plan->quantizer)
        return QUERN_OK;
    if (way == QUERN_STREAMED || (way == QUERN_INLINE && !args->column.data))
        return run_sums(plan, args, values, stream);
    code = qn_quantize_fit(plan->quantizer, plan->problem.m, &room, &fitted);
    if (code)
        return code;
    find_args(plan, fitted, args, values, &made);
    if (way == QUERN_INLINE)
        made.row.data = NULL; /* nobody reads it */
    return quern_quantize_run(fitted, &made, stream);
}
