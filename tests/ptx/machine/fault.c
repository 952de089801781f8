/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c: the first fault of a launch, with its source location. */
#include "machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct px_machine px_machine;

static void print_place(char *text, size_t size, const struct px_warp *w,
                        const struct px_op *op)
{
    const char *name =
        px_machine.launch ? px_machine.launch->program->name : "";
    char outer[40] = "";

    if (op->outer)
        snprintf(outer, sizeof outer, " (inlined at %d)", op->outer);
    snprintf(text, size, "%.200s.cu:%d%s: %s: warp %d of CTA (%u,%u,%u)", name,
             op->line, outer, op->text, w->number, w->cta->id[0], w->cta->id[1],
             w->cta->id[2]);
}

void px_fault_trace(const struct px_warp *w, const struct px_op *op,
                    uint32_t mask, const char *what)
{
    char place[700];

    if (!px_machine.trace || !op->is_traced)
        return;
    print_place(place, sizeof place, w, op);
    fprintf(stderr, "ptx: %s, lanes %08x%s\n", place, mask, what);
}

int px_fault(const struct px_warp *w, const struct px_op *op, int lane,
             const char *format, ...)
{
    char place[700], what[700];
    va_list list;

    if (*px_machine.fault)
        return PX_FAULT;
    print_place(place, sizeof place, w, op);
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    snprintf(px_machine.fault, sizeof px_machine.fault, "%s, lane %d: %s",
             place, lane, what);
    return PX_FAULT;
}

int px_fault_plain(const char *format, ...)
{
    va_list list;

    if (*px_machine.fault)
        return PX_FAULT;
    va_start(list, format);
    vsnprintf(px_machine.fault, sizeof px_machine.fault, format, list);
    va_end(list);
    return PX_FAULT;
}
