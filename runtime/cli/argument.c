/* SPDX-License-Identifier: Apache-2.0 */
/* argument.c: what `quern describe` says of an argument, and `quern why` of a
   choice. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "base/types.h"
#include "problem/problem.h"

void qn_argument_row(cJSON *rows, const char *name, const char *type,
                     const char *shape, size_t bytes, size_t alignment,
                     const char *what)
{
    cJSON *row = cJSON_CreateObject();

    cJSON_AddStringToObject(row, "argument", name);
    cJSON_AddStringToObject(row, "type", type);
    cJSON_AddStringToObject(row, "shape", shape);
    if (bytes)
        cJSON_AddNumberToObject(row, "bytes", (double)bytes);
    cJSON_AddNumberToObject(row, "alignment", (double)alignment);
    cJSON_AddStringToObject(row, "is", what);
    cJSON_AddItemToArray(rows, row);
}

void qn_argument_shape(char *text, size_t size, const struct qn_tensor *t)
{
    size_t used = (size_t)snprintf(text, size, "[");

    for (int i = 0; i < t->ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld%s",
                                 i ? ", " : "", (long long)t->shape[i],
                                 i + 1 < t->ndim ? "" : "]");
    if (t->stride && used < size)
        snprintf(text + used, size - used, ", rows %lld apart",
                 (long long)t->stride);
}

void qn_argument_tensor(cJSON *rows, const char *name, const char *what,
                        const struct qn_tensor *t, const char *sf_type)
{
    char shape[128], part[32];

    if (!t->ndim)
        return;
    qn_argument_shape(shape, sizeof shape, t);
    qn_argument_row(rows, name, qn_type_name(t->type), shape, t->bytes,
                    t->alignment, what);
    if (t->sf_bytes) {
        snprintf(part, sizeof part, "%s.sf", name);
        qn_argument_row(rows, part, sf_type, "", t->sf_bytes, QN_ALIGNMENT,
                        "its scale factors");
    }
    if (t->global_bytes) {
        snprintf(part, sizeof part, "%s.global", name);
        qn_argument_row(rows, part, "f32", "", t->global_bytes, QN_ALIGNMENT,
                        "its scale factors of the second level");
    }
}

void qn_argument_print(const struct qn_options *opt, cJSON *rows)
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

    qn_table_print(opt, rows, columns);
}

void qn_argument_host_sizes(cJSON *rows, int sizes, int groups)
{
    char text[64];

    snprintf(text, sizeof text, "[%d]", groups);
    if (sizes != QUERN_SIZES_DEVICE)
        qn_argument_row(rows, "host_sizes", "i64", text, 0, 8,
                        sizes == QUERN_SIZES_FIXED
                            ? "lengths in host memory, instead; graphs keep "
                              "them"
                            : "lengths in host memory, instead; not in graphs");
}

void qn_argument_why(const struct qn_options *opt, const char *key,
                     const char *subject, const char *text)
{
    cJSON *object;

    if (!opt->json) {
        fputs(text, stdout);
        if (*text && text[strlen(text) - 1] != '\n')
            putchar('\n');
        return;
    }
    object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, key, subject);
    cJSON_AddStringToObject(object, "why", text);
    qn_table_json(object);
}
