/*
** expand.h: what kernels take that make bf16 of codes beside their products.
*/
#ifndef QUERN_EXPAND_H
#define QUERN_EXPAND_H

#include "registry.h"

/* Is it one of them? */
int qn_expand_does(const struct qn_kernel *kernel);

/* Cycles for k steps of a tile whose products alone take `math`. */
double qn_expand_cycles(const struct qn_kernel *kernel, double k, double math);

#endif
