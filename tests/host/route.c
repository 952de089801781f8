/* SPDX-License-Identifier: Apache-2.0 */
/*
** route.c: routes of tokens to experts by the host backend, through quern.h,
** against an order that is found pair by pair.
*/
#include "host.h"

#include "base/random.h"
#include "oracle/route_job.h"

#include <stdio.h>

enum { GUARD = 64, POISON = -77 };

/* How indices are drawn. */
enum draw { EVEN, ONE, NONE, SKEW, TWICE, DROPPED, OUTSIDE, DRAWS };

struct route_case {
    int groups, experts, first, topk, m, rows, wide;
};

static const struct route_case cases[] = {
    {1, 1, 0, 1, 1, -1, 0},
    {1, 1, 0, 1, 0, -1, 0},
    {8, 8, 0, 2, 300, -1, 0},
    {8, 8, 0, 2, 300, 0, 1},
    {8, 8, 0, 2, 300, 171, 1},
    {4, 16, 8, 4, 1000, -1, 1},
    {128, 128, 0, 8, 777, -1, 0},
    {1024, 1024, 0, 32, 257, 256, 1},
    {1024, 4096, 3072, 1, 5000, -1, 0},
    {3, 200, 77, 6, 4099, -1, 1},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static int64_t draw(const struct route_case *c, enum draw how, uint64_t *random,
                    int pair)
{
    const int k = pair % c->topk;
    const int64_t any =
        (int64_t)(qn_random_next(random) % (unsigned)c->experts);

    switch (how) {
    case ONE:
        return c->first + c->groups - 1;
    case NONE:
        return -1;
    case SKEW:
        return any * any / c->experts * any / c->experts;
    case TWICE: /* the same expert for two choices of a token */
        return k % 2 ? c->first : any;
    case DROPPED:
        return pair % 3 ? c->experts : any;
    case OUTSIDE:
        return pair % 5 == 0   ? INT32_MIN
               : pair % 5 == 1 ? c->first - 1
               : pair % 5 == 2
                   ? c->first + c->groups - (c->groups == c->experts)
                   : any;
    default:
        return any;
    }
}

/* Memory of a run, each array between guards. */
struct memory {
    void *index;
    int *lengths, *starts, *gather, *inverse;
    unsigned char *workspace;
};

static int *poisoned(size_t count)
{
    int *at = malloc((count + 2 * GUARD) * sizeof *at);

    assert_non_null(at);
    for (size_t i = 0; i < count + 2 * GUARD; i++)
        at[i] = POISON;
    return at + GUARD;
}

static void is_guarded(const int *at, size_t count, const char *what)
{
    for (int i = 1; i <= GUARD; i++)
        if (at[-i] != POISON || at[count + (size_t)i - 1] != POISON)
            fail_msg("memory around %s was written", what);
}

static int64_t index_at(const struct route_case *c, const void *index, int i)
{
    return c->wide ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
}

/* The promise, one group after the other. Returns the rows. */
static int expect(const struct route_case *c, const struct memory *m, int pairs)
{
    int row = 0;

    for (int group = 0; group < c->groups; group++) {
        const int start = row;

        assert_int_equal(m->starts[group], row);
        for (int i = 0; i < pairs; i++) {
            if (index_at(c, m->index, i) != c->first + group)
                continue;
            assert_int_equal(m->gather[row], i);
            assert_int_equal(m->inverse[i], row);
            row++;
        }
        assert_int_equal(m->lengths[group], row - start);
    }
    assert_int_equal(m->starts[c->groups], row);
    for (int i = 0; i < pairs; i++) {
        const int64_t e = index_at(c, m->index, i);

        if (e < c->first || e >= c->first + c->groups)
            assert_int_equal(m->inverse[i], -1);
    }
    for (int i = row; i < c->m * c->topk; i++)
        assert_int_equal(m->gather[i], POISON);
    for (int i = pairs; i < c->m * c->topk; i++)
        assert_int_equal(m->inverse[i], POISON);
    return row;
}

static void allocate(const struct route_case *c, size_t workspace,
                     struct memory *m)
{
    const size_t pairs = (size_t)(c->m * c->topk), groups = (size_t)c->groups;

    m->index = malloc(pairs * 8 + 8);
    m->lengths = poisoned(groups);
    m->starts = poisoned(groups + 1);
    m->gather = poisoned(pairs);
    m->inverse = poisoned(pairs);
    m->workspace = aligned_alloc(256, workspace + 256);
    assert_true(m->index && m->workspace);
    memset(m->workspace, 0, 256);
    memset(m->workspace + 256, 0xa5, workspace);
}

static void release(const struct route_case *c, struct memory *m)
{
    const size_t pairs = (size_t)(c->m * c->topk), groups = (size_t)c->groups;

    is_guarded(m->lengths, groups, "lengths");
    is_guarded(m->starts, groups + 1, "starts");
    is_guarded(m->gather, pairs, "gather");
    is_guarded(m->inverse, pairs, "inverse");
    free(m->index);
    free(m->lengths - GUARD);
    free(m->starts - GUARD);
    free(m->gather - GUARD);
    free(m->inverse - GUARD);
    free(m->workspace);
}

static struct quern_plan *make(const struct route_case *c, int threads)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;
    char line[160];

    options.backend = QUERN_BACKEND_HOST;
    options.sms = threads;
    snprintf(line, sizeof line,
             "route g=%d m=%d topk=%d experts=%d first=%d index=%s", c->groups,
             c->m, c->topk, c->experts, c->first, c->wide ? "i64" : "i32");
    if (quern_plan_create(host_ctx, line, &options, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    return plan;
}

static void give(const struct route_case *c, const struct memory *m,
                 struct quern_args *args)
{
    const struct quern_args empty = QUERN_ARGS_INIT;

    *args = empty;
    args->rows = c->rows;
    args->of[QUERN_ARG_INDEX].data = m->index;
    args->of[QUERN_ARG_LENGTHS].data = m->lengths;
    args->of[QUERN_ARG_STARTS].data = m->starts;
    args->of[QUERN_ARG_GATHER].data = m->gather;
    args->of[QUERN_ARG_INVERSE].data = m->inverse;
    args->of[QUERN_ARG_WORKSPACE].data = m->workspace;
}

static void fill(const struct route_case *c, enum draw how, struct memory *m)
{
    uint64_t random = (uint64_t)how + 5;

    for (int i = 0; i < c->m * c->topk; i++) {
        const int64_t index = draw(c, how, &random, i);

        if (c->wide)
            ((int64_t *)m->index)[i] = index == INT32_MIN ? INT64_MIN : index;
        else
            ((int32_t *)m->index)[i] = (int32_t)index;
    }
}

/* A plan with its arguments, in memory that release() frees. */
static struct quern_plan *begin(const struct route_case *c, int threads,
                                enum draw how, struct memory *m,
                                struct quern_args *args)
{
    struct quern_plan *plan = make(c, threads);
    struct quern_plan_info info;

    quern_plan_info(plan, &info);
    allocate(c, info.workspace_bytes, m);
    fill(c, how, m);
    give(c, m, args);
    return plan;
}

static void sorts(const struct route_case *c, enum draw how, int threads)
{
    struct quern_plan_info info;
    struct quern_args args;
    struct memory m;
    struct quern_plan *plan = begin(c, threads, how, &m, &args);

    quern_plan_info(plan, &info);
    for (int turn = 0; turn < 2; turn++) {
        if (quern_run(plan, &args, NULL) || quern_check(plan, &args, NULL))
            fail_msg("%s", quern_errmsg());
        expect(c, &m, (c->rows < 0 ? c->m : c->rows) * c->topk);
    }
    for (size_t i = info.workspace_bytes; i < info.workspace_bytes + 256; i++)
        assert_int_equal(m.workspace[i], 0xa5);
    release(c, &m);
    quern_plan_destroy(plan);
}

TEST(test_routes)
{
    static const int threads[] = {1, 2, 7};

    for (int i = 0; i < CASES; i++)
        for (int how = 0; how < DRAWS; how++)
            sorts(&cases[i], (enum draw)how, threads[(i + how) % 3]);
}

/* The first pair that names no expert is reported, and counts for nothing. */
TEST(test_routes_bad_index)
{
    const struct route_case c = {4, 16, 8, 3, 2000, -1, 1};
    struct quern_args args;
    struct memory m;
    struct quern_plan *plan = begin(&c, 3, EVEN, &m, &args);

    ((int64_t *)m.index)[5000] = 17;
    ((int64_t *)m.index)[4000] = INT64_MAX;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
    expect(&c, &m, 6000);
    assert_int_equal(quern_check(plan, &args, NULL), QUERN_ESIZES);
    assert_string_equal(quern_errmsg(),
                        "token 1333, k 1: index is 9223372036854775807: at "
                        "most 15 is expected, or 16 of a dropped one");
    assert_int_equal(quern_check(plan, &args, NULL), QUERN_OK);
    release(&c, &m);
    quern_plan_destroy(plan);
}

/* Each output may be left out. */
TEST(test_routes_optional)
{
    const struct route_case c = {8, 8, 0, 2, 100, -1, 0};
    struct quern_args args;
    struct memory m;
    struct quern_plan *plan = begin(&c, 2, EVEN, &m, &args);

    args.of[QUERN_ARG_LENGTHS].data = args.of[QUERN_ARG_GATHER].data = NULL;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
    assert_int_equal(m.lengths[0], POISON);
    assert_int_equal(m.starts[8], 200);
    give(&c, &m, &args);
    args.of[QUERN_ARG_STARTS].data = args.of[QUERN_ARG_INVERSE].data = NULL;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
    args.of[QUERN_ARG_STARTS].data = m.starts;
    args.of[QUERN_ARG_INVERSE].data = m.inverse;
    assert_int_equal(quern_run(plan, &args, NULL), QUERN_OK);
    expect(&c, &m, 200);
    release(&c, &m);
    quern_plan_destroy(plan);
}

/* Rows are rounded up within the limit of pairs. */
TEST(test_routes_kept)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;

    options.backend = QUERN_BACKEND_HOST;
    if (quern_plan_get(host_ctx, "route g=8 m=5592405 topk=3", &options, NULL,
                       &plan))
        fail_msg("%s", quern_errmsg());
}

/* Arguments and lines that break a rule, and the message's beginning. */
TEST(test_routes_refused)
{
    static const char *const lines[][2] = {
        {"route g=8 m=4 topk=0", "topk is 0: 1 to 32 is expected"},
        {"route g=8 m=4 topk=33", "topk is 33: 1 to 32 is expected"},
        {"route g=0 m=4 topk=1", "g is 0: 1 to 1024 is expected"},
        {"route g=1025 m=4 topk=1", "g is 1025: 1 to 1024 is expected"},
        {"route g=8 m=4 topk=1 experts=7",
         "experts is 7: at least first + g = 8 is expected"},
        {"route g=8 m=8388609 topk=2", "m * topk is 16777218: at most 2^24"},
        {"route g=8 m=4 topk=1 index=f32", "index=f32: i32 or i64 is expected"},
        {"route g=8 m=4", "topk= is missing"},
        {"rout g=8 m=4 topk=1", "rout: route, permute, combine is expected"},
    };

    host_refuses(lines, (int)(sizeof lines / sizeof lines[0]));
}

TEST(test_routes_refused_arguments)
{
    const struct route_case c = {8, 8, 0, 2, 100, -1, 0};
    const int64_t sizes[8] = {0};
    struct quern_args args;
    struct memory m;
    struct quern_plan *plan = begin(&c, 2, EVEN, &m, &args);

    for (int i = 0; i < 7; i++) {
        static const char *const texts[] = {"index is NULL",
                                            "workspace is NULL",
                                            "lengths.type is i64",
                                            "host_sizes is not NULL",
                                            "inverse",
                                            "args.rows is 101",
                                            "ends is not NULL"};

        give(&c, &m, &args);
        if (i < 2)
            args.of[i ? QUERN_ARG_WORKSPACE : QUERN_ARG_INDEX].data = NULL;
        if (i == 2)
            args.of[QUERN_ARG_LENGTHS].type = QUERN_I64;
        if (i == 3)
            args.host_sizes = sizes;
        if (i == 4)
            args.of[QUERN_ARG_INVERSE].data = m.gather + 199;
        if (i == 5)
            args.rows = 101;
        if (i == 6)
            args.of[QUERN_ARG_ENDS].data = m.starts;
        assert_int_equal(quern_run(plan, &args, NULL), QUERN_EINVAL);
        if (!strstr(quern_errmsg(), texts[i]))
            fail_msg("%s: %s", texts[i], quern_errmsg());
        assert_int_equal(m.starts[0], POISON);
    }
    release(&c, &m);
    quern_plan_destroy(plan);
}

/* ------------------------------------------------------------- the verdict */

/* One value of each result is changed: the verdict names it, and no other. */
static void judge_changed(const char *text, const int *results)
{
    const struct qn_options options = {.command = "test_host", .seed = 3};
    struct qn_route_verdict verdict;
    struct qn_route_job job;
    struct qn_route route;

    assert_int_equal(qn_route_parse(text, &route), QUERN_OK);
    assert_int_equal(qn_route_job_begin(&job, &options, host_ctx, &route,
                                        QUERN_BACKEND_HOST),
                     0);
    assert_int_equal(qn_call_run(&job.call), QUERN_OK);
    assert_int_equal(qn_route_job_judge(&job, &options, &verdict), QUERN_OK);
    if (verdict.differ || !verdict.guards || *verdict.where)
        fail_msg("%s: %.0f values differ%s", text, verdict.differ,
                 verdict.where);
    for (; *results >= 0; results++) {
        char *at = job.call.memory[*results].data + 1;

        *at ^= 0x41;
        assert_int_equal(qn_route_job_judge(&job, &options, &verdict),
                         QUERN_OK);
        if (verdict.differ != 1 || !strstr(verdict.where, "[0]"))
            fail_msg("%s: %.0f values differ%s", text, verdict.differ,
                     verdict.where);
        *at ^= 0x41;
    }
    job.call.memory[QUERN_ARG_INVERSE].data[-1] ^= 1;
    assert_int_equal(qn_route_job_judge(&job, &options, &verdict), QUERN_OK);
    assert_false(verdict.guards);
    job.call.memory[QUERN_ARG_INVERSE].data[-1] ^= 1;
    qn_call_free(&job.call);
}

TEST(test_route_verdict)
{
    judge_changed("route g=3 m=40 topk=2 experts=5 first=1",
                  (int[]){QUERN_ARG_LENGTHS, QUERN_ARG_STARTS, QUERN_ARG_GATHER,
                          QUERN_ARG_INVERSE, -1});
    judge_changed("permute m=20 topk=2 k=33 prob=1 dprob=1",
                  (int[]){QUERN_ARG_OUTPUT, QUERN_ARG_DPROB, -1});
    judge_changed("combine m=20 topk=3 k=33 prob=1 residual=1",
                  (int[]){QUERN_ARG_OUTPUT, -1});
}
