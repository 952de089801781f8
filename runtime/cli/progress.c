/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c: how far long work is: a bar on a terminal, lines elsewhere. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { BAR = 30 };

static void draw(const struct qn_progress *p, const char *item)
{
    static const char full[] = "##############################";
    const int filled = p->total ? BAR * p->done / p->total : BAR;

    fprintf(stderr, "\r%s [%-*.*s] %d/%d %.40s\033[K", p->what, BAR, filled,
            full, p->done, p->total, item);
    fflush(stderr);
}

void qn_progress_begin(struct qn_progress *p, const char *what, int total)
{
    *p = (struct qn_progress){.what = what, .total = total};
    p->terminal = isatty(STDERR_FILENO);
    if (p->terminal)
        draw(p, "");
}

void qn_progress_step(struct qn_progress *p, const char *item)
{
    p->done++;
    if (p->terminal)
        draw(p, item);
    else
        fprintf(stderr, "%s %d/%d %s\n", p->what, p->done, p->total, item);
}

void qn_progress_end(struct qn_progress *p)
{
    if (p->terminal)
        fprintf(stderr, "\r\033[K");
}
