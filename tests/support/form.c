/* SPDX-License-Identifier: Apache-2.0 */
/* form.c: kernels of Hopper's and Blackwell's products, by their form. */
#include "support/form.h"

#include <string.h>

#include "base/types.h"
#include "choose/tensormap.h"

enum { TILES = 8 };

/* The recipe of a kernel. NULL: the registry has none of that name. */
static const struct qn_recipe *recipe_of(const struct quern_registry *registry,
                                         const struct qn_kernel *kernel)
{
    for (int i = 0; i < registry->nrecipes; i++)
        if (!strcmp(registry->recipes[i].name, kernel->recipe))
            return &registry->recipes[i];
    return NULL;
}

/* Scales that come into the product alike. */
static int same_scaling(const struct qn_recipe *a, const struct qn_recipe *b)
{
    const struct qn_scaling *x = &a->scaling[QN_X], *y = &b->scaling[QN_X];
    const int whole = x->span == QN_SPAN_TENSOR || x->span == QN_SPAN_GROUP;

    if (a->scaled != b->scaled || !a->scaled)
        return a->scaled == b->scaled;
    if (a->promote != b->promote)
        return 0;
    return x->span == y->span ||
           (whole && (y->span == QN_SPAN_TENSOR || y->span == QN_SPAN_GROUP));
}

/* Alike but for names and the tile: op and recipe show in no line of code but
   by the scales, and of types only the bytes. */
static int same_form(const struct quern_registry *r, const struct qn_kernel *a,
                     const struct qn_kernel *b)
{
    if (strcmp(a->dequantize, "none")) /* the rest is as of others */
        return a->ragged == b->ragged && !strcmp(a->addend, b->addend) &&
               !strcmp(a->dequantize, b->dequantize);
    return !strcmp(a->template_path, b->template_path) &&
           a->ragged == b->ragged && !strcmp(a->quantize, b->quantize) &&
           a->epilogue == b->epilogue && a->a.major == b->a.major &&
           a->b.major == b->b.major &&
           qn_type_bits(a->d.type) == qn_type_bits(b->d.type) &&
           !strcmp(a->schedule, b->schedule) && !strcmp(a->addend, b->addend) &&
           a->microbatches == b->microbatches &&
           !strcmp(a->dequantize, b->dequantize) &&
           qn_tensormap_takes(a, QN_PARAM_gather) ==
               qn_tensormap_takes(b, QN_PARAM_gather) &&
           qn_tensormap_takes(a, QN_PARAM_scatter) ==
               qn_tensormap_takes(b, QN_PARAM_scatter) &&
           qn_tensormap_takes(a, QN_PARAM_extra_k) ==
               qn_tensormap_takes(b, QN_PARAM_extra_k) &&
           !memcmp(a->cluster, b->cluster, sizeof a->cluster) &&
           same_scaling(recipe_of(r, a), recipe_of(r, b));
}

const struct qn_kernel *qt_form_take(const struct quern_registry *registry,
                                     int i, int turn)
{
    const struct qn_kernel *all = registry->kernels, *of = &all[i],
                           *tiles[TILES];
    int count = 0;

    if ((strncmp(of->template_path, "sm90/gemm", 9) &&
         strncmp(of->template_path, "sm100/gemm", 10)) ||
        of->epilogue >= QN_COPIES)
        return NULL;
    for (int j = 0; j < i; j++)
        if (same_form(registry, of, &all[j]))
            return NULL;
    for (int j = i; j < registry->nkernels && count < TILES; j++)
        if (same_form(registry, of, &all[j]) && all[j].op == of->op &&
            !strcmp(of->recipe, all[j].recipe) && of->d.type == all[j].d.type)
            tiles[count++] = &all[j];
    return tiles[turn % count];
}
