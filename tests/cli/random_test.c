/* SPDX-License-Identifier: Apache-2.0 */
/* random_test.c: random data, and elements to and from fp32. */
#include <math.h>

#include "base/element.h"
#include "base/random.h"
#include "test_cli.h"

enum { COUNT = 300000 }; /* over four chunks, the last one short */

/* A shorter run is the longer one's beginning, however many cores fill it. */
TEST(test_random_is_the_same)
{
    uint16_t *all = calloc(COUNT, sizeof *all);
    uint16_t *some = calloc(COUNT, sizeof *some);
    uint64_t seed = 0;

    assert_true(qn_random_next(&seed) == UINT64_C(0xE220A8397B1DCDAF));
    assert_int_equal(qn_random_fill(all, QUERN_BF16, COUNT, 5, 1), 0);
    assert_int_equal(qn_random_fill(some, QUERN_BF16, 100001, 5, 1), 0);
    assert_memory_equal(all, some, 100001 * sizeof *all);
    assert_int_equal(some[100001], 0);
    assert_int_equal(qn_random_fill(some, QUERN_BF16, COUNT, 6, 1), 0);
    assert_memory_not_equal(all, some, COUNT * sizeof *all);
    assert_int_equal(qn_random_fill(all, QUERN_E4M3, 1, 5, 1), 1);
    free(all);
    free(some);
}

TEST(test_random_is_nearly_normal)
{
    float *all = calloc(COUNT, sizeof *all);
    double sum = 0, squares = 0, fourths = 0;

    assert_int_equal(qn_random_fill(all, QUERN_F32, COUNT, 1, 2), 0);
    for (int i = 0; i < COUNT; i++) {
        sum += all[i];
        squares += (double)all[i] * all[i];
        fourths += pow(all[i], 4);
    }
    assert_true(fabs(sum / COUNT) < 0.02);
    assert_true(fabs(squares / COUNT - 4) < 0.05);
    assert_true(fabs(fourths / COUNT / 16 - 2.7) < 0.1);
    free(all);
}

TEST(test_f16_round_trip)
{
    uint16_t out;

    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t in = (uint16_t)i;
        const float value = qn_element_load(&in, QUERN_F16, 0);
        qn_element_store(&out, QUERN_F16, 0, value);
        if (isnan(value))
            assert_true((out & 0x7FFF) > 0x7C00);
        else
            assert_int_equal(out, in);
    }
    qn_element_store(&out, QUERN_F16, 0, 65520.0f);
    assert_int_equal(out, 0x7C00);
    qn_element_store(&out, QUERN_F16, 0, 65519.0f);
    assert_int_equal(out, 0x7BFF);
    qn_element_store(&out, QUERN_F16, 0, 2049.0f); /* a tie, to even */
    assert_int_equal(out, 0x6800);
    qn_element_store(&out, QUERN_BF16, 0, 1.00390625f); /* a tie, to even */
    assert_int_equal(out, 0x3F80);
}
