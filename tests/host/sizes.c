/*
** sizes.c: group sizes that lie. Nothing outside the buffers may be written,
** and quern_check must blame the first group that breaks a rule.
*/
#include "host.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* One lie, one type of sizes, one type of D. */
static void run_lie(const struct qt_lie *lie, int sizes_type, int d_type)
{
    struct host_output out = {0};
    struct quern_args args;
    struct quern_plan *plan;
    struct qt_data data;
    struct qt_case c;
    char group[16];

    qt_lie_case(&c, lie, sizes_type);
    assert_int_equal(qt_data_make(&c, &data), 0);
    qt_lie_apply(&c, lie, data.first, data.offsets);
    plan = host_plan(&c, d_type, 0, &args);
    host_output_reset(&out, qt_d_bytes(&c, d_type), 256);
    if (host_run(plan, &args, &c, &data, &out) != QUERN_ESIZES)
        fail_msg("%s: not reported", lie->name);
    snprintf(group, sizeof group, "group %d", lie->group);
    if (!strstr(quern_errmsg(host_ctx), group))
        fail_msg("%s: expected %s in '%s'", lie->name, group,
                 quern_errmsg(host_ctx));
    host_output_guarded(&out, lie->name);
    quern_plan_free(plan);
    host_output_free(&out);
    qt_data_free(&data);
}

/* Each lie, as int32 where its value fits and as int64. */
void test_lying_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < qt_nlies; i++) {
        run_lie(&qt_lies[i], QUERN_I64, i % 2 ? QUERN_F32 : QUERN_BF16);
        if (!qt_lies[i].only_i64)
            run_lie(&qt_lies[i], QUERN_I32, i % 2 ? QUERN_BF16 : QUERN_F32);
    }
}

/* A report is given once; right sizes afterwards give right results. */
void test_check_clears(void **state)
{
    struct host_output out = {0};
    struct qt_verdict verdict;
    struct quern_args args;
    struct quern_plan *plan;
    struct qt_data data;
    struct qt_case c;

    (void)state;
    qt_lie_case(&c, &qt_lies[0], QUERN_I32);
    assert_int_equal(qt_data_make(&c, &data), 0);
    assert_int_equal(qt_data_reference(&c, &data, 1), 0);
    qt_lie_apply(&c, &qt_lies[0], data.first, data.offsets);
    plan = host_plan(&c, QUERN_F32, 0, &args);
    host_output_reset(&out, qt_d_bytes(&c, QUERN_F32), 256);
    assert_int_equal(host_run(plan, &args, &c, &data, &out), QUERN_ESIZES);
    assert_int_equal(quern_check(plan, &args, NULL), QUERN_OK);

    qt_sizes_write(&c, data.first, data.offsets);
    host_output_reset(&out, qt_d_bytes(&c, QUERN_F32), 256);
    assert_int_equal(host_run(plan, &args, &c, &data, &out), QUERN_OK);
    if (!qt_compare(&c, &data, QUERN_F32, out.d, &verdict))
        fail_msg("%s", verdict.text);
    quern_plan_free(plan);
    host_output_free(&out);
    qt_data_free(&data);
}
