/* SPDX-License-Identifier: Apache-2.0 */
/*
** table.c: results of compiling each kernel, as JSON.
**
** A row is an array, since there are thousands; "columns" names its elements.
** Names of kernels need no escapes: test_names sees to that.
*/
#include "table.h"

#include <stdio.h>
#include <stdlib.h>

struct table {
    FILE *file;
    int kernels, broken, most_registers;
    double seconds, slowest;
};

struct table *table_open(const char *path, const char *compiler,
                         const char *options)
{
    struct table *t = calloc(1, sizeof *t);

    if (!t || !(t->file = fopen(path, "w"))) {
        free(t);
        return NULL;
    }
    fprintf(t->file,
            "{\n\"compiler\": \"%s\",\n\"options\": \"%s\",\n"
            "\"columns\": [\"kernel\", \"registers\", \"spilled_bytes\", "
            "\"seconds\", \"broken\"],\n\"rows\": [",
            compiler, options);
    return t;
}

void table_add(struct table *t, const struct qn_kernel *kernel,
               const struct report *r, double seconds, const char *broken)
{
    if (!t)
        return;
    fprintf(t->file, "%s\n[\"%s\", %d, %d, %.2f, %s%s%s]",
            t->kernels ? "," : "", kernel->name, r->registers,
            r->spills + r->stack, seconds, broken ? "\"" : "",
            broken ? broken : "null", broken ? "\"" : "");
    t->kernels++;
    t->broken += broken != NULL;
    t->seconds += seconds;
    if (r->registers > t->most_registers)
        t->most_registers = r->registers;
    if (seconds > t->slowest)
        t->slowest = seconds;
}

int table_close(struct table *t)
{
    int failed;

    if (!t)
        return 0;
    fprintf(t->file,
            "\n],\n\"kernels\": %d, \"broken\": %d, \"seconds\": %.1f, "
            "\"slowest\": %.2f, \"most_registers\": %d\n}\n",
            t->kernels, t->broken, t->seconds, t->slowest, t->most_registers);
    failed = ferror(t->file);
    failed |= fclose(t->file) != 0;
    free(t);
    return failed ? -1 : 0;
}
