/* SPDX-License-Identifier: Apache-2.0 */
/*
** quantize_plan.c: find the kernels of a quantization and load them.
**
** There is one kernel for each op, tensor, type of input and form on each
** architecture, so nothing has to be weighed: of those that run on the device,
** the one made for the latest architecture is taken, and of two for that the
** one that makes nothing but rowwise tensors, where nothing else is wanted.
*/
#include "quantize/quantize_plan.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/evidence.h"
#include "choose/host_sizes.h"
#include "choose/session.h"
#include "code/jit.h"
#include "code/module.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- choosing */

/* The source of quantization: enum qn_form. */
static int form_of(const struct qn_quantization *q)
{
    if (!q->activation)
        return QN_PLAIN;
    return q->of == QN_X ? QN_FORWARD : QN_BACKWARD;
}

/* Is only the rowwise tensor of plain values wanted? */
static int rows_alone(const struct qn_quantization *q)
{
    return q->work == QUERN_QUANTIZE && q->copies == QUERN_ROWWISE &&
           !q->activation && !q->probability && !q->dbias;
}

/* Does the kernel do this op (enum qn_cast_op) of the quantization? */
static int serves(const struct qn_quantization *q, int op,
                  const struct qn_kernel *kernel)
{
    int reads_f32 = op == QN_HISTORY || op == QN_SUM || op == QN_SUM_ROWS ||
                    op >= QN_OUTSIDE;
    int input = reads_f32                    ? QUERN_F32
                : q->work == QUERN_TRANSPOSE ? QUERN_TYPE_NONE
                                             : q->type;
    int form = op == QN_EPILOGUE ? (q->of == QN_X ? QN_FORWARD : QN_BACKWARD)
               : reads_f32       ? QN_PLAIN
               : kernel->form == QN_ROWS && rows_alone(q) ? QN_ROWS
                                                          : form_of(q);

    return kernel->op == op && kernel->of == q->of && kernel->input == input &&
           kernel->form == form && !strcmp(kernel->recipe, q->recipe);
}

/* NULL if the kernel can run for the backend, else why not. */
static const char *misfit(const struct qn_kernel *kernel,
                          const struct qn_quantization *q, int backend,
                          const struct qn_device *device)
{
    int host = !strcmp(kernel->arch, "host");
    int64_t row = (q->k + 7) / 8 * 8 * qn_type_bits(q->type) / 8;

    if (backend == QUERN_BACKEND_HOST)
        return host ? NULL : "not made for the host";
    if (host || !qn_select_arch(kernel->arch, device))
        return "made for another architecture";
    if (backend == QUERN_BACKEND_AOT && !kernel->cubin)
        return "not linked into this program";
    if (kernel->form == QN_ROWS && row > kernel->smem)
        return "rows are longer than it has room for in shared memory";
    return NULL;
}

/* sm_90a comes after sm_80: names of one length order by their versions. */
static int is_later(const char *a, const char *b)
{
    size_t x = strcspn(a + 3, "abcdef"), y = strcspn(b + 3, "abcdef");

    return x != y ? x > y : strcmp(a, b) > 0;
}

static int is_better(const struct qn_kernel *a, const struct qn_kernel *b)
{
    if (!strcmp(a->arch, b->arch))
        return a->form == QN_ROWS;
    return is_later(a->arch, b->arch);
}

/* The best kernel of one op for one backend, or NULL. */
static const struct qn_candidate *find(const struct qn_session *s,
                                       const struct qn_quantization *q, int op,
                                       int backend)
{
    const struct qn_kernel_list list =
        qn_context_kernels(s->ctx, op, q->recipe);
    const struct qn_candidate *best = NULL;

    for (int i = 0; i < list.count; i++) {
        const struct qn_candidate *candidate = &s->ctx->kernels[list.at[i]];
        const struct qn_kernel *kernel = candidate->kernel;

        if (serves(q, op, kernel) &&
            !misfit(kernel, q, backend, s->demand.device) &&
            (!best || is_better(kernel, best->kernel)))
            best = candidate;
    }
    return best;
}

/* Must the largest magnitudes be found by a launch of its own? */
static int has_amax(const struct qn_session *s, const struct qn_quantization *q,
                    const struct qn_recipe *recipe, int backend)
{
    const struct qn_candidate *cast = find(s, q, qn_quantize_op(q), backend);

    return qn_quantize_needs_amax(q, qn_quantize_scaling(q, recipe)) &&
           !(cast && cast->kernel->form == QN_ROWS);
}

/* The ops of a run, in order; returns how many. The host sums dbias up as it
   goes. */
static int list_ops(const struct qn_session *s, const struct qn_quantization *q,
                    const struct qn_recipe *recipe, int backend,
                    int ops[QN_QUANTIZE_STEPS])
{
    int count = 0;

    if (has_amax(s, q, recipe, backend))
        ops[count++] = QN_AMAX;
    ops[count++] = qn_quantize_op(q);
    if (q->dbias && backend != QUERN_BACKEND_HOST)
        ops[count++] = QN_SUM;
    if (q->dprob)
        ops[count++] = QN_DPROB;
    return count;
}

/* The existing alternatives, for the message. */
static int no_kernel(const struct qn_session *s,
                     const struct qn_quantization *q, int op)
{
    const struct qn_kernel_list list =
        qn_context_kernels(s->ctx, op, q->recipe);
    char text[512];
    int code;

    qn_quantize_print(q, text, sizeof text);
    code = qn_error_set(QUERN_ENOKERNEL, "no kernel serves: %s", text);
    for (int i = 0; i < list.count; i++) {
        const struct qn_kernel *kernel = s->ctx->kernels[list.at[i]].kernel;

        if (serves(q, op, kernel))
            qn_error_add(
                "  %s: %s", kernel->name,
                misfit(kernel, q, s->demand.backend, s->demand.device));
    }
    return code;
}

int qn_quantize_find(const struct qn_session *s,
                     const struct qn_quantization *q,
                     const struct qn_candidate **out)
{
    *out = find(s, q, qn_quantize_op(q), s->demand.backend);
    return *out ? QUERN_OK : no_kernel(s, q, qn_quantize_op(q));
}

/* ------------------------------------------------------------------- loads */

/* Persistent CTAs in one row. */
static int prepare_launch(struct qn_quantize_plan *plan,
                          struct qn_quantize_step *step,
                          const struct qn_module *module)
{
    struct qn_driver *driver = plan->driver;
    const struct qn_kernel *kernel = step->kernel;
    int single = kernel->op == QN_HISTORY;
    int code =
        QN_CU(driver, cuKernelGetFunction, &step->handle, module->handle);

    step->launch = (struct cu_launch){
        .grid = {single ? 1 : (unsigned)(plan->workers * kernel->ctas), 1, 1},
        .block = {(unsigned)kernel->threads, 1, 1},
        .shared_bytes = (unsigned)kernel->smem,
    };
    if (!code && kernel->smem > 0)
        code = QN_CU(driver, cuFuncSetAttribute, step->handle,
                     QN_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel->smem);
    if (!code && driver->cuFuncLoad)
        code = QN_CU(driver, cuFuncLoad, step->handle);
    return code;
}

/* One kernel of a run. */
static int load_step(struct qn_quantize_plan *plan, struct qn_session *s,
                     int op)
{
    struct qn_quantize_step *step = &plan->steps[plan->nsteps++];
    const struct qn_candidate *found = find(s, &plan->q, op, plan->backend);
    struct qn_module *module;
    int code;

    if (!found)
        return no_kernel(s, &plan->q, op);
    step->kernel = found->kernel;
    code = qn_session_loads(s, found, plan->backend);
    if (code == QN_COLD || s->outline)
        return code;
    if (!code)
        code = qn_module_get(s->ctx, found, plan->backend, &module);
    if (code == QN_REJECTED)
        code = QUERN_ECOMPILE;
    if (code)
        return code;
    step->function = module->function;
    if (plan->backend == QUERN_BACKEND_HOST)
        return QUERN_OK;
    return prepare_launch(plan, step, module);
}

static int load_these(struct qn_quantize_plan *plan, struct qn_session *s,
                      const int *ops, int count)
{
    int code = QUERN_OK;

    plan->nsteps = 0;
    for (int i = 0; i < count && !code; i++)
        code = load_step(plan, s, ops[i]);
    for (int i = 1; i < plan->nsteps && plan->q.of != QN_W; i++)
        plan->steps[i].dependent = qn_session_dependents(s, plan->q.m);
    return code;
}

/* All of them, from one backend. */
static int load_steps(struct qn_quantize_plan *plan, struct qn_session *s,
                      int backend)
{
    int ops[QN_QUANTIZE_STEPS];
    int count = list_ops(s, &plan->q, plan->recipe, backend, ops);
    int code;

    plan->backend = s->demand.backend = backend;
    code = load_these(plan, s, ops, count);
    if (!code && plan->q.sizes && backend != QUERN_BACKEND_HOST)
        code = qn_host_size_load(s, plan->q.recipe, backend, &plan->size_step);
    return code;
}

/* Without kernels. NULL: host memory ran out. */
static struct qn_quantize_plan *new_plan(const struct qn_session *s,
                                         const struct qn_quantization *q)
{
    struct qn_quantize_plan *plan =
        aligned_alloc(_Alignof(struct qn_quantize_plan), sizeof *plan);

    if (!plan) {
        qn_error_memory();
        return NULL;
    }
    memset(plan, 0, sizeof *plan);
    plan->ctx = s->ctx;
    plan->q = *q;
    plan->driver = s->driver;
    plan->context = s->scope.context;
    plan->workers = s->demand.sms;
    plan->capability = qn_session_capability(s);
    return plan;
}

int qn_quantize_steps(struct qn_session *s, const struct qn_quantization *q,
                      int backend, const int *ops, int count,
                      struct qn_quantize_plan **out)
{
    struct qn_quantize_plan *plan = new_plan(s, q);
    int code;

    if (!plan)
        return QUERN_ENOMEM;
    plan->backend = backend;
    code = load_these(plan, s, ops, count);
    if (code == QUERN_ENOKERNEL && qn_step_compiles(s, backend)) {
        plan->backend = QUERN_BACKEND_JIT;
        code = load_these(plan, s, ops, count);
    }
    if (code)
        free(plan);
    else
        *out = plan;
    return code;
}

static int load_all(struct qn_quantize_plan *plan, struct qn_session *s)
{
    int backends[2], code = QUERN_ENOKERNEL;
    const int tries = qn_select_backends(s->ctx, s->demand.backend, backends);

    for (int i = 0; i < tries && code == QUERN_ENOKERNEL; i++)
        code = load_steps(plan, s, backends[i]);
    return code;
}

/* -------------------------------------------------------------------- plan */

/* Values that no run changes. */
static void fill_values(struct qn_quantize_plan *plan)
{
    const struct qn_quantization *q = &plan->q;
    const struct qn_quantize_args *need = &plan->need.args;
    struct qn_values *v = &plan->values;

    v->groups = q->groups;
    v->m = (int)q->m;
    v->k = (int)q->k;
    v->input = q->work == QUERN_TRANSPOSE ? QUERN_TYPE_NONE : q->type;
    v->form = form_of(q);
    v->dbias_add = q->dbias == QUERN_DBIAS_ADD;
    v->activation = q->activation;
    v->interleave = q->interleave;
    v->row_stride = need->row.stride ? need->row.stride : q->k;
    v->column_stride = need->column.stride ? need->column.stride
                       : q->of == QN_W     ? q->m
                                           : qn_quantize_tiles(q) * 128;
}

/* The one that makes the result. */
static const struct qn_kernel *main_kernel(const struct qn_quantize_plan *plan)
{
    int i = 0;

    while (plan->steps[i].kernel->op != qn_quantize_op(&plan->q))
        i++;
    return plan->steps[i].kernel;
}

/* The kernel is not to be chosen, but may be named to make sure. */
static int check_name(const struct qn_quantize_plan *plan, const char *name)
{
    const char *ours = main_kernel(plan)->name;

    if (!name || !strcmp(name, ours))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "options.kernel is '%s': this quantization runs %s",
                        name, ours);
}

static int shrink(struct qn_quantize_plan *plan, int64_t m)
{
    int code;

    plan->q.m = m;
    code = qn_quantize_describe(plan->ctx, &plan->q, &plan->need, &plan->space,
                                &plan->recipe);
    if (!code)
        fill_values(plan);
    return code;
}

int qn_quantize_fit(const struct qn_quantize_plan *plan, int64_t m,
                    struct qn_quantize_plan *room,
                    const struct qn_quantize_plan **fitted)
{
    *fitted = plan;
    if (plan->q.m == m)
        return QUERN_OK;
    *room = *plan;
    *fitted = room;
    return shrink(room, m);
}

static int make_plan(struct qn_session *s, const void *q, void *out)
{
    struct qn_quantize_plan *plan = new_plan(s, q);
    int code;

    if (!plan)
        return QUERN_ENOMEM;
    code = shrink(plan, plan->q.work == QUERN_RESCALE ? 0 : plan->q.m);
    if (!code)
        code = load_all(plan, s);
    if (!code)
        code = check_name(plan, s->options.kernel);
    if (code)
        free(plan);
    else
        *(struct qn_quantize_plan **)out = plan;
    return code;
}

int qn_quantize_plan_inner(const struct qn_session *outer,
                           const struct qn_quantization *q,
                           const struct qn_plan_options *options,
                           struct qn_quantize_plan **plan)
{
    struct qn_session session;
    int code = qn_session_inner(&session, outer, NULL, options);

    *plan = NULL;
    return code ? code : make_plan(&session, q, plan);
}

static void drop(void *plan)
{
    struct qn_quantize_plan **at = plan;

    qn_quantize_plan_free(*at);
    *at = NULL;
}

int qn_quantize_plan(struct quern_context *ctx, const struct qn_quantization *q,
                     const struct qn_plan_options *options,
                     struct qn_quantize_plan **plan)
{
    static const struct qn_plan_kind kind = {make_plan, drop};
    int code = qn_session_no_cublaslt(options, "quantizes");

    *plan = NULL;
    if (!code)
        code = qn_session_plan(ctx, options, &kind, q, plan);
    if (!code)
        qn_context_log(ctx, QUERN_LOG_DEBUG, "plan: %s",
                       main_kernel(*plan)->name);
    return code;
}

void qn_quantize_plan_free(struct qn_quantize_plan *plan)
{
    free(plan);
}

int qn_quantize_evidence(const struct qn_quantize_plan *plan)
{
    int least = qn_evidence_least(QUERN_EVIDENCE_RUN, plan->size_step.kernel,
                                  plan->capability);

    for (int i = 0; i < plan->nsteps; i++)
        least =
            qn_evidence_least(least, plan->steps[i].kernel, plan->capability);
    return least;
}

void qn_quantize_plan_info(const struct qn_quantize_plan *plan,
                           struct quern_plan_info *info)
{
    *info =
        (struct quern_plan_info){.kernel = main_kernel(plan)->name,
                                 .backend = plan->backend,
                                 .sms = plan->workers,
                                 .workspace_bytes = plan->need.workspace_bytes,
                                 .evidence = qn_quantize_evidence(plan)};
}

/* --------------------------------------------------------------------- why */

/* Each kernel of one op: the one that runs is marked, the others say why. */
static void explain_op(const struct qn_session *s,
                       const struct qn_quantization *q, int op, int backend,
                       struct qn_text *text)
{
    const struct qn_kernel_list list =
        qn_context_kernels(s->ctx, op, q->recipe);
    const struct qn_candidate *best = find(s, q, op, backend);

    for (int i = 0; i < list.count; i++) {
        const struct qn_candidate *candidate = &s->ctx->kernels[list.at[i]];
        const struct qn_kernel *kernel = candidate->kernel;
        const char *why;

        if (!serves(q, op, kernel))
            continue;
        why = misfit(kernel, q, backend, s->demand.device);
        qn_text_add(text, "%s %s%s%s\n", best == candidate ? ">" : " ",
                    kernel->name, why ? "\n    " : "", why ? why : "");
    }
}

/* The ops of the run, and the purpose of each. */
static int explain(struct qn_session *s, const void *given,
                   struct qn_text *text)
{
    const struct qn_quantization *q = given;
    const int backend = s->demand.backend == QUERN_BACKEND_AUTO
                            ? QUERN_BACKEND_JIT
                            : s->demand.backend;
    const int capability = qn_session_capability(s);
    int ops[QN_QUANTIZE_STEPS], least = QUERN_EVIDENCE_RUN;
    const struct qn_recipe *recipe;
    char line[512];
    int count, code = qn_quantize_check(s->ctx, q, &recipe);

    if (code)
        return code;
    count = list_ops(s, q, recipe, backend, ops);
    qn_quantize_print(q, line, sizeof line);
    qn_text_add(text, "%s\nbackend %s, %d %s\n", line, qn_backend_name(backend),
                s->demand.sms,
                backend == QUERN_BACKEND_HOST ? "threads" : "multiprocessors");
    for (int i = 0; i < count; i++) {
        const struct qn_candidate *best = find(s, q, ops[i], backend);

        least =
            qn_evidence_least(least, best ? best->kernel : NULL, capability);
    }
    if (backend != QUERN_BACKEND_HOST)
        qn_evidence_why(least, capability, text);
    for (int i = 0; i < count; i++) {
        qn_text_add(text, "\n%s%s\n", qn_op_name(ops[i]),
                    ops[i] == QN_AMAX
                        ? ": scales span more than a tile, so that the input "
                          "is read twice"
                    : ops[i] == QN_SUM   ? ": dbias, from sums of 32 rows each"
                    : ops[i] == QN_DPROB ? ": a sum over each row's features"
                                         : "");
        explain_op(s, q, ops[i], backend, text);
    }
    return QUERN_OK;
}

int qn_quantize_why(struct quern_context *ctx, const struct qn_quantization *q,
                    const struct qn_plan_options *options, char **out)
{
    const int code = qn_session_no_cublaslt(options, "quantizes");

    return code ? code : qn_session_why(ctx, NULL, options, explain, q, out);
}
