/* SPDX-License-Identifier: Apache-2.0 */
/*
** problem_check.c: all rules on a problem.
*/
#include "problem/problem.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/dequantize_rules.h"
#include "problem/field.h"
#include "problem/fuse_rules.h"
#include "problem/gather_rules.h"
#include "problem/geometry.h"
#include "problem/host_sizes_rules.h"
#include "problem/lora_rules.h"
#include "problem/quantize.h"
#include "problem/result_rules.h"
#include "problem/scatter_rules.h"

#include <stdio.h>
#include <string.h>

/* A power of two, so that a larger one is a multiple of a smaller one. */
static int check_alignment(const struct qn_problem *p)
{
    int a = p->alignment;

    if (a == 0 || a == 2 || a == 4 || a == 8 || a == QN_ALIGNMENT)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "align=%d: 2, 4, 8 or %d is expected", a,
                        QN_ALIGNMENT);
}

/* A product of dequantized operands writes the types that bf16's do, which
   qn_dequantize_check knows. */
int qn_problem_writes(const struct qn_problem *p,
                      const struct qn_recipe *recipe, const char *key,
                      const char *writer)
{
    char names[128] = "";

    if (p->d_type > 0 && p->d_type < 32 &&
        (recipe->d_types >> p->d_type & 1 ||
         p->dequantize == QUERN_DEQUANTIZE_PASS))
        return QUERN_OK;
    for (int type = 1; type < 32; type++)
        if (recipe->d_types >> type & 1) {
            size_t used = strlen(names);

            snprintf(names + used, sizeof names - used, "%s%s",
                     used ? ", " : "", qn_type_name(type));
        }
    return qn_error_set(QUERN_EINVAL, "%s=%s: %s writes %s", key,
                        qn_type_name(p->d_type), writer, names);
}

static int check_d_type(const struct qn_problem *p,
                        const struct qn_recipe *recipe)
{
    char writer[64];

    snprintf(writer, sizeof writer, "recipe %s", recipe->name);
    return qn_problem_writes(p, recipe, "d", writer);
}

/* Copies exist in one layout, split as quantize splits them. */
static int check_copies(const struct qn_problem *p,
                        const struct qn_recipe *recipe)
{
    struct qn_problem usual = {.op = p->op};
    struct qn_quantization q;

    if (p->op == QUERN_WGRAD && recipe->scaling[QN_W].packed)
        return qn_error_set(QUERN_EINVAL,
                            "wgrad: recipe %s keeps w as it was packed (copies "
                            "= \"rowwise\"), which is not trained; a gradient "
                            "of its values is wgrad %s",
                            recipe->name,
                            recipe->x == QUERN_F16 ? "fp16" : "bf16");
    if (!qn_scale_any(p, recipe))
        return QUERN_OK;
    qn_problem_defaults(&usual, recipe);
    if (p->a_major != usual.a_major || p->b_major != usual.b_major)
        return qn_error_set(QUERN_EINVAL,
                            "layout=%s: %s reads quantized tensors of recipe "
                            "%s as layout=%s",
                            qn_layout_name(p->a_major, p->b_major),
                            qn_op_name(p->op), recipe->name,
                            qn_layout_name(usual.a_major, usual.b_major));
    if (p->ragged != usual.ragged)
        return qn_error_set(QUERN_EINVAL,
                            "ragged=%s: quantized tensors of recipe %s are "
                            "split along the tokens, ragged=%s is expected",
                            qn_axis_name(p->ragged), recipe->name,
                            qn_axis_name(usual.ragged));
    if (p->op == QUERN_WGRAD && (!qn_scale_source(p, recipe, QN_ROLE_A, &q) ||
                                 !qn_scale_source(p, recipe, QN_ROLE_B, &q)))
        return qn_error_set(QUERN_EINVAL,
                            "wgrad: recipe %s scales one of x and dy; the "
                            "other has no columnwise tensor",
                            recipe->name);
    return QUERN_OK;
}

/* Whole weight gradients are merged, of which tokens are the parts. */
static int check_parts(const struct qn_problem *p)
{
    if (p->microbatches < 0 || p->microbatches > QUERN_MAX_MICROBATCHES)
        return qn_error_set(QUERN_EINVAL,
                            "microbatches=%d: 1 to %d is expected",
                            p->microbatches, QUERN_MAX_MICROBATCHES);
    if (p->microbatches > 1 &&
        (p->op != QUERN_WGRAD || p->ragged != QUERN_AXIS_K))
        return qn_error_set(
            QUERN_EINVAL, "microbatches=%d: only wgrad with ragged=k is merged",
            p->microbatches);
    return QUERN_OK;
}

/* Keys that an activation backward does not support. */
static const char *wrong_gradient(const struct qn_problem *p)
{
    if (p->ragged != QUERN_AXIS_M)
        return "an activation of dgrad needs ragged=m";
    if (p->bias)
        return "bias=1: dgrad has dbias, the gradient of fprop's bias";
    if (p->dprob && !p->probability)
        return "dprob=1 needs prob=1";
    if (p->saved)
        return "saved=1: dgrad always reads pre, the pre-activation";
    return NULL;
}

/* Requirements of an activation and of a bias. */
static const char *wrong_epilogue(const struct qn_problem *p)
{
    if (!qn_geometry_backward(p) &&
        (p->dprob || (p->dbias && !(p->op == QUERN_DGRAD && p->quantize))))
        return "dprob needs dgrad with an activation; dbias needs that, or "
               "dgrad with quantize=";
    if (!p->activation && !p->bias && p->probability)
        return "prob=1 needs an activation or a bias";
    if (!p->activation && p->saved)
        return "saved=1 needs an activation";
    if (!p->activation && p->interleave)
        return "interleave needs an activation";
    if (!p->activation && !p->bias)
        return NULL;
    if (qn_geometry_backward(p) && wrong_gradient(p))
        return wrong_gradient(p);
    if (!qn_geometry_backward(p) &&
        (p->op != QUERN_FPROP || p->ragged != QUERN_AXIS_M))
        return "bias needs fprop, an activation fprop or dgrad, with ragged=m";
    if (p->beta != QUERN_BETA_ZERO)
        return "beta: a bias or an activation needs beta=0";
    return NULL;
}

/* Operands of an activation are halves, or runs of equal length. */
static int check_epilogue(const struct qn_problem *p)
{
    const char *wrong = wrong_epilogue(p);
    const int64_t results = qn_geometry_backward(p) ? p->n : p->n / 2;

    if (wrong)
        return qn_error_set(QUERN_EINVAL, "%s", wrong);
    if (p->interleave < 0 || p->interleave > 1 << 16)
        return qn_error_set(QUERN_EINVAL,
                            "interleave=%d: 0 to 65536 is expected",
                            p->interleave);
    if (!qn_geometry_halves(p))
        return QUERN_OK;
    if (p->n % 2 && !qn_geometry_backward(p))
        return qn_error_set(QUERN_EINVAL,
                            "n=%lld: the two operands of an activation need an "
                            "even number of columns",
                            (long long)p->n);
    if (p->interleave && results % p->interleave)
        return qn_error_set(QUERN_EINVAL,
                            "interleave=%d does not divide %lld results of a "
                            "row",
                            p->interleave, (long long)results);
    if (qn_geometry_backward(p) && p->n > INT32_MAX / 2)
        return qn_error_set(
            QUERN_EINVAL, "n=%lld: D has 2*n columns; at most %d are supported",
            (long long)p->n, INT32_MAX);
    return QUERN_OK;
}

static int check_result(const struct qn_problem *p,
                        const struct qn_recipe *recipe)
{
    const char *wrong = p->copies ? qn_result_wrong(p, recipe) : NULL;

    if (!wrong)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "copies=%s, recipe %s: %s",
                        qn_copies_name(p->copies), recipe->name, wrong);
}

/* D has rows or columns of no group where the groups split it. */
static int check_outside(const struct qn_problem *p)
{
    if (!p->outside)
        return QUERN_OK;
    if (p->ragged != QUERN_AXIS_M && p->ragged != QUERN_AXIS_N)
        return qn_error_set(QUERN_EINVAL,
                            "outside=zero, ragged=%s: all of D belongs to "
                            "groups; ragged=m or n is expected",
                            qn_axis_name(p->ragged));
    if (p->copies)
        return qn_error_set(QUERN_EINVAL,
                            "outside=zero, copies=%s: rows of quantized "
                            "tensors that belong to no group are not zeroed; "
                            "outside=keep is expected",
                            qn_copies_name(p->copies));
    return QUERN_OK;
}

/* Only operands with a group axis have many matrices. */
static int check_pointers(const struct qn_problem *p,
                          const struct qn_recipe *recipe)
{
    struct qn_geometry g;

    if (p->pointers < 0 || p->pointers >> (QN_ROLE_D + 1))
        return qn_error_set(QUERN_EINVAL,
                            "pointers is %d: bits of enum quern_pointers are "
                            "expected",
                            p->pointers);
    for (int role = QN_ROLE_A; role <= QN_ROLE_D; role++) {
        if (!(p->pointers >> role & 1))
            continue;
        qn_geometry_of(p, recipe, role, &g);
        if (!g.grouped)
            return qn_error_set(QUERN_EINVAL,
                                "pointers=%c: with ragged=%s %c has no group "
                                "axis: all groups are in one buffer",
                                QN_LETTERS[role], qn_axis_name(p->ragged),
                                QN_LETTERS[role]);
        if (g.sf.scaling)
            return qn_error_set(
                QUERN_EINVAL,
                "pointers=%c: quantized tensors have all groups in one buffer",
                QN_LETTERS[role]);
        if (role == QN_ROLE_C && p->beta != QUERN_BETA_ANY)
            return qn_error_set(QUERN_EINVAL,
                                "pointers=c: beta=%s has no C of its own",
                                qn_beta_name(p->beta));
    }
    return QUERN_OK;
}

/* Kernels take int; the ragged axis may be empty, no other may. */
static int check_lengths(const struct qn_problem *p)
{
    int code = qn_problem_groups(p->groups);

    if (code)
        return code;
    for (int axis = QUERN_AXIS_M; axis <= QUERN_AXIS_K; axis++) {
        int ragged = axis == p->ragged;
        int64_t length = qn_geometry_length(p, axis);
        int64_t least = ragged ? 0 : 1;
        int64_t most = ragged ? QN_RAGGED_LIMIT : INT32_MAX;

        if (length < least || length > most)
            return qn_error_set(QUERN_EINVAL, "%s=%lld: %lld to %lld%s",
                                qn_axis_name(axis), (long long)length,
                                (long long)least, (long long)most,
                                ragged ? " over all groups" : "");
    }
    return QUERN_OK;
}

/* So that no later product of sizes can overflow. */
static int check_bytes(const struct qn_problem *p,
                       const struct qn_recipe *recipe)
{
    static const char names[] = "ABCDPT";
    struct qn_quantization copy;
    struct qn_geometry geometry;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        int fits =
            !qn_scale_source(p, recipe, role, &copy) || qn_quantize_fits(&copy);

        if (role == QN_ROLE_C || !qn_geometry_has(p, role))
            continue; /* C is as D does */
        if (fits)
            qn_geometry_of(p, recipe, role, &geometry);
        if (!fits || qn_geometry_bytes(&geometry, 0, 0) < 0)
            return qn_error_set(QUERN_EINVAL,
                                "g=%d m=%lld n=%lld k=%lld: %c has more "
                                "bytes than 64 bits count",
                                p->groups, (long long)p->m, (long long)p->n,
                                (long long)p->k, names[role]);
    }
    return QUERN_OK;
}

int qn_problem_check(struct quern_context *ctx,
                     const struct qn_problem *problem,
                     const struct qn_recipe **out)
{
    const struct qn_recipe *recipe;
    int code = qn_problem_begin(ctx, &qn_line_product, problem, &recipe);

    if (code)
        return code;
    code = check_alignment(problem);
    if (!code && problem->op != QUERN_FPROP)
        code = qn_problem_gradient(recipe, qn_op_name(problem->op),
                                   "it serves fprop");
    if (!code)
        code = check_parts(problem);
    if (!code)
        code = qn_host_size_problem(problem->sizes,
                                    problem->ragged != QUERN_AXIS_NONE);
    if (!code)
        code = check_copies(problem, recipe);
    if (!code)
        code = qn_fuse_problem(problem, recipe);
    if (!code)
        code = qn_gather_problem(problem, recipe);
    if (!code)
        code = qn_scatter_problem(problem, recipe);
    if (!code)
        code = qn_lora_problem(ctx, problem, recipe);
    if (!code)
        code = check_d_type(problem, recipe);
    if (!code)
        code = check_lengths(problem);
    if (!code)
        code = check_epilogue(problem);
    if (!code)
        code = check_result(problem, recipe);
    if (!code)
        code = check_outside(problem);
    if (!code)
        code = check_bytes(problem, recipe);
    if (!code)
        code = check_pointers(problem, recipe);
    if (!code && problem->dequantize > QUERN_DEQUANTIZE_MAINLOOP)
        code = qn_dequantize_check(ctx, problem, recipe);
    if (out)
        *out = recipe;
    return code;
}
