/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_activate.c: products with a bias and an activation: each kernel against
   float64, with and without what it may be given, copies of its result against
   those made of it afterwards; the same bytes again. Copies of every recipe and
   epilogues that no kernel fuses are tested by the launches of their plans. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle.h"
#include "base/types.h"
#include "choose/tensormap.h"
#include "problem/geometry.h"

enum { MOST_KERNELS = 4096, MOST_EACH = 13, ROWS = 400 };

static struct {
    int count, each; /* problems of a kernel */
    const struct qn_kernel *kernels[MOST_KERNELS];
    char result[MOST_KERNELS][MOST_EACH][700]; /* "" if nothing is wrong */
} work;

/* Columns that the kernel takes in its i-th problem, whose operands take turns
   so, are multiples of this. */
static int step_of(const struct qn_kernel *k, int i, int interleave)
{
    for (int j = 0; j < k->nrules; j++)
        if (!strcmp(k->rules[j].text, "n % 256 == 0") ||
            !strcmp(k->rules[j].text, "n % 128 == 0"))
            return 256;
        else if (!strcmp(k->rules[j].text, "n % 64 == 0"))
            return 64;
    if (!qn_tensormap_any(k) && i / 2 % 2) /* rows of any length */
        return interleave ? 2 * interleave : 6;
    if (k->epilogue >= QN_GRADIENT)
        return interleave > 8 ? interleave : 8;
    return interleave > 8 ? 2 * interleave : 16;
}

/* The activation of a kernel's i-th problem, and how its operands take turns:
   a kernel of any has another one each time, and none. */
static const char *activation_of(const struct qn_kernel *k, int i,
                                 int *interleave)
{
    static const int runs[] = {0, 1, 8, 2, 32};
    const int which = i % QUERN_ACTIVATION_COUNT;

    *interleave = k->interleave;
    if (strcmp(k->activation, "any") != 0)
        return k->activation;
    if (qn_activation_operands(which) > 1)
        *interleave = runs[i % 5];
    return qn_activation_name(which);
}

/* The i-th problem of a kernel: whole runs of columns, other sides and other
   arguments each time. Many groups have few tiles each. */
static void write_line(const struct qn_kernel *k, int64_t groups, int64_t m,
                       int i, char *line, size_t size)
{
    static const char *const sums[] = {"", " dbias=1 dprob=1", " dbias=add",
                                       " dprob=1"}; /* odd ones have prob=1 */
    static const int columns[] = {1, 9, 33, 16, 5}, steps[] = {72, 264, 8, 520};
    int interleave;
    const char *activation = activation_of(k, i, &interleave);
    const int step = step_of(k, i, interleave), many = groups > 100;
    const int one = !strcmp(activation, "none");
    const int back = k->epilogue >= QN_GRADIENT;
    size_t used = (size_t)snprintf(
        line, size, "%s %s g=%lld m=%lld n=%d k=%d d=%s layout=%s%s%s",
        back ? "dgrad" : "fprop", k->recipe, (long long)groups, (long long)m,
        step * (many         ? 1 + i % 2 * (step < 256)
                : step < 256 ? columns[i % 5]
                             : 1 + i % 3),
        many ? 72 : steps[i % 4], qn_type_name(k->d.type),
        qn_layout_name(k->a.major, k->b.major),
        back                ? sums[i % 4]
        : i % 3 == 1 || one ? " bias=1"
                            : "",
        i % 5 == 2 ? " alpha=any" : "");

    if (used < size && i % 2)
        used += (size_t)snprintf(line + used, size - used, " prob=1");
    if (!one && used < size)
        used += (size_t)snprintf(line + used, size - used, " activation=%s%s",
                                 activation, i % 3 && !back ? " saved=1" : "");
    if (interleave && used < size)
        used += (size_t)snprintf(line + used, size - used, " interleave=%d",
                                 interleave);
    if ((k->epilogue == QN_COPIES || k->epilogue == QN_GRADIENT_COPIES) &&
        used < size)
        snprintf(line + used, size - used, " copies=%s",
                 i % 4 ? "both" : "rowwise");
}

/* D, P and T with their scales, and sums that are not added to what is there,
   as one run left them and as the next one does. */
static const char *repeat(struct qn_job *job)
{
    const struct qn_memory *const written[] = {
        &job->call.memory[QUERN_ARG_D],
        &job->call.memory[QUERN_ARG_PRE],
        &job->call.memory[QUERN_ARG_D_COLUMNWISE],
        &job->call.memory[QUERN_ARG_D_SF],
        &job->call.memory[QUERN_ARG_D_COLUMNWISE_SF],
        &job->call.memory[QUERN_ARG_D_GLOBAL],
        &job->call.memory[QUERN_ARG_D_COLUMNWISE_GLOBAL],
        &job->call.memory[QUERN_ARG_HISTORY],
        &job->call.memory[QUERN_ARG_DPROB],
        &job->call.memory[QUERN_ARG_DBIAS]};
    const int count = job->problem.dbias == QUERN_DBIAS_ADD ? 9 : 10;
    const char *bad = NULL;

    for (int i = 0; i < count && !bad; i++)
        if (written[i]->base)
            bad = gpu_job_repeat(job, written[i]);
    return bad;
}

/* One run, all that it wrote, and the same again. */
static void judge(struct qn_job *job, char *text, size_t size)
{
    struct qn_verdict verdict;
    const char *bad = NULL;

    if (qn_call_queue(&job->call) || qn_call_check(&job->call) ||
        qn_oracle_judge(job, QN_ORACLE_FLOAT64, ROWS, &verdict))
        bad = quern_errmsg();
    else if (!verdict.passed)
        qn_oracle_print(&verdict, text, size);
    else
        bad = repeat(job);
    if (bad)
        snprintf(text, size, "%s", bad);
}

/* The i-th problem of kernel `number`. */
static void run_one(int number, int i)
{
    const struct qn_kernel *k = work.kernels[number];
    const struct qn_options options = {.command = "gpu_suite",
                                       .backend = QUERN_BACKEND_JIT,
                                       .kernel = k->name,
                                       .gap = 8 * (i % 3),
                                       .seed = gpu_options.seed};
    const int turn = number * work.each + i;
    const struct qt_pattern *pattern = &qt_patterns[turn % qt_npatterns];
    struct qt_case c = {.what = "activate", .type = QUERN_BF16, .seed = 5};
    struct qn_problem problem;
    struct qn_job job = {0};
    char line[256], text[256] = "";

    qt_case_op(&c, k->op);
    qt_case_layout(&c, pattern);
    write_line(k, c.groups, c.m, turn, line, sizeof line);
    if (qn_problem_parse(gpu_context, line, &problem) ||
        qn_job_begin(&job, &options, gpu_context, &problem, c.length))
        snprintf(text, sizeof text, "it cannot be planned: %.200s",
                 quern_errmsg());
    else
        judge(&job, text, sizeof text);
    if (*text)
        snprintf(work.result[number][i], sizeof work.result[number][i],
                 "%s, %s, %s: %s", line, pattern->name, k->name, text);
    qn_call_free(&job.call);
}

static void run_any(int i, void *unused)
{
    (void)unused;
    run_one(i / work.each, i % work.each);
}

/* Does something follow the product that takes more than one value? */
static int follows(const struct qn_kernel *k)
{
    return (k->epilogue == QN_ACTIVATE || k->epilogue == QN_COPIES ||
            k->epilogue >= QN_GRADIENT) &&
           !qn_tensormap_takes(k, QN_PARAM_gather);
}

/* ---------------------------------------------------------- later launches */

/* Each recipe; columns that any kernel takes, and a few more. */
static const char *const copied[] = {
    "fprop %s g=%d m=%lld n=256 k=264 copies=both",
    "fprop %s g=%d m=%lld n=520 k=72 alpha=any sizes=host copies=rowwise",
    "fprop %s g=%d m=%lld n=256 k=72 bias=1 prob=1 d=f32 copies=both",
    ("fprop %s g=%d m=%lld n=512 k=264 activation=swiglu prob=1 saved=1 "
     "copies=both"),
    ("fprop %s g=%d m=%lld n=256 k=136 activation=geglu bias=1 interleave=32 "
     "sizes=host saved=1 copies=both"),
    ("fprop %s g=%d m=%lld n=512 k=136 activation=swiglu bias=1 interleave=1 "
     "prob=1 saved=1 copies=both"),
    "fprop %s g=%d m=%lld n=256 k=136 activation=gelu saved=1 copies=both",
    "fprop %s g=%d m=%lld n=264 k=136 activation=squared_relu copies=rowwise",
    "dgrad %s g=%d m=%lld n=264 k=136 copies=both",
    "dgrad %s g=%d m=%lld n=136 k=72 d=f32 alpha=any copies=rowwise",
    ("dgrad %s g=%d m=%lld n=256 k=136 activation=swiglu prob=1 dbias=1 "
     "dprob=1 copies=both"),
    ("dgrad %s g=%d m=%lld n=128 k=264 activation=reglu interleave=8 prob=1 "
     "dprob=1 dbias=add sizes=host copies=both"),
    ("dgrad %s g=%d m=%lld n=128 k=264 activation=swiglu interleave=1 prob=1 "
     "dprob=1 dbias=1 copies=both"),
    "dgrad %s g=%d m=%lld n=128 k=72 activation=silu prob=1 copies=both",
    "dgrad %s g=%d m=%lld n=136 k=72 activation=squared_relu copies=rowwise"};

/* Epilogues that few kernels fuse, or none: whole pieces of 16 bytes and
   others, of halves, of interleaved operands, and of runs. */
static const char *const apart[] = {
    "fprop %s g=%d m=%lld n=256 k=264 bias=1 prob=1",
    "fprop %s g=%d m=%lld n=132 k=72 d=f32 bias=1 alpha=any sizes=host",
    ("fprop %s g=%d m=%lld n=528 k=136 activation=swiglu interleave=1 bias=1 "
     "prob=1 saved=1"),
    ("fprop %s g=%d m=%lld n=536 k=136 activation=swiglu interleave=2 bias=1 "
     "prob=1 saved=1"),
    "fprop %s g=%d m=%lld n=200 k=72 activation=gelu_tanh bias=1 saved=1",
    ("fprop %s g=%d m=%lld n=144 k=72 activation=situ interleave=4 d=f32 "
     "saved=1 alpha=any"),
    "fprop %s g=%d m=%lld n=264 k=136 activation=geglu saved=1 sizes=host",
    "fprop %s g=%d m=%lld n=200 k=264 activation=squared_relu bias=1 prob=1",
    ("dgrad %s g=%d m=%lld n=264 k=136 activation=swiglu interleave=1 prob=1 "
     "dbias=1 dprob=1"),
    ("dgrad %s g=%d m=%lld n=136 k=72 activation=clamped_swiglu d=f32 prob=1 "
     "dprob=1 dbias=add alpha=any"),
    ("dgrad %s g=%d m=%lld n=132 k=72 activation=reglu interleave=4 prob=1 "
     "dbias=1 sizes=host"),
    ("dgrad %s g=%d m=%lld n=520 k=264 activation=geglu interleave=8 d=f32 "
     "prob=1 dbias=1 dprob=1"),
    "dgrad %s g=%d m=%lld n=136 k=72 activation=squared_relu d=f32 dbias=1"};

enum {
    COPIED = sizeof copied / sizeof *copied,
    APART = sizeof apart / sizeof *apart,
    LINES = COPIED > APART ? COPIED : APART,
    MOST_RECIPES = 64
};

static struct {
    const char *const *lines;
    int nlines;
    int count;
    const struct qn_recipe *recipes[MOST_RECIPES];
    char result[MOST_RECIPES][LINES][700];
} behind;

/* The recipe's own type of D where it does not write f32. */
static void copy_line(const struct qn_recipe *recipe, int i,
                      const struct qt_case *c, char *line, size_t size)
{
    static const char f32[] = " d=f32";
    char *d;

    snprintf(line, size, behind.lines[i], recipe->name, c->groups,
             (long long)c->m);
    d = strstr(line, f32);
    if (d && !(recipe->d_types & 1u << QUERN_F32))
        memmove(d, d + strlen(f32), strlen(d + strlen(f32)) + 1);
}

/* With the plan's own choice of kernels. */
static void copy_one(int r, int i)
{
    const struct qn_options options = {.command = "gpu_suite",
                                       .backend = QUERN_BACKEND_JIT,
                                       .gap = 8 * (i % 3),
                                       .seed = gpu_options.seed};
    const struct qt_pattern *pattern =
        &qt_patterns[(r * behind.nlines + i + (int)gpu_options.seed) %
                     qt_npatterns];
    struct qt_case c = {.what = "copies", .type = QUERN_BF16, .seed = 5};
    struct qn_problem problem;
    struct qn_job job = {0};
    char line[256], text[256] = "";

    qt_case_op(&c, behind.lines[i][0] == 'f' ? QUERN_FPROP : QUERN_DGRAD);
    qt_case_layout(&c, pattern);
    copy_line(behind.recipes[r], i, &c, line, sizeof line);
    if (qn_problem_parse(gpu_context, line, &problem) ||
        qn_job_begin(&job, &options, gpu_context, &problem, c.length))
        snprintf(text, sizeof text, "it cannot be planned: %.200s",
                 quern_errmsg());
    else
        judge(&job, text, sizeof text);
    if (*text)
        snprintf(behind.result[r][i], sizeof behind.result[r][i],
                 "%s, %s, %s: %s", line, pattern->name,
                 job.call.info.kernel ? job.call.info.kernel : "no kernel",
                 text);
    qn_call_free(&job.call);
}

static void copy_any(int i, void *unused)
{
    (void)unused;
    copy_one(i / behind.nlines, i % behind.nlines);
}

/* Recipes that scale all; of a quick run those whose copies no kernel makes. */
static int is_copied(const struct qn_recipe *recipe)
{
    const struct qn_scaling *s = recipe->scaling;
    int all = 1;

    for (int of = 0; of < QN_TENSORS; of++)
        all &= s[of].type != QUERN_TYPE_NONE;
    return all && gpu_variant_wants(recipe) &&
           !(gpu_options.quick && s->span == QN_SPAN_BLOCK && s->k == 128);
}

/* All lines of a list, of each recipe that is wanted. */
static void copy_all(const char *const *lines, int nlines,
                     int (*wants)(const struct qn_recipe *))
{
    const struct quern_registry *registry = gpu_registry();

    memset(&behind, 0, sizeof behind);
    behind.lines = lines;
    behind.nlines = nlines;
    for (int r = 0; r < registry->nrecipes; r++)
        if (wants(&registry->recipes[r]) && behind.count < MOST_RECIPES)
            behind.recipes[behind.count++] = &registry->recipes[r];
    gpu_spread(nlines * behind.count, copy_any, NULL);
    for (int i = 0; i < nlines * behind.count; i++) {
        const char *bad = behind.result[i / nlines][i % nlines];
        gpu_record(*bad ? bad : NULL);
    }
}

/* Side by side, as most of the time is the compiler's and the host's. */
void gpu_activate(void)
{
    work.each = gpu_options.only ? MOST_EACH : 3; /* all patterns, or some */
    work.count = gpu_variant_pick(follows, 5, work.kernels, MOST_KERNELS);
    if (!work.count)
        gpu_skip("no kernel here has an activation");
    else
        gpu_spread(work.each * work.count, run_any, NULL);
    for (int i = 0; i < work.each * work.count; i++) {
        const char *bad = work.result[i / work.each][i % work.each];
        gpu_record(*bad ? bad : NULL);
    }
    if (gpu_options.only)
        return;
    copy_all(copied, COPIED, is_copied);
    copy_all(apart, APART, gpu_variant_wants);
}
