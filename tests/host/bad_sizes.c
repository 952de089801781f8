/* SPDX-License-Identifier: Apache-2.0 */
/*
** bad_sizes.c: invalid group sizes, and memory given for two things at once.
** Nothing outside the buffers may be written; qn_check must blame the first
** group that breaks a rule, a run the arguments.
*/
#include "host.h"

#include <stdio.h>

/* The op with the ragged axis, in BF16. */
static void begin_case(struct qt_case *c, int ragged, int d_type)
{
    *c = (struct qt_case){.type = QUERN_BF16, .d_type = d_type};
    qt_case_op(c, ragged == QUERN_AXIS_K ? QUERN_WGRAD : QUERN_FPROP);
    c->ragged = ragged;
}

void host_lie(struct qt_case *c, const struct qt_bad_size *bad_size,
              int sizes_type)
{
    struct host_output out = {0};
    struct qn_args args;
    struct qn_plan *plan;
    struct qt_data data;
    char group[16];

    qt_bad_size_case(c, bad_size, sizes_type);
    assert_int_equal(qt_data_make(c, &data), 0);
    qt_bad_size_apply(c, bad_size, data.first, data.offsets);
    plan = host_plan(c, 0, &args);
    host_output_reset(&out, &data);
    if (host_run(plan, &args, c, &data, &out) != QUERN_ESIZES)
        fail_msg("%s: not reported", bad_size->name);
    snprintf(group, sizeof group, "group %d", bad_size->group);
    if (!strstr(quern_errmsg(), group))
        fail_msg("%s: expected %s in '%s'", bad_size->name, group,
                 quern_errmsg());
    host_output_guarded(&out, bad_size->name);
    qn_plan_free(plan);
    host_output_free(&out);
    qt_data_free(&data);
}

/* One are, one ragged axis, one type of sizes, one type of D. */
static void run_bad_size(const struct qt_bad_size *bad_size, int ragged,
                         int sizes_type, int d_type)
{
    struct qt_case c;

    begin_case(&c, ragged, d_type);
    c.outside = bad_size->index % 2;
    host_lie(&c, bad_size, sizes_type);
}

/* Each are on each axis, as int32 where its value fits and as int64. */
TEST(test_bad_sizes)
{
    for (int ragged = QUERN_AXIS_M; ragged <= QUERN_AXIS_K; ragged++)
        for (int i = 0; i < qt_nbad_sizes; i++) {
            int d_type = (i + ragged) % 2 ? QUERN_F32 : QUERN_BF16;

            run_bad_size(&qt_bad_sizes[i], ragged, QUERN_I64, d_type);
            if (!qt_bad_sizes[i].only_i64)
                run_bad_size(&qt_bad_sizes[i], ragged, QUERN_I32, d_type);
        }
}

/* A report is given once; right sizes afterwards give right results. */
TEST(test_check_clears)
{
    struct host_output out = {0};
    struct qt_verdict verdict;
    struct qn_args args;
    struct qn_plan *plan;
    struct qt_data data;
    struct qt_case c;

    begin_case(&c, QUERN_AXIS_M, QUERN_F32);
    qt_bad_size_case(&c, &qt_bad_sizes[0], QUERN_I32);
    assert_int_equal(qt_data_make(&c, &data), 0);
    assert_int_equal(qt_data_reference(&c, &data, 1), 0);
    qt_bad_size_apply(&c, &qt_bad_sizes[0], data.first, data.offsets);
    plan = host_plan(&c, 0, &args);
    host_output_reset(&out, &data);
    assert_int_equal(host_run(plan, &args, &c, &data, &out), QUERN_ESIZES);
    assert_int_equal(qn_check(plan, &args, NULL), QUERN_OK);

    qt_sizes_write(&c, data.first, data.offsets);
    host_output_reset(&out, &data);
    assert_int_equal(host_run(plan, &args, &c, &data, &out), QUERN_OK);
    if (!qt_compare(&c, &data, out.d, &verdict))
        fail_msg("%s", verdict.text);
    qn_plan_free(plan);
    host_output_free(&out);
    qt_data_free(&data);
}

/* Outputs of a cast may not overlap its inputs. */
static void share(const char *text, size_t written, size_t read,
                  const char *says)
{
    static _Alignas(256) char memory[8][1 << 14];
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct qn_quantize_args a;
    struct qn_quantization q;
    const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};

    assert_int_equal(qn_quantize_parse(host_ctx, text, &q), QUERN_OK);
    assert_int_equal(qn_quantize_needs(host_ctx, &q, &need), QUERN_OK);
    assert_int_equal(qn_quantize_plan(host_ctx, &q, &host, &plan), QUERN_OK);
    a = need.args;
    memset(memory, 0, sizeof memory);
    a.in.data = a.in.ndim ? memory[0] : NULL;
    a.row.data = a.row.ndim ? memory[1] : NULL;
    a.row.sf = a.row.ndim ? memory[2] : NULL;
    a.workspace = memory[3];
    a.scale = need.history ? (float *)(void *)memory[4] : NULL;
    a.history = need.history ? (float *)(void *)memory[5] : NULL;
    a.host_sizes = q.sizes ? (int64_t *)(void *)memory[6] : NULL;
    if (qn_quantize_run(plan, &a, NULL))
        fail_msg("%s: %s", text, quern_errmsg());
    if (read == offsetof(struct qn_quantize_args, in.pointers))
        a.in.data = NULL;
    memcpy((char *)&a + read, (const char *)&a + written, sizeof(void *));
    memset(memory, 0, sizeof memory);
    assert_int_equal(qn_quantize_run(plan, &a, NULL), QUERN_EINVAL);
    if (!strstr(quern_errmsg(), says))
        fail_msg("%s: '%s' lacks '%s'", text, quern_errmsg(), says);
    for (size_t i = 0; i < sizeof memory; i++)
        assert_int_equal(((const char *)memory)[i], 0);
    qn_quantize_plan_free(plan);
}

TEST(test_shared_casts)
{
#define AT(field) offsetof(struct qn_quantize_args, field)
    share("rescale fp8_tensor_delayed of=x", AT(history), AT(scale), "overlap");
    share("quantize fp8_row of=x g=3 m=64 k=64 copies=rowwise sizes=host",
          AT(row.sf), AT(host_sizes), "rowwise.sf overlaps host_sizes");
    share("quantize fp8_row of=w g=3 m=16 k=64 copies=rowwise", AT(row.data),
          AT(in.pointers), "rowwise overlaps input.pointers");
    share("quantize fp8_tensor_delayed of=x g=1 m=64 k=64 copies=rowwise "
          "sizes=host",
          AT(row.data), AT(scale), "rowwise overlaps scale");
#undef AT
}
