/* SPDX-License-Identifier: Apache-2.0 */
/* name.c: the symbol of a kernel, which is its file's name, too. */
#include "grid/grid.h"
#include "lua/base.h"

#include <stdio.h>
#include <string.h>

enum { MAX_SYMBOL = 160 };

/* Writes at most up to `end`; returns the end that it needs. */
static size_t put_value(char *buffer, size_t used, const char *axis,
                        const struct qg_value *value)
{
    size_t room = MAX_SYMBOL + 1;

    if (value->string)
        return used + (size_t)snprintf(buffer + used, room - used, "_%s",
                                       value->string);
    for (int i = 0; i < value->count && used < room; i++)
        used += (size_t)snprintf(buffer + used, room - used, "%s%s%d",
                                 i ? "x" : "_", i ? "" : axis, value->at[i]);
    return used;
}

static void put_arch(char *out, const char *arch)
{
    for (; *arch; arch++)
        if (*arch != '_')
            *out++ = *arch;
    *out = 0;
}

/* The name up to the axes; the plainest epilogue and form are not spelled
   out. Returns the characters that it needs. */
static size_t put_variant(char *buffer, size_t size, const struct qg_variant *v,
                          const char *arch)
{
    const int cast = v->kernels->of.count > 0;
    const char *extra = cast ? v->form : v->epilogue;
    int plain = !strcmp(extra, "store") || !strcmp(extra, "plain");

    if (!cast)
        return (size_t)snprintf(buffer, size, "quern_%s_%s_%s_%s_%s%s%s_%s",
                                v->recipe->name, v->op, v->layout->name,
                                v->ragged->name, qg_types_of(v->d)->name,
                                plain ? "" : "_", plain ? "" : extra, arch);
    return (size_t)snprintf(buffer, size, "quern_%s_%s_%s_%s%s%s_%s",
                            v->recipe->name, v->op, qg_list_ofs.words[v->of],
                            qg_list_inputs.words[v->input], plain ? "" : "_",
                            plain ? "" : extra, arch);
}

/* All of it, into MAX_SYMBOL + 1 characters; returns how many it needs. */
static size_t put_name(char *buffer, const struct qg_variant *v,
                       const int *choice)
{
    char arch[QG_MAX_NAME + 1];
    size_t used;

    put_arch(arch, v->arch);
    used = put_variant(buffer, MAX_SYMBOL + 1, v, arch);
    for (int i = 0; i < v->kernels->count && used <= MAX_SYMBOL; i++) {
        const struct qg_item *item = v->kernels->items[i];

        if (item->kind == QG_AXIS)
            used =
                put_value(buffer, used, item->name, &item->values[*choice++]);
    }
    return used;
}

int qg_name_begins(const struct qg_variant *v, const char *name)
{
    char buffer[MAX_SYMBOL + 1], arch[QG_MAX_NAME + 1];
    size_t used;

    put_arch(arch, v->arch);
    used = put_variant(buffer, sizeof buffer, v, arch);
    return used < sizeof buffer && !strncmp(buffer, name, used);
}

int qg_name_is(const struct qg_variant *v, const int *choice, const char *name)
{
    char buffer[MAX_SYMBOL + 1];

    return put_name(buffer, v, choice) < sizeof buffer && !strcmp(buffer, name);
}

const char *qg_name_make(struct qg *q, const struct qg_variant *v,
                         const int *choice)
{
    char buffer[MAX_SYMBOL + 1];
    size_t used = put_name(buffer, v, choice);

    if (used < sizeof buffer)
        return qg_mem_string(q, buffer, used);
    qg_diag_note(q, v->kernels->location, QG_E_KERNEL_NAME, MAX_SYMBOL, buffer);
    return NULL;
}
