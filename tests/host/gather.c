/* SPDX-License-Identifier: Apache-2.0 */
/*
** gather.c: products whose rows of A are read through indices, by the host
** backend: against the same rows in order, and indices of no row.
*/
#include "host.h"

#include "base/random.h"

#include <stdio.h>

enum { GROUPS = 5, ROWS = 300, TOKENS = 70, K = 72, N = 40, MOST = ROWS + 8 };

/* Operands of both products; the ends are poisoned. */
static struct {
    _Alignas(64) unsigned short tokens[TOKENS * K], a[ROWS * K];
    _Alignas(64) unsigned short b[GROUPS * N * K], d[2][MOST * N];
    _Alignas(64) unsigned char workspace[2][1 << 16];
    int lengths[GROUPS], gather[ROWS];
} m;

static void fill(uint64_t seed, int topk, int rows)
{
    memset(&m, 0, sizeof m);
    memset(m.d, 0xa5, sizeof m.d);
    for (int i = 0; i < TOKENS * K; i++)
        m.tokens[i] = (unsigned short)(0x3f00 + qn_random_next(&seed) % 256);
    for (int i = 0; i < GROUPS * N * K; i++)
        m.b[i] = (unsigned short)(0xbe00 + qn_random_next(&seed) % 512);
    for (int i = 0; i < ROWS; i++) {
        m.gather[i] =
            i < rows ? (int)(qn_random_next(&seed) % (unsigned)(TOKENS * topk))
                     : -1 - i;
        if (i < rows)
            memcpy(m.a + i * K, m.tokens + m.gather[i] / topk * K, K * 2);
    }
}

/* Product `which` of a line, checked; its code. */
static int multiply(const char *line, int which)
{
    struct quern_plan_options host = QUERN_PLAN_OPTIONS_INIT;
    struct quern_args args = QUERN_ARGS_INIT;
    struct quern_plan *plan;
    int code;

    host.backend = QUERN_BACKEND_HOST;
    if (quern_plan_create(host_ctx, line, &host, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    args.of[QUERN_ARG_WORKSPACE].data = m.workspace[which];
    args.of[QUERN_ARG_LENGTHS].data = m.lengths;
    args.of[QUERN_ARG_A].data = which ? m.tokens : m.a;
    args.of[QUERN_ARG_B].data = m.b;
    args.of[QUERN_ARG_D].data = m.d[which];
    args.of[QUERN_ARG_GATHER].data = which ? m.gather : NULL;
    if (quern_run(plan, &args, NULL))
        fail_msg("%s: %s", line, quern_errmsg());
    code = quern_check(plan, &args, NULL);
    quern_plan_destroy(plan);
    return code;
}

static void lengths(const int of[GROUPS])
{
    memcpy(m.lengths, of, sizeof m.lengths);
}

static const int sizes[][GROUPS] = {{0, 1, 63, 129, 107},
                                    {300, 0, 0, 0, 0},
                                    {0, 0, 0, 0, 300},
                                    {64, 65, 7, 0, 128},
                                    {0, 0, 0, 0, 0}};

/* The same bytes as of rows in order, in all of D. */
static void is_same(const char *line, const int of[GROUPS], int topk)
{
    char gathered[200];
    int rows = 0;

    for (int g = 0; g < GROUPS; g++)
        rows += of[g];
    fill((uint64_t)(rows + topk), topk, rows);
    lengths(of);
    snprintf(gathered, sizeof gathered, "%.80s gather=a tokens=%d topk=%d",
             line, TOKENS, topk);
    assert_int_equal(multiply(line, 0), QUERN_OK);
    assert_int_equal(multiply(gathered, 1), QUERN_OK);
    assert_memory_equal(m.d[0], m.d[1], sizeof m.d[0]);
}

TEST(test_gather)
{
    for (int i = 0; i < 5; i++)
        for (int topk = 1; topk < 8; topk += 3) {
            is_same("fprop bf16 g=5 m=300 n=40 k=72", sizes[i], topk);
            is_same("dgrad bf16 g=5 m=300 n=40 k=72", sizes[i], topk);
            is_same("fprop bf16 g=5 m=300 n=40 k=72 activation=swiglu",
                    sizes[i], topk);
        }
}

/* Indices of no row are reported, zeros stand for it, others are not read. */
TEST(test_gather_bad_index)
{
    static const int wrong[] = {-1, TOKENS * 2, INT32_MAX, INT32_MIN};
    char text[100];

    for (int i = 0; i < 4; i++) {
        fill(5, 2, ROWS);
        lengths(sizes[0]);
        m.gather[64 + i] = wrong[i];
        memset(m.a + (64 + i) * K, 0, K * 2);
        assert_int_equal(multiply("fprop bf16 g=5 m=300 n=40 k=72", 0),
                         QUERN_OK);
        assert_int_equal(multiply("fprop bf16 g=5 m=300 n=40 k=72 gather=a "
                                  "tokens=70 topk=2",
                                  1),
                         QUERN_ESIZES);
        snprintf(text, sizeof text, "gather[%d] is %d: it names none of a's",
                 64 + i, wrong[i]);
        if (strncmp(quern_errmsg(), text, strlen(text)) != 0)
            fail_msg("%s", quern_errmsg());
        assert_memory_equal(m.d[0], m.d[1], sizeof m.d[0]);
        for (int j = 0; j < 32; j++) /* the record is cleared */
            assert_int_equal(m.workspace[1][j], 0);
    }
}

TEST(test_gather_refused)
{
#define LINE "fprop bf16 g=5 m=300 n=40 k=72 "
    static const char *const lines[][2] = {
        {LINE "topk=2", "topk= needs gather=a"},
        {LINE "tokens=70", "tokens= needs gather=a"},
        {LINE "gather=a", "tokens=0: gather=a has 1 to"},
        {LINE "gather=b tokens=70", "gather=b: none, a is expected"},
        {LINE "gather=a tokens=70 topk=33", "topk=33: 1 to 32 is expected"},
        {LINE "gather=a tokens=1000000000 topk=3",
         "tokens=1000000000 topk=3: indices are int32"},
        {LINE "gather=a tokens=70 ragged=n", "gather=a: fprop or dgrad with"},
        {LINE "gather=a tokens=70 layout=tt", "gather=a: fprop or dgrad with"},
        {"wgrad bf16 g=5 m=40 n=40 k=72 gather=a tokens=70",
         "gather=a: fprop or dgrad with"},
        {"fprop mxfp8 g=5 m=300 n=128 k=128 gather=a tokens=70",
         "gather=a: recipe mxfp8 has no f32 scales, whose rows are gathered "
         "as codes; dequantize=pass is expected"},
        {"fprop nvfp4 g=5 m=300 n=128 k=128 gather=a tokens=70 "
         "dequantize=pass",
         "gather=a: recipe nvfp4 scales several rows together"},
        {"fprop fp8_tensor g=5 m=300 n=128 k=128 gather=a tokens=70",
         "gather=a: recipe fp8_tensor scales several rows together"},
        {"fprop fp8_block g=5 m=300 n=128 k=128 gather=a tokens=70 "
         "dequantize=pass",
         "dequantize=pass: "},
    };
#undef LINE
    host_refuses(lines, sizeof lines / sizeof lines[0]);
}
