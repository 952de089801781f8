/*
** why.h: what would run of a problem, in words and for code.
*/
#ifndef QUERN_WHY_H
#define QUERN_WHY_H

#include "quern.h"

struct qn_why_choice {
    int served;  /* a kernel computes it, or the product of what was expanded */
    int apart;   /* a cast behind the product makes copies of its result */
    int unfused; /* no kernel fuses the epilogue with the product that is run */
    int expand;  /* enum quern_expand, but for AUTO: what operands become */
};

/* quern_why, and what it says. */
int qn_why_explain(struct quern_context *ctx,
                   const struct quern_problem *problem,
                   const struct quern_plan_options *options,
                   struct qn_why_choice *choice, char **text);

#endif
