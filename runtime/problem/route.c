/* SPDX-License-Identifier: Apache-2.0 */
/* route.c: the rules of lines about routes, as text in both directions. */
#include "problem/route.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/problem.h"

#include <stdio.h>
#include <string.h>

static const struct qn_route usual = {.index = QUERN_I32};

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

int qn_route_check(const struct qn_route *r)
{
    int code = qn_field_check(&qn_line_route, r);

    if (!code)
        code = check_window(r);
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

int qn_route_parse(struct quern_context *ctx, const char *text,
                   struct qn_route *out)
{
    struct qn_route r = usual;
    char word[QN_LONGEST_WORD];
    int found, code;

    if (!ctx || !text || !out)
        return qn_error_null("ctx", ctx, "text", text, "route");
    found = qn_field_next(&text, word);
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
    if (!r)
        return snprintf(buffer, buffer ? size : 0, "%s", "");
    return qn_field_print(&qn_line_route, r->work, qn_routing_name(r->work), r,
                          &usual, "", buffer, size);
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
    d->args.rows = r->m;
    d->workspace_bytes = QN_WORKSPACE_BYTES;
    qn_space_add(&d->workspace_bytes,
                 (size_t)chunks * (size_t)(r->groups + 1) * 4);
    return QUERN_OK;
}
