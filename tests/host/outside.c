/* SPDX-License-Identifier: Apache-2.0 */
/*
** outside.c: rows and columns that belong to no group become zeros: in all
** forms of sizes, of D and P, and only those of the run.
*/
#include "host.h"

#include "base/element.h"

enum { TOTAL = 24, FEWER = 20, SIDE = 12, K = 8, STRIDE = 27, GROUPS = 4 };

/* Two groups are empty or apart where a form can say so; `has` names the group
   of each row, or of each column. */
static const int64_t lengths[] = {5, 0, 4, 2}, starts[] = {3, 1, 8, 15, 99};
static const int64_t bounds[] = {3, 8, 8, 12, 14}, ends[] = {5, 5, 9, 11};
static const int32_t narrow[] = {5, 5, 9, 11};
static const struct sizes {
    const void *lengths, *offsets;
    int type;
    char has[TOTAL + 1];
} forms[] = {
    {lengths, NULL, QUERN_I64, "00000222233............."},
    {NULL, bounds, QUERN_I64, "...00000222233.........."},
    {lengths, starts, QUERN_I64, "...000002222...33......."},
    {NULL, ends, QUERN_I64 + QN_SIZES_ENDS, "00000222233............."},
    {NULL, narrow, QUERN_I32 + QN_SIZES_ENDS, "00000222233............."},
};

enum { POISON = -7 };
static _Alignas(256) struct {
    unsigned short a[TOTAL * K], b[GROUPS * SIDE * K];
    float d[TOTAL * STRIDE], p[TOTAL * STRIDE];
    _Alignas(256) char workspace[4096];
} memory;

static void fill(void)
{
    for (int i = 0; i < TOTAL * K; i++)
        qn_element_store(memory.a, QUERN_BF16, (size_t)i, 1);
    for (int i = 0; i < GROUPS * SIDE * K; i++)
        qn_element_store(memory.b, QUERN_BF16, (size_t)i, 1);
    for (int i = 0; i < TOTAL * STRIDE; i++)
        memory.d[i] = memory.p[i] = POISON;
}

/* Values of groups are positive. Poison stays between rows, past those of the
   run, and everywhere if it was skipped. */
static void expect(const float *d, int rows, int columns, int by_rows,
                   const struct sizes *sizes, int skipped)
{
    for (int i = 0; i < TOTAL * STRIDE; i++) {
        const int row = i / STRIDE, column = i % STRIDE;

        if (skipped || row >= rows || column >= columns)
            assert_true(d[i] == POISON);
        else if (sizes->has[by_rows ? row : column] == '.')
            assert_true(d[i] == 0);
        else
            assert_true(d[i] > 0);
    }
}

static void run(const char *text, const struct sizes *sizes, int total,
                int noop)
{
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct qn_description need;
    struct qn_args *args = &need.args;
    struct qn_problem p;
    struct qn_plan *plan = NULL;
    struct qn_tensor *tokens;
    int by_rows;

    if (qn_problem_parse(host_ctx, text, &p) ||
        qn_problem_describe(host_ctx, &p, &need) ||
        qn_plan(host_ctx, &p, &host, &plan))
        fail_msg("%s: %s", text, quern_errmsg());
    fill();
    by_rows = p.ragged == QUERN_AXIS_M;
    tokens = by_rows ? &args->a : &args->b;
    args->a.data = by_rows ? memory.a : memory.b;
    args->b.data = by_rows ? memory.b : memory.a;
    args->d.data = memory.d;
    args->p.data = p.saved ? memory.p : NULL;
    args->d.stride = args->p.stride = STRIDE;
    args->d.bytes = args->p.bytes = sizeof memory.d;
    tokens->shape[0] = args->d.shape[!by_rows] = args->p.shape[0] = total;
    tokens->first_dims = sizes->lengths;
    tokens->offsets = sizes->offsets;
    tokens->sizes_type = sizes->type;
    args->noop = &noop;
    args->workspace = memory.workspace;
    if (qn_run(plan, args, NULL) || qn_check(plan, args, NULL))
        fail_msg("%s: %s", text, quern_errmsg());
    expect(memory.d, by_rows ? total : SIDE,
           !by_rows       ? total
           : p.activation ? SIDE / 2
                          : SIDE,
           by_rows, sizes, noop);
    if (p.saved)
        expect(memory.p, total, SIDE, 1, sizes, noop);
    qn_plan_free(plan);
}

#define LINE "fprop bf16 g=4 k=8 d=f32 align=4 outside=zero "

TEST(test_outside)
{
    static const char *const lines[] = {
        LINE "m=24 n=12",
        LINE "m=24 n=12 activation=geglu saved=1",
        LINE "m=12 n=24 ragged=n",
    };

    for (int i = 0; i < 3; i++)
        for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
            run(lines[i], &forms[form], TOTAL, 0);
            run(lines[i], &forms[form], FEWER, 0);
            run(lines[i], &forms[form], TOTAL, 1);
        }
}
