/* SPDX-License-Identifier: Apache-2.0 */
/* route.c: the rules of lines about routes, as text in both directions. */
#include "problem/route.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/problem.h"

#include <string.h>

static const struct qn_route usual = {.index = QUERN_I32, .type = QUERN_BF16};

int qn_route_experts(const struct qn_route *r)
{
    return r->experts ? r->experts : r->first + r->groups;
}

/* A number within its bounds. */
static int check_range(const char *name, int64_t value, int64_t least,
                       int64_t most)
{
    if (value >= least && value <= most)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL, "%s is %lld: %lld to %lld is expected",
                        name, (long long)value, (long long)least,
                        (long long)most);
}

/* The window of this rank is part of all experts. */
static int check_window(const struct qn_route *r)
{
    int code = check_range("g", r->groups, 1, QUERN_MAX_GROUPS);

    if (!code)
        code = check_range("first", r->first, 0, QN_MAX_EXPERTS);
    if (!code)
        code = check_range("experts", r->experts, 0, QN_MAX_EXPERTS);
    if (code || r->first + r->groups <= qn_route_experts(r))
        return code;
    return qn_error_set(QUERN_EINVAL,
                        "experts is %d: at least first + g = %d is expected",
                        r->experts, r->first + r->groups);
}

/* Fields that lines with this first word do not have. */
static int check_fields(const struct qn_route *r)
{
    for (int i = 0; i < qn_line_route.count; i++) {
        const struct qn_field *f = &qn_line_route.fields[i];

        if (f->without >> r->work & 1 &&
            memcmp((const char *)r + f->at, (const char *)&usual + f->at,
                   f->kind->size))
            return qn_error_set(QUERN_EINVAL,
                                "%s=: a '%s' line has no such key", f->key,
                                qn_routing_name(r->work));
    }
    return QUERN_OK;
}

int qn_route_check(const struct qn_route *r)
{
    int code = qn_field_check(&qn_line_route, r);

    if (!code)
        code = check_fields(r);
    if (!code)
        code = r->work == QUERN_ROUTE ? check_window(r)
                                      : check_range("k", r->k, 1, 1 << 30);
    if (!code && r->dprob && !r->probability)
        code = qn_error_set(QUERN_EINVAL, "dprob=1 needs prob=1: it is the "
                                          "gradient of the probabilities");
    if (!code)
        code = check_range("topk", r->topk, 1, QN_MAX_TOPK);
    if (!code)
        code = check_range("m", r->m, 0, QN_MAX_PAIRS);
    if (!code && r->m * r->topk > QN_MAX_PAIRS)
        code = qn_error_set(QUERN_EINVAL,
                            "m * topk is %lld: at most 2^24 pairs of a token "
                            "and an expert are supported",
                            (long long)(r->m * r->topk));
    return code;
}

int qn_route_parse(const char *text, struct qn_route *out)
{
    struct qn_route r = usual;
    char word[QN_LONGEST_WORD];
    int code, found = qn_field_next(&text, word);

    if (found < 0)
        return QUERN_EINVAL;
    code = qn_field_listed("", word, &qn_routing_words, &r.work);
    if (!code)
        code = qn_field_parse(&qn_line_route, r.work, text, &r);
    if (!code)
        code = qn_route_check(&r);
    if (!code)
        *out = r;
    return code;
}

int qn_route_print(const struct qn_route *r, char *buffer, size_t size)
{
    return qn_field_print(&qn_line_route, r->work, qn_routing_name(r->work), r,
                          &usual, "", buffer, size);
}

/* [rows, k], at any multiple of its elements. */
static void set_tensor(const struct qn_route *r, int64_t rows,
                       struct qn_tensor *t)
{
    const size_t element = (size_t)qn_type_bits(r->type) / 8;

    t->type = r->type;
    t->ndim = 2;
    t->shape[0] = rows;
    t->shape[1] = r->k;
    t->bytes = (size_t)rows * (size_t)r->k * element;
    t->alignment = element;
}

static void set_tensors(const struct qn_route *r, struct qn_route_args *args)
{
    const int64_t pairs = r->m * r->topk;
    const int permute = r->work == QUERN_PERMUTE;

    set_tensor(r, permute ? r->m : pairs, &args->in);
    set_tensor(r, permute ? pairs : r->m, &args->out);
    if (r->residual)
        set_tensor(r, r->m, &args->residual);
    if (r->dprob)
        set_tensor(r, pairs, &args->rows);
}

int qn_route_needs(const struct qn_route *r, struct qn_route_description *d)
{
    const int64_t pairs = r->m * r->topk;
    int64_t chunks = (pairs + QN_ROUTE_LEAST - 1) / QN_ROUTE_LEAST;
    int code = qn_route_check(r);

    if (code)
        return code;
    chunks = chunks < 1                 ? 1
             : chunks > QN_ROUTE_CHUNKS ? QN_ROUTE_CHUNKS
                                        : chunks;
    memset(d, 0, sizeof *d);
    d->args.tokens = r->m;
    if (r->work != QUERN_ROUTE) {
        set_tensors(r, &d->args);
        return QUERN_OK;
    }
    d->workspace_bytes = QN_WORKSPACE_BYTES;
    qn_space_add(&d->workspace_bytes,
                 (size_t)chunks * (size_t)(r->groups + 1) * 4);
    return QUERN_OK;
}
