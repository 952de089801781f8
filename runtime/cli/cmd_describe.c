/*
** cmd_describe.c: `quern describe`: what a caller must provide.
*/
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "types.h"

static const struct argp_option options[] = {
    QN_OPTION_SPECS,
    QN_OPTION_JSON,
    {0},
};

/* A matrix, as the library describes it. */
static void add_operand(cJSON *rows, const char *name, const char *role,
                        const struct quern_tensor *tensor)
{
    cJSON *row = cJSON_CreateObject();
    char shape[128] = "[";
    size_t used = 1;

    for (int i = 0; i < tensor->ndim && used < sizeof shape; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld%s",
                                 i ? ", " : "", (long long)tensor->shape[i],
                                 i + 1 < tensor->ndim ? "" : "]");
    cJSON_AddStringToObject(row, "argument", name);
    cJSON_AddStringToObject(row, "type", qn_type_name(tensor->type));
    cJSON_AddStringToObject(row, "shape", shape);
    cJSON_AddNumberToObject(row, "bytes", (double)tensor->bytes);
    cJSON_AddNumberToObject(row, "alignment", (double)tensor->alignment);
    cJSON_AddStringToObject(row, "is", role);
    cJSON_AddItemToArray(rows, row);
}

/* What else a run is given. */
static void add_memory(cJSON *rows, const char *name, const char *type,
                       const char *shape, double bytes, double alignment,
                       const char *role)
{
    cJSON *row = cJSON_CreateObject();

    cJSON_AddStringToObject(row, "argument", name);
    cJSON_AddStringToObject(row, "type", type);
    cJSON_AddStringToObject(row, "shape", shape);
    if (bytes > 0)
        cJSON_AddNumberToObject(row, "bytes", bytes);
    cJSON_AddNumberToObject(row, "alignment", alignment);
    cJSON_AddStringToObject(row, "is", role);
    cJSON_AddItemToArray(rows, row);
}

static void print(const struct qn_options *opt,
                  const struct quern_problem *problem,
                  const struct quern_description *need)
{
    static const struct qn_column columns[] = {
        {"argument", "argument", "s"},
        {"type", "type", "s"},
        {"shape", "shape", "s"},
        {"bytes", "bytes", "%.0f"},
        {"alignment", "alignment", "%.0f"},
        {"is", "what it is", "s"},
        {0},
    };
    /* COUPLED: the operands of each op, quern.h */
    static const char *const roles[][3] = {
        {"x: rows of all groups", "w: one matrix per group", "y"},
        {"dy: rows of all groups", "w: one matrix per group", "dx"},
        {"dy: rows of all groups", "x: rows of all groups", "dw"},
    };
    const char *const *role = roles[problem->op];
    cJSON *rows = cJSON_CreateArray();
    char text[64];

    add_operand(rows, "a", role[0], &need->args.a);
    add_operand(rows, "b", role[1], &need->args.b);
    add_operand(rows, "d", role[2], &need->args.d);
    snprintf(text, sizeof text, "[%d]", problem->groups);
    add_memory(rows, "first_dims", "i32, i64", text, 0, 8,
               "length of each group");
    snprintf(text, sizeof text, "[%d]", problem->groups + 1);
    add_memory(rows, "offsets", "i32, i64", text, 0, 8,
               "first row of each group; instead, or beside lengths");
    snprintf(text, sizeof text, "[%zu]", need->workspace_bytes);
    add_memory(rows, "workspace", "bytes", text, (double)need->workspace_bytes,
               256, "zeroed once; one per concurrent run");
    qn_table_print(opt, rows, columns);
}

static int run(const struct qn_options *opt)
{
    struct quern_description need;
    struct quern_problem problem;
    struct quern_context *ctx;
    int code, status = qn_source_context(opt, &ctx);

    if (status)
        return status;
    status = qn_source_problem(opt, ctx, &problem);
    if (!status) {
        code = quern_describe(ctx, &problem, &need);
        if (code)
            status = qn_message_code(opt, code, quern_errmsg(ctx));
        else
            print(opt, &problem, &need);
    }
    quern_close(ctx);
    return status;
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
