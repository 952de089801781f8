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
    assert_int_equal(qn_random_fill(all, QUERN_BF16, COUNT, 0, 5, 1), 0);
    assert_int_equal(qn_random_fill(some, QUERN_BF16, 100001, 0, 5, 1), 0);
    assert_memory_equal(all, some, 100001 * sizeof *all);
    assert_int_equal(some[100001], 0);
    assert_int_equal(qn_random_fill(some, QUERN_BF16, COUNT, 0, 6, 1), 0);
    assert_memory_not_equal(all, some, COUNT * sizeof *all);
    assert_int_equal(qn_random_fill(all, QUERN_E4M3, 1, 0, 5, 1), 1);
    free(all);
    free(some);
}

TEST(test_random_is_nearly_normal)
{
    float *all = calloc(COUNT, sizeof *all);
    double sum = 0, squares = 0, fourths = 0;

    assert_int_equal(qn_random_fill(all, QUERN_F32, COUNT, 0, 1, 2), 0);
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

/* The same values, each times the factor of its row and column. */
TEST(test_random_magnitudes)
{
    enum { COLUMNS = 300 };
    float *all = calloc(COUNT, sizeof *all);
    float *plain = calloc(COUNT, sizeof *plain);

    assert_int_equal(qn_random_fill(plain, QUERN_F32, COUNT, 0, 5, 2), 0);
    assert_int_equal(qn_random_fill(all, QUERN_F32, COUNT, COLUMNS, 5, 2), 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        const float factor = qn_random_factor(5, i / COLUMNS, i % COLUMNS);

        assert_true(all[i] == plain[i] * factor);
        assert_true(fabsf(all[i]) <= 14);
        assert_true(factor <= 2 && factor >= 0x1p-4f);
    }
    free(all);
    free(plain);
}

/* The largest factor of a block. */
static float largest(uint64_t seed, int rows, int columns, int row, int column)
{
    float most = 0;

    for (int i = 0; i < rows * columns; i++)
        most = fmaxf(
            most, qn_random_factor(seed, (uint64_t)(row * rows + i / columns),
                                   (uint64_t)(column * columns + i % columns)));
    return most;
}

/* More than half of all blocks, whatever their sides, differ from the one below
   and from the one to the right; 128 rows and columns further if they are
   short. */
TEST(test_random_blocks_differ)
{
    static const int sides[][2] = {{128, 128}, {1, 128}, {128, 1},
                                   {32, 32},   {1, 16},  {32, 1}};
    enum { BLOCKS = 24 };

    for (int s = 0; s < 6; s++) {
        const int far = 128 / sides[s][0], wide = 128 / sides[s][1];
        int below = 0, right = 0, next = 0;

        for (int i = 0; i < BLOCKS * BLOCKS; i++) {
            const int row = i / BLOCKS, column = i % BLOCKS;
            const float own = largest(9, sides[s][0], sides[s][1], row, column);

            below +=
                own != largest(9, sides[s][0], sides[s][1], row + far, column);
            right +=
                own != largest(9, sides[s][0], sides[s][1], row, column + wide);
            next += own !=
                    largest(9, sides[s][0], sides[s][1], row + 1, column + 1);
        }
        assert_true(below > BLOCKS * BLOCKS / 2);
        assert_true(right > BLOCKS * BLOCKS / 2);
        if (s < 3)
            assert_true(next > BLOCKS * BLOCKS / 2);
    }
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
