/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: choose a kernel, load it, and prepare all that a run needs. */
#include "product/plan.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "choose/host_sizes.h"
#include "choose/session.h"
#include "choose/trial.h"
#include "code/jit.h"
#include "code/module.h"
#include "problem/fuse_rules.h"
#include "problem/gather_rules.h"
#include "problem/lora_rules.h"
#include "problem/problem.h"
#include "problem/quantize.h"
#include "problem/result_rules.h"
#include "product/args.h"
#include "product/backend.h"
#include "product/frame.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Any aligned address will do: each run puts in its own. */
#define MODEL_ADDRESS ((void *)(uintptr_t)256)

/* --------------------------------------------------------------- preparing */

/* Encode all maps; each run replaces the address. */
static int encode_maps(struct qn_plan *plan)
{
    int code = QUERN_OK;

    for (int i = 0; !code && i < plan->nmaps; i++) {
        size_t offset = qn_value_offsets[plan->maps[i].param->param];

        code =
            qn_tensormap_encode(plan->driver, &plan->maps[i].map, MODEL_ADDRESS,
                                (void *)((char *)&plan->values + offset));
    }
    return code;
}

/* Values that no run changes. */
static void fill_values(struct qn_plan *plan)
{
    const struct qn_problem *p = &plan->problem;
    const struct qn_scales *a = &plan->operands[QN_ROLE_A].sf;
    const struct qn_scales *b = &plan->operands[QN_ROLE_B].sf;
    struct qn_values *v = &plan->values;

    v->ragged = p->ragged;
    v->a_major = p->a_major;
    v->b_major = p->b_major;
    v->groups = p->groups;
    v->m = (int)p->m;
    v->n = (int)p->n;
    v->k = (int)p->k;
    v->tokens = (int)p->tokens;
    v->topk = qn_gather_topk(p);
    v->extra_k = p->lora;
    v->activation = p->activation;
    v->interleave = p->interleave;
    v->a_sf_stride = a->stride;
    v->b_sf_stride = b->stride;
    v->a_sf_group_stride = a->group_stride;
    v->b_sf_group_stride = b->group_stride;
}

/* The place of a map's tensor in a run's arguments. */
static size_t tensor_of(const struct qn_plan *plan,
                        const struct qn_map_param *param)
{
    switch (param->kind) {
    case QN_MAP_NUMBERS:
        return offsetof(struct qn_args, in);
    case QN_MAP_EXTRA:
        return param->role == QN_ROLE_A ? offsetof(struct qn_args, lora_t)
                                        : qn_lora_up_place(&plan->problem);
    default:
        return qn_args_place(param->role);
    }
}

/* The place of a map's address in a run's arguments: maps moved to any address
   count from the workspace. */
static size_t address_of(const struct qn_plan_map *map)
{
    switch (map->param->kind) {
    case QN_MAP_POINTER:
    case QN_MAP_TAIL:
    case QN_MAP_SF_TAIL:
        return offsetof(struct qn_args, workspace);
    case QN_MAP_SCALES:
        return map->tensor + offsetof(struct qn_tensor, sf);
    default:
        return map->tensor + offsetof(struct qn_tensor, data);
    }
}

/* Selection has refused operands without a map, so `reason` is not checked. */
static void fill_maps(struct qn_plan *plan)
{
    const struct qn_kernel *kernel = plan->kernel;
    char reason[256];

    plan->nmaps = 0;
    for (int i = 0; i < QN_MAPS; i++) {
        const struct qn_map_param *param = &qn_tensormap_params[i];
        struct qn_plan_map *map = &plan->maps[plan->nmaps];
        struct qn_geometry numbers;
        const struct qn_geometry *g =
            qn_tensormap_geometry(&plan->problem, &plan->operands[param->role],
                                  param->kind, &numbers);

        if (!qn_tensormap_needs(kernel, param->param))
            continue;
        map->param = param;
        map->pitch = g->pitch;
        map->tensor = tensor_of(plan, param);
        map->address = address_of(map);
        plan->nmaps += qn_tensormap_build(
            g, qn_tensormap_operand(kernel, param), param->kind, 0, 0,
            &map->map, reason, sizeof reason);
        plan->mapped[param->role] |=
            param->kind != QN_MAP_NUMBERS && param->kind != QN_MAP_EXTRA;
    }
}

/* And load the code now, which a capture would not allow. */
static int set_attributes(struct qn_plan *plan, int cluster)
{
    struct qn_driver *driver = plan->driver;
    int code = QUERN_OK;

    if (plan->kernel->smem > 0)
        code = QN_CU(driver, cuFuncSetAttribute, plan->kernel_function,
                     QN_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES, plan->kernel->smem);
    if (!code && cluster > 8)
        code = QN_CU(driver, cuFuncSetAttribute, plan->kernel_function,
                     QN_CU_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    if (!code && driver->cuFuncLoad)
        code = QN_CU(driver, cuFuncLoad, plan->kernel_function);
    return code;
}

/* Persistent CTAs in one row: as many as the multiprocessors have room for. */
static int prepare_launch(struct qn_plan *plan, const struct qn_module *module,
                          const struct qn_session *s)
{
    const struct qn_kernel *kernel = plan->kernel;
    int cluster = kernel->cluster[0] * kernel->cluster[1];
    int sms = s->demand.sms, ctas;
    int code = s->outline ? QUERN_OK
                          : QN_CU(plan->driver, cuKernelGetFunction,
                                  &plan->kernel_function, module->handle);

    if (cluster < 1)
        cluster = 1;
    plan->workers = sms < cluster ? cluster : sms - sms % cluster;
    ctas = plan->workers * (kernel->ctas > 1 ? kernel->ctas : 1);
    plan->values.band =
        qn_tuned_band(s, kernel, qn_select_band(&plan->problem, kernel, ctas));
    plan->tuned = s->tuned.kernel == kernel;
    plan->launch = (struct cu_launch){
        .grid = {(unsigned)ctas, 1, 1},
        .block = {(unsigned)kernel->threads, 1, 1},
        .shared_bytes = (unsigned)kernel->smem,
        .nattributes = cluster > 1,
    };
    plan->cluster.id = QN_CU_ATTRIBUTE_CLUSTER_DIMENSION;
    plan->cluster.value.cluster[0] = (unsigned)cluster;
    plan->cluster.value.cluster[1] = 1;
    plan->cluster.value.cluster[2] = 1;
    if (!code && !s->outline)
        code = set_attributes(plan, cluster);
    return code;
}

/* C only where it is read from memory of its own. */
static unsigned char has(const struct qn_plan *plan, int role)
{
    const struct qn_problem *p = &plan->problem;
    const int inside =
        p->quantize && plan->kernel &&
        qn_fuse_strategy(plan->kernel) == QUERN_QUANTIZE_MAINLOOP;

    switch (role) {
    case QN_ROLE_A: /* of a mainloop: written only if the caller gives it */
        return inside ? QN_HAS_IF_GIVEN : QN_HAS_ALWAYS;
    case QN_ROLE_C:
        return p->beta == QUERN_BETA_ANY ? QN_HAS_ALWAYS : QN_HAS_NEVER;
    case QN_ROLE_P:
    case QN_ROLE_T:
        return !qn_geometry_has(p, role)                      ? QN_HAS_NEVER
               : role == QN_ROLE_P && qn_geometry_backward(p) ? QN_HAS_ALWAYS
                                                              : QN_HAS_IF_GIVEN;
    default:
        return QN_HAS_ALWAYS;
    }
}

/* All that follows from problem and machine on any backend. */
static void fill(struct qn_plan *plan, const struct qn_session *s, int strategy)
{
    struct qn_problem product;

    plan->ctx = s->ctx;
    plan->problem = *s->problem;
    plan->need = s->need;
    plan->problem.dequantize = strategy;
    qn_result_product(&plan->problem, &product);
    plan->need.workspace_bytes =
        qn_workspace_bytes(s->ctx, &product, s->demand.recipe);
    plan->recipe = s->demand.recipe;
    plan->scaled = s->demand.recipe->scaled;
    plan->workers = s->demand.sms;
    plan->capability = qn_session_capability(s);
    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        qn_geometry_of(s->problem, s->demand.recipe, role,
                       &plan->operands[role]);
    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        plan->has[role] = has(plan, role);
    fill_values(plan);
}

/* For the backend cublaslt, which has no kernel to choose. */
static int prepare_products(struct qn_plan *plan, struct qn_session *s)
{
    plan->backend = QUERN_BACKEND_CUBLASLT;
    plan->driver = s->driver;
    plan->context = s->scope.context;
    qn_launch_add(plan, QN_WORK_PRODUCT);
    return s->ctx->cublaslt->plan(plan, s);
}

/* All that does not depend on a run's arguments. */
static int prepare(struct qn_plan *plan, struct qn_session *s,
                   const struct qn_module *module)
{
    int code = QUERN_OK;

    if (module)
        plan->kernel = module->kernel;
    fill(plan, s, QUERN_DEQUANTIZE_MAINLOOP);
    if (!module)
        return prepare_products(plan, s);
    plan->figures = s->figures;
    plan->backend = module->backend;
    plan->function = module->function;
    plan->microbatches = qn_select_microbatches(&plan->problem, plan->kernel);
    if (qn_tensormap_takes(plan->kernel, QN_PARAM_bases))
        plan->values.bases = MODEL_ADDRESS;
    fill_maps(plan);
    if (module->backend != QUERN_BACKEND_HOST) {
        plan->driver = s->driver;
        plan->context = s->scope.context;
        code = prepare_launch(plan, module, s);
        if (!code && plan->problem.sizes)
            code = qn_host_size_load(s, plan->problem.recipe, plan->backend,
                                     &qn_launch_add(plan, QN_WORK_SIZES)->step);
    }
    if (!code && !s->outline)
        code = encode_maps(plan);
    if (!code)
        code = qn_fuse_plan(plan, s);
    if (!code) {
        qn_launch_add(plan, QN_WORK_PRODUCT);
        code = qn_gradient_plan(plan, s);
    }
    return code;
}

/* ----------------------------------------------------------------- fitting */

/* The total of the ragged axis that the arguments give, by the first operand
   that has the axis. Columns of a columnwise tensor stand for as many tokens as
   they may hold. -1: there is no such total. */
static int64_t given_total(const struct qn_plan *plan,
                           const struct qn_args *args, int64_t most)
{
    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        const struct qn_geometry *g = &plan->operands[role];
        const struct qn_tensor *tensor = qn_args_tensor(args, role);
        int64_t given;

        if (g->grouped || g->gathered || role == QN_ROLE_C || tensor->ndim != 2)
            continue;
        given = tensor->shape[g->inner_ragged];
        if (g->sf.copy == QUERN_COLUMNWISE && g->inner_ragged)
            given = given == g->columns
                        ? most
                        : qn_quantize_tokens(given, plan->problem.groups);
        return given < most ? given : most;
    }
    return most;
}

/* The plan for a smaller total. */
static int shrink(struct qn_plan *plan, int64_t total, int64_t tokens)
{
    struct qn_problem *p = &plan->problem;
    int64_t *lengths[] = {NULL, &p->m, &p->n, &p->k};
    const size_t workspace_bytes = plan->need.workspace_bytes; /* of the plan */
    char reason[256];
    int code;

    *lengths[p->ragged] = total;
    p->tokens = tokens;
    code = qn_describe_valid(plan->ctx, p, plan->recipe, &plan->need);
    if (code)
        return code;
    plan->need.workspace_bytes = workspace_bytes;
    if (!qn_select_requires(p, plan->kernel, reason, sizeof reason))
        return qn_error_set(QUERN_EINVAL,
                            "%s=%lld: kernel %s serves no such "
                            "total: %s",
                            qn_axis_name(p->ragged), (long long)total,
                            plan->kernel->name, reason);
    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        qn_geometry_of(p, plan->recipe, role, &plan->operands[role]);
    fill_values(plan);
    if (!plan->function && !plan->kernel_function)
        return QUERN_OK; /* its launches have maps of their own */
    fill_maps(plan);
    return encode_maps(plan);
}

int qn_plan_fit(const struct qn_plan *plan, const struct qn_args *args,
                struct qn_plan *room, const struct qn_plan **fitted)
{
    int64_t most = qn_geometry_length(&plan->problem, plan->problem.ragged);

    return qn_plan_fit_total(plan, given_total(plan, args, most),
                             plan->problem.tokens, room, fitted);
}

int qn_plan_fit_total(const struct qn_plan *plan, int64_t total, int64_t tokens,
                      struct qn_plan *room, const struct qn_plan **fitted)
{
    int64_t most = qn_geometry_length(&plan->problem, plan->problem.ragged);

    *fitted = plan;
    if (total == most || total < 0 || plan->products)
        return QUERN_OK;
    *room = *plan;
    *fitted = room;
    return shrink(room, total, tokens);
}

/* ---------------------------------------------------------------- choosing */

/* The first that is not known to be of no use on this GPU; loads nothing. */
static int outline_best(struct qn_session *s, struct qn_choice *list, int count,
                        struct qn_module **module)
{
    qn_trial_mark(s, list, count);
    s->figures = list[0].figures;
    s->found = (struct qn_module){.kernel = list[0].candidate->kernel,
                                  .backend = s->demand.backend};
    *module = &s->found;
    return qn_session_loads(s, list[0].candidate, s->demand.backend);
}

/* QN_REJECTED: it spills, or was seen to be of no use on this GPU. */
static int load_one(struct qn_session *s, const struct qn_choice *choice,
                    struct qn_trial_line *line, struct qn_module **module)
{
    int code = qn_session_loads(s, choice->candidate, s->demand.backend);

    s->figures = choice->figures;
    if (!code)
        code = qn_trial_next(s, line, choice->candidate, s->demand.backend);
    return code ? code
                : qn_module_get(s->ctx, choice->candidate, s->demand.backend,
                                module);
}

/* One line of the log for all kernels that the compiler leaves out: the best,
   and the one that serves. */
static void tell_rejected(const struct qn_session *s, const char *reason,
                          const char *serves)
{
    if (*reason)
        qn_context_log(s->ctx, QUERN_LOG_INFO, "%.*s; %s serves instead",
                       (int)strcspn(reason, "\n"), reason, serves);
}

/* The best choice that can be loaded, or else the one that trials left. */
static int load_best(struct qn_session *s, const struct qn_choice *list,
                     int count, struct qn_module **module)
{
    struct qn_trial_line line = {0};
    char rejected[300] = ""; /* by the compiler */
    int code = QN_REJECTED;

    for (int i = 0; i < count && list[i].fits && code == QN_REJECTED; i++) {
        const int failed = line.failed;

        code = load_one(s, &list[i], &line, module);
        if (code == QN_REJECTED && line.failed == failed && !*rejected)
            snprintf(rejected, sizeof rejected, "%s", qn_error_text());
    }
    if (code == QN_REJECTED && line.spare)
        code = qn_module_get(s->ctx, line.spare, s->demand.backend, module);
    if (!code) {
        tell_rejected(s, rejected, (*module)->kernel->name);
        qn_trial_tell(s, &line, (*module)->kernel);
    } else if (code == QN_REJECTED) {
        qn_context_log(s->ctx, QUERN_LOG_INFO, "%s", qn_error_text());
        code = line.failed ? QUERN_ENOKERNEL : QUERN_ECOMPILE;
    }
    return code;
}

/* The plan of one backend. */
static int choose_from(struct qn_session *s, int backend,
                       struct qn_module **module)
{
    struct qn_choice *list;
    int count, code;

    s->demand.backend = backend;
    code = qn_select_list(s->ctx, &s->demand, &list, &count);
    if (code)
        return code;
    code = qn_tuned_prefer(s, list, count);
    if (!code && (count == 0 || !list[0].fits))
        code = qn_select_none(s->ctx, &s->demand, list, count);
    else if (!code)
        code = s->outline ? outline_best(s, list, count, module)
                          : load_best(s, list, count, module);
    free(list);
    return code;
}

static int choose(struct qn_session *s, struct qn_module **module)
{
    int backends[2], code = QUERN_ENOKERNEL;
    const int tries = qn_select_backends(s->ctx, s->demand.backend, backends);

    for (int i = 0; i < tries && code == QUERN_ENOKERNEL; i++)
        code = choose_from(s, backends[i], module);
    return code;
}

/* Tune as the options request, if nothing is known: the measurement lands in
   the files, or in the log if it fails. */
int qn_plan_tune(struct qn_session *s)
{
    const struct qn_tune_options options = {.seconds = s->options.tune_ms / 1e3,
                                            .backend = s->options.backend,
                                            .sms = s->options.sms};
    struct quern_tune_result result;
    int code;

    if (s->options.tune_ms <= 0 || !s->driver || s->outline ||
        s->options.kernel || s->demand.backend == QUERN_BACKEND_CUBLASLT)
        return QUERN_OK;
    code = qn_tuned_look(s);
    if (code || s->tuned.known)
        return code;
    if (s->ctx->measure(s->ctx, s->problem, &options, 1, &result))
        qn_context_log(s->ctx, QUERN_LOG_INFO, "not tuned: %s",
                       qn_error_text());
    free(result.candidates);
    s->options.tune_ms = 0; /* spent: the plan's parts get none */
    return QUERN_OK;
}

/* aligned_alloc: tensor maps are at multiples of 128 bytes. */
static struct qn_plan *new_plan(void)
{
    struct qn_plan *plan =
        aligned_alloc(_Alignof(struct qn_plan), sizeof *plan);

    if (plan)
        memset(plan, 0, sizeof *plan);
    else
        qn_error_memory();
    return plan;
}

/* The kernel reads the operands. */
int qn_plan_inside(struct qn_session *s, struct qn_plan **out)
{
    struct qn_module *module = NULL;
    struct qn_plan *plan;
    int code = qn_plan_tune(s);

    if (!code && s->demand.backend != QUERN_BACKEND_CUBLASLT)
        code = choose(s, &module);
    if (code)
        return code;
    plan = new_plan();
    if (!plan)
        return QUERN_ENOMEM;
    code = prepare(plan, s, module);
    if (code)
        qn_plan_free(plan);
    else
        *out = plan;
    return code;
}

int qn_plan_several(struct qn_session *s, int strategy,
                    int (*add)(struct qn_plan *, struct qn_session *),
                    struct qn_plan **out)
{
    struct qn_plan *plan = new_plan();
    int code;

    if (!plan)
        return QUERN_ENOMEM;
    fill(plan, s, strategy);
    code = add(plan, s);
    if (code)
        qn_plan_free(plan);
    else
        *out = plan;
    return code;
}

/* An error of a strategy that the problem does not name: no kernel, or none
   that can be compiled here. A linked kernel may serve in another. */
int qn_plan_given_up(int code)
{
    return code == QUERN_ENOKERNEL || code == QUERN_ECOMPILE ||
           code == QUERN_EMISSING;
}

const char *qn_plan_name(const struct qn_plan *plan)
{
    return plan->kernel ? plan->kernel->name : plan->name;
}

int qn_plan_inner(const struct qn_session *outer,
                  const struct qn_problem *problem,
                  const struct qn_plan_options *options,
                  int (*make)(struct qn_session *, struct qn_plan **),
                  struct qn_plan **plan)
{
    struct qn_session session;
    int code = qn_session_inner(&session, outer, problem, options);

    *plan = NULL;
    return code ? code : make(&session, plan);
}
