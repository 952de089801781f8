/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_describe.c: `quern describe`: the requirements for a caller. */
#include <stdio.h>

#include "base/text.h"
#include "base/types.h"
#include "cli.h"
#include "problem/mlp.h"

static const struct argp_option options[] = {
    QN_OPTION_SPECS, QN_OPTION_JSON, {0}};

static const struct qn_column columns[] = {
    {"operand", "operand", "s"},
    {"type", "type", "s"},
    {"shape", "shape", "s"},
    {"bytes", "bytes", "%.0f"},
    {"alignment", "alignment", "%.0f"},
    {"use", "use", "s"},
    {0},
};

/* "read in forward, backward"; of all phases that the line has "read". */
static void add_phases(struct qn_text *text, const char *verb, int phases,
                       int all)
{
    const char *before = " in ";

    if (!phases)
        return;
    qn_text_add(text, "%s%s", text->length ? "; " : "", verb);
    for (int i = 0; i < QUERN_PHASES && phases != all; i++)
        if (phases >> i & 1) {
            qn_text_add(text, "%s%s", before, qn_mlp_phase_names[i]);
            before = ", ";
        }
}

/* Is it an array of the groups' lengths, which are read as int32 or int64? */
static int is_sizes(const struct quern_operand *o)
{
    return o->read && o->arg <= QUERN_ARG_ENDS;
}

static void add_row(cJSON *rows, const struct quern_operand *o, int64_t length,
                    int all)
{
    const int64_t bytes = quern_extent(&o->bytes, length);
    struct qn_text shape = {0}, use = {0};
    cJSON *row = cJSON_CreateObject();

    for (int i = 0; i < o->ndim; i++)
        qn_text_add(&shape, "%s%lld", i ? ", " : "[",
                    (long long)quern_extent(&o->shape[i], length));
    add_phases(&use, "read", o->read, all);
    add_phases(&use, "written", o->written, all);
    add_phases(&use, "optional", o->optional, all);
    if (o->pointers)
        qn_text_add(&use, "; or the matrices' addresses");
    if (o->zero_bytes)
        qn_text_add(&use, "; %zu bytes zeros before the first run",
                    o->zero_bytes);
    cJSON_AddStringToObject(row, "operand", o->name);
    cJSON_AddStringToObject(row, "type",
                            is_sizes(o) ? "i32, i64"
                            : o->ndim   ? qn_type_name(o->type)
                                        : "bytes");
    qn_text_add(&shape, o->ndim ? "]" : "");
    cJSON_AddStringToObject(row, "shape", shape.data ? shape.data : "");
    if (!is_sizes(o))
        cJSON_AddNumberToObject(row, "bytes", (double)bytes);
    cJSON_AddNumberToObject(row, "alignment", (double)o->alignment);
    cJSON_AddStringToObject(row, "use", use.data ? use.data : "");
    cJSON_AddItemToArray(rows, row);
    qn_text_free(&shape);
    qn_text_free(&use);
}

static int describe(const struct qn_options *opt, struct quern_context *ctx)
{
    struct quern_operand *table;
    cJSON *rows;
    char text[2048];
    int count, all = 0, status = qn_source_line(opt, text, sizeof text);

    if (status)
        return status;
    if ((status = quern_describe(ctx, text, &table, &count)))
        return qn_message_code(opt, status, quern_errmsg());
    rows = cJSON_CreateArray();
    for (int i = 0; i < count; i++)
        all |= table[i].read | table[i].written;
    for (int i = 0; i < count; i++)
        add_row(rows, &table[i], qn_source_rows(text), all);
    quern_free(table);
    qn_table_print(opt, rows, columns);
    return QN_EXIT_OK;
}

static int run(const struct qn_options *opt)
{
    struct quern_context *ctx;
    int status = qn_source_context(opt, &ctx);

    if (status)
        return status;
    status = describe(opt, ctx);
    quern_close(ctx);
    return status;
}

const struct qn_command qn_cmd_describe = {
    .name = "describe",
    .arguments = "PROBLEM",
    .summary = "Show each shape, type and size that a caller must provide",
    .help = "The operands of quern.h. Needs no GPU. Example:\n"
            "  quern describe fprop bf16 g=8 m=4096 n=2048 k=7168 d=f32",
    .options = options,
    .run = run,
};
