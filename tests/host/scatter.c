/* SPDX-License-Identifier: Apache-2.0 */
/*
** scatter.c: products that write rows of D anywhere, by the host backend:
** against the same rows in order, by numbers of rows and by addresses.
*/
#include "host.h"

#include "base/random.h"

#include <stdio.h>

enum { GROUPS = 5, ROWS = 300, K = 72, N = 40, POISON = 0xa5 };

/* Operands of both products; D's are poisoned, `other` is where addresses
   lead. */
static struct {
    _Alignas(64) unsigned short a[ROWS * K], b[GROUPS * N * K];
    _Alignas(64) unsigned short d[2][ROWS * N], other[ROWS * N];
    _Alignas(64) unsigned char workspace[1 << 16];
    int lengths[GROUPS], scatter[ROWS];
    uint64_t addresses[ROWS];
} m;

/* Rows of D in an order that is drawn, every seventh nowhere. */
static void fill(uint64_t seed)
{
    static const int none[] = {-1, ROWS, INT32_MIN, INT32_MAX};

    memset(&m, 0, sizeof m);
    memset(m.d, POISON, sizeof m.d);
    memset(m.other, POISON, sizeof m.other);
    for (int i = 0; i < ROWS * K; i++)
        m.a[i] = (unsigned short)(0x3f00 + qn_random_next(&seed) % 256);
    for (int i = 0; i < GROUPS * N * K; i++)
        m.b[i] = (unsigned short)(0xbe00 + qn_random_next(&seed) % 512);
    for (int i = 0; i < ROWS; i++) {
        const int j = (int)(qn_random_next(&seed) % (unsigned)(i + 1));

        m.scatter[i] = m.scatter[j];
        m.scatter[j] = i;
    }
    for (int i = 0; i < ROWS; i++) {
        m.addresses[m.scatter[i]] =
            i % 5 ? (uintptr_t)(m.other + m.scatter[i] * N) : 0;
        if (i % 7 == 3)
            m.scatter[i] = none[i / 7 % 4];
    }
}

static void multiply(const char *line, int which, int by_address)
{
    struct quern_plan_options host = QUERN_PLAN_OPTIONS_INIT;
    struct quern_args args = QUERN_ARGS_INIT;
    struct quern_plan *plan;

    host.backend = QUERN_BACKEND_HOST;
    if (quern_plan_create(host_ctx, line, &host, &plan))
        fail_msg("%s: %s", line, quern_errmsg());
    args.of[QUERN_ARG_WORKSPACE].data = m.workspace;
    args.of[QUERN_ARG_LENGTHS].data = m.lengths;
    args.of[QUERN_ARG_A].data = m.a;
    args.of[QUERN_ARG_B].data = m.b;
    args.of[QUERN_ARG_D].data = m.d[which];
    args.of[QUERN_ARG_SCATTER].data = which ? m.scatter : NULL;
    args.of[QUERN_ARG_D_ADDRESSES].data = by_address ? m.addresses : NULL;
    if (quern_run(plan, &args, NULL) || quern_check(plan, &args, NULL))
        fail_msg("%s: %s", line, quern_errmsg());
    quern_plan_destroy(plan);
}

/* Each row has the bytes of the one in order, all others their poison. */
static void compare(int rows, int by_address)
{
    const unsigned short *d = by_address ? m.other : m.d[1];
    unsigned short expected[ROWS * N];

    memset(expected, POISON, sizeof expected);
    for (int i = 0; i < rows; i++)
        if (m.scatter[i] >= 0 && m.scatter[i] < ROWS &&
            (!by_address || m.addresses[m.scatter[i]]))
            memcpy(expected + m.scatter[i] * N, m.d[0] + i * N, N * 2);
    assert_memory_equal(d, expected, sizeof expected);
    for (size_t i = 0; i < sizeof m.other && !by_address; i++)
        assert_int_equal(((unsigned char *)m.other)[i], POISON);
    for (size_t i = 0; i < sizeof m.d[1] && by_address; i++)
        assert_int_equal(((unsigned char *)m.d[1])[i], POISON);
}

TEST(test_scatter)
{
    static const int sizes[][GROUPS] = {{0, 1, 63, 129, 107},
                                        {300, 0, 0, 0, 0},
                                        {0, 0, 0, 0, 299},
                                        {64, 65, 7, 0, 128},
                                        {0, 0, 0, 0, 0}};
    static const char *const lines[] = {
        "fprop bf16 g=5 m=300 n=40 k=72", "dgrad bf16 g=5 m=300 n=40 k=72",
        "fprop fp16 g=5 m=300 n=40 k=72 layout=nn"};
    char scattered[100];

    for (int i = 0; i < 2 * 3 * 5; i++) {
        const int by_address = i % 2, *of = sizes[i / 6];
        const char *line = lines[i / 2 % 3];
        int rows = 0;

        fill((uint64_t)i);
        memcpy(m.lengths, of, sizeof m.lengths);
        for (int g = 0; g < GROUPS; g++)
            rows += of[g];
        snprintf(scattered, sizeof scattered, "%s scatter=1", line);
        multiply(line, 0, 0);
        multiply(scattered, 1, by_address);
        compare(rows, by_address);
    }
}

TEST(test_scatter_refused)
{
    static const char *const lines[][2] = {
        {"wgrad bf16 g=2 m=8 n=8 k=8 scatter=1",
         "scatter=1: fprop or dgrad with ragged=m"},
        {"fprop bf16 g=2 m=8 n=8 k=8 ragged=n scatter=1",
         "scatter=1: fprop or dgrad with ragged=m"},
        {"fprop mxfp8 g=2 m=8 n=128 k=128 scatter=1",
         "scatter=1, recipe mxfp8: values without scales are expected, or "
         "codes"},
        {"dgrad w4a16_int4 g=2 m=8 n=128 k=128 scatter=1",
         "scatter=1, recipe w4a16_int4: values without scales are expected"},
        {"fprop bf16 g=2 m=8 n=8 k=8 beta=1 scatter=1",
         "scatter=1 cannot be combined with beta="},
        {"fprop bf16 g=2 m=8 n=8 k=8 bias=1 scatter=1",
         "scatter=1 cannot be combined with bias="},
        {"fprop bf16 g=2 m=8 n=8 k=8 outside=zero scatter=1",
         "scatter=1 cannot be combined with outside="},
        {"fprop bf16 g=2 m=8 n=8 k=8 gather=a tokens=8 scatter=1",
         "scatter=1 cannot be combined with gather="}};

    host_refuses(lines, sizeof lines / sizeof lines[0]);
}
