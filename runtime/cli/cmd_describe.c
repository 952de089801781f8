/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_describe.c: `quern describe`: what a caller must provide. */
#include <stdio.h>
#include <string.h>

#include "base/types.h"
#include "choose/describe_all.h"
#include "problem/geometry.h"
#include "problem/gradient_rules.h"
#include "problem/problem.h"
#include "product/args.h"
#include "cli.h"

static const struct argp_option options[] = {
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    {0},
};

/* A matrix, as the library describes it. */
static void add_operand(cJSON *rows, const char *name, const char *role,
                        const struct qn_tensor *tensor)
{
    cJSON *row = cJSON_CreateObject();
    char shape[128];

    qn_argument_shape(shape, sizeof shape, tensor);
    cJSON_AddStringToObject(row, "argument", name);
    cJSON_AddStringToObject(row, "type", qn_type_name(tensor->type));
    cJSON_AddStringToObject(row, "shape", shape);
    cJSON_AddNumberToObject(row, "bytes", (double)tensor->bytes);
    cJSON_AddNumberToObject(row, "alignment", (double)tensor->alignment);
    cJSON_AddStringToObject(row, "is", role);
    cJSON_AddItemToArray(rows, row);
}

/* A quantized tensor, as qn_quantize_run makes it. */
static void add_scales(cJSON *rows, const char *name,
                       const struct qn_tensor *tensor,
                       const struct qn_geometry *g)
{
    char field[32];

    if (!g->sf.scaling)
        return;
    snprintf(field, sizeof field, "%s.sf", name);
    qn_argument_row(rows, field, qn_type_name(g->sf.scaling->type), "",
                    tensor->sf_bytes, QN_ALIGNMENT, "its scale factors");
    if (!tensor->global_bytes)
        return;
    snprintf(field, sizeof field, "%s.global", name);
    qn_argument_row(rows, field, "f32", "", tensor->global_bytes, QN_ALIGNMENT,
                    "its scale factors of the second level");
}

/* The tensors of a layer that each op multiplies. */
static const char *const tensors[][QN_ROLES] = {
    {"x", "w", "added to y", "y", "what the activation was given", "y"},
    {"dy", "w", "added to dx", "dx", "what the activation was given", "d"},
    {"dy", "x", "added to dw", "dw", "", ""},
};

static const char *tensor_of(const struct qn_problem *problem, int role)
{
    return role == QN_ROLE_D && qn_geometry_backward(problem)
               ? "the gradient of the pre-activation"
               : tensors[problem->op][role];
}

/* Each operand that the problem has, and the addresses that may replace it. */
static void add_operands(cJSON *rows, const struct qn_problem *problem,
                         const struct qn_args *need,
                         const struct qn_geometry *geometry)
{
    static const char *const names[QN_ROLES] = {"a", "b", "c", "d", "p", "t"};
    char text[128], name[32];

    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        const struct qn_tensor *tensor = qn_args_tensor(need, role);
        const struct qn_geometry *g = &geometry[role];

        if (!tensor->ndim)
            continue;
        snprintf(text, sizeof text, "%s%s%s: %s", tensor_of(problem, role),
                 !g->sf.scaling                ? ""
                 : g->sf.copy == QUERN_ROWWISE ? ", rowwise tensor"
                                               : ", columnwise tensor",
                 role == QN_ROLE_A && problem->quantize ? ", or room for it"
                                                        : "",
                 g->grouped        ? "one matrix per group"
                 : g->inner_ragged ? "columns of all groups"
                                   : "rows of all groups");
        add_operand(rows, names[role], text, tensor);
        add_scales(rows, names[role], tensor, g);
        if (!g->grouped || g->sf.scaling)
            continue;
        snprintf(name, sizeof name, "%s.pointers", names[role]);
        snprintf(text, sizeof text, "[%d]", problem->groups);
        qn_argument_row(rows, name, "addresses", text, 0, sizeof(void *),
                        "the matrices one by one, instead");
    }
}

/* The tensor quantized in the launch, and its other outputs. */
static void add_made(cJSON *rows, const struct qn_problem *problem,
                     const struct qn_args *need, const struct qn_geometry *a)
{
    if (!problem->quantize)
        return;
    add_operand(rows, "in", "the unquantized values of a", &need->in);
    add_operand(rows, "column", "columnwise tensor of the same, if wanted",
                &need->column);
    add_scales(rows, "column", &need->column, a);
}

/* The arrays with the groups' lengths: of the first operand that is ragged. */
static void add_sizes(cJSON *rows, const struct qn_problem *problem,
                      const struct qn_geometry *geometry)
{
    const int role = geometry[QN_ROLE_A].grouped ? QN_ROLE_B : QN_ROLE_A;
    char text[64], name[32];

    if (problem->ragged == QUERN_AXIS_NONE)
        return;
    snprintf(name, sizeof name, "%c.%s", "ab"[role],
             geometry[role].inner_ragged ? "last_dims" : "first_dims");
    snprintf(text, sizeof text, "[%d]", problem->groups);
    qn_argument_row(rows, name, "i32, i64", text, 0, 8, "length of each group");
    snprintf(name, sizeof name, "%c.offsets", "ab"[role]);
    snprintf(text, sizeof text, "[%d]", problem->groups + 1);
    qn_argument_row(
        rows, name, "i32, i64", text, 0, 8,
        "where each group begins; instead of lengths, or with them");
    qn_argument_host_sizes(rows, problem->sizes, problem->groups);
}

/* The sums of dgrad back through an activation. */
static void add_sums(cJSON *rows, const struct qn_problem *problem)
{
    char text[64];

    if (problem->dbias) {
        snprintf(text, sizeof text, "[%d, %zu]", problem->groups,
                 qn_gradient_dbias(problem) / (size_t)problem->groups / 4);
        qn_argument_row(rows, "dbias", "f32", text, qn_gradient_dbias(problem),
                        4,
                        qn_geometry_backward(problem)
                            ? "sums over each group's rows of d"
                            : "sums over each group's rows of in");
    }
    if (problem->dprob) {
        snprintf(text, sizeof text, "[%lld]", (long long)problem->m);
        qn_argument_row(rows, "dprob", "f32", text, (size_t)problem->m * 4, 4,
                        "gradient of each row's factor");
    }
}

/* Arguments for copies of the result, in addition to the tensors. */
static void add_cast(cJSON *rows, const struct qn_description *need)
{
    char text[64];

    if (need->history) {
        qn_argument_row(rows, "scale", "f32", "[2]", 2 * sizeof(float), 4,
                        "factor of the result's values, and its inverse");
        snprintf(text, sizeof text, "[%d]", need->history);
        qn_argument_row(rows, "history", "f32", text,
                        (size_t)need->history * sizeof(float), 4,
                        "the result's largest magnitudes, this run's first");
    }
    if (need->random)
        qn_argument_row(rows, "random", "u64", "[2]", 2 * sizeof(uint64_t), 8,
                        "seed and offset of the result's rounding");
}

/* One value, or as many as groups. */
static void add_factors(cJSON *rows, const struct qn_problem *problem)
{
    char text[64], bias[64];

    snprintf(text, sizeof text, "[1] or [%d]", problem->groups);
    if (problem->alpha)
        qn_argument_row(rows, "alpha", "f32", text, 0, 4,
                        "factor of the product");
    if (problem->bias) {
        snprintf(bias, sizeof bias, "[%d, %lld]", problem->groups,
                 (long long)problem->n);
        qn_argument_row(rows, "bias", "f32", bias, 0, 8,
                        "added to the group's product");
    }
    if (problem->probability) {
        snprintf(bias, sizeof bias, "[%lld]", (long long)problem->m);
        qn_argument_row(rows, "probability", "f32", bias, 0, 4,
                        "factor of each row of d");
    }
    add_sums(rows, problem);
    if (problem->beta == QUERN_BETA_ANY)
        qn_argument_row(rows, "beta", "f32", text, 0, 4, "factor of c");
}

static void print(const struct qn_options *opt,
                  const struct qn_problem *problem,
                  const struct qn_description *need,
                  const struct qn_recipe *recipe)
{
    struct qn_geometry geometry[QN_ROLES];
    cJSON *rows = cJSON_CreateArray();
    char text[64];

    for (int role = QN_ROLE_A; role < QN_ROLES; role++)
        qn_geometry_of(problem, recipe, role, &geometry[role]);
    add_operands(rows, problem, &need->args, geometry);
    add_made(rows, problem, &need->args, &geometry[QN_ROLE_A]);
    add_sizes(rows, problem, geometry);
    add_factors(rows, problem);
    add_cast(rows, need);
    snprintf(text, sizeof text, "[%zu]", need->workspace_bytes);
    qn_argument_row(rows, "workspace", "bytes", text, need->workspace_bytes,
                    QN_ALIGNMENT,
                    "at most, on any GPU; zeroed once; one per concurrent run");
    qn_argument_print(opt, rows);
}

static int describe_product(const struct qn_options *opt,
                            struct quern_context *ctx)
{
    struct qn_description need;
    const struct qn_recipe *recipe;
    struct qn_problem problem;
    int code, status = qn_source_problem(opt, ctx, &problem);

    if (status)
        return status;
    code = qn_describe(ctx, &problem, &need, &recipe);
    if (code)
        return qn_message_code(opt, code, qn_errmsg(ctx));
    print(opt, &problem, &need, recipe);
    return QN_EXIT_OK;
}

static int run(const struct qn_options *opt)
{
    static const struct qn_line_commands commands = {
        describe_product, qn_cast_command_describe, qn_layer_command_describe};

    return qn_layer_line(opt, &commands);
}

const struct qn_command qn_cmd_describe = {
    .name = "describe",
    .arguments = "PROBLEM",
    .summary = "Show each shape, type and size that a caller must provide",
    .help = "Needs no GPU. Example:\n"
            "  quern describe fprop bf16 g=8 m=4096 n=2048 k=7168 d=f32",
    .options = options,
    .run = run,
};
