/*
** selects.c: which kernels a command means.
*/
#include "qg.h"

#include <fnmatch.h>
#include <string.h>

/* A pattern where it looks like one, else a part of the name. */
static int matches(const char *filter, const char *name)
{
    if (!filter || !filter[0])
        return 1;
    if (strpbrk(filter, "*?["))
        return fnmatch(filter, name, 0) == 0;
    return strstr(name, filter) != NULL;
}

int qg_selects(const struct qg_selection *selection,
               const struct qn_kernel *kernel)
{
    if (!selection)
        return 1;
    if (selection->arch && strcmp(selection->arch, kernel->arch))
        return 0;
    if (selection->shipped && !kernel->shipped)
        return 0;
    return matches(selection->filter, kernel->name);
}
