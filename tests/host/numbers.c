/*
** numbers.c: the host backend against float64, and against a plain loop.
*/
#include "host.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const int types[] = {QUERN_BF16, QUERN_F32};

/* One case through both output types. */
static void multiply_and_compare(const struct qt_case *c)
{
    struct qt_data data;
    struct qt_verdict verdict;

    assert_int_equal(qt_data_make(c, &data), 0);
    assert_int_equal(qt_data_reference(c, &data, 2), 0);
    for (int i = 0; i < 2; i++) {
        struct host_output out = {0};

        host_multiply(c, &data, types[i], 0, &out);
        if (!qt_compare(c, &data, types[i], out.d, &verdict))
            fail_msg("%s, form %d, %lldx%lld: %s", c->what, c->form,
                     (long long)c->n, (long long)c->k, verdict.text);
        host_output_free(&out);
    }
    qt_data_free(&data);
}

/* Every pattern of groups, told in each of the three ways, in both types. */
void test_torture_sizes(void **state)
{
    static const int nk[][2] = {{19, 33}, {64, 64}, {7, 128}, {40, 5}};
    int index = 0;

    (void)state;
    for (int p = 0; p < qt_npatterns; p++)
        for (int form = 0; form < QT_FORMS; form++, index++) {
            struct qt_case c = {
                .what = qt_patterns[p].name,
                .n = nk[index % 4][0],
                .k = nk[index % 4][1],
                .sizes_type = index % 2 ? QUERN_I64 : QUERN_I32,
                .form = form,
                .fill = QT_INTEGER,
                .seed = (uint64_t)index + 1,
            };

            qt_case_layout(&c, &qt_patterns[p]);
            multiply_and_compare(&c);
        }
}

/* n and k that fill no vector, rows with gaps behind them, both sizes types. */
void test_odd_shapes(void **state)
{
    static const int sides[] = {1, 2, 3, 15, 17, 31, 77, 129, 255, 257};
    const int count = sizeof sides / sizeof sides[0];

    (void)state;
    for (int i = 0; i < count * 2; i++) {
        struct qt_case c = {
            .what = "odd n and k",
            .n = sides[i % count],
            .k = sides[(i * 7 + 3) % count],
            .sizes_type = i < count ? QUERN_I32 : QUERN_I64,
            .form = i % QT_FORMS,
            .fill = QT_INTEGER,
            .a_pad = i % 3,
            .b_pad = i % 5,
            .d_pad = i % 4,
            .seed = (uint64_t)i + 100,
        };

        qt_case_layout(&c, &qt_patterns[4]);
        multiply_and_compare(&c);
    }
}

/* Random values: the tolerances are those stated in reference.c. */
void test_float64_tolerance(void **state)
{
    static const int lengths[] = {1, 8, 64, 200, 1000, 4096};

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct qt_case c = {
            .what = "random values",
            .n = 40,
            .k = lengths[i],
            .sizes_type = QUERN_I32,
            .form = i % QT_FORMS,
            .fill = QT_NORMAL,
            .seed = (uint64_t)i + 200,
        };

        qt_case_layout(&c, &qt_patterns[4]);
        multiply_and_compare(&c);
    }
}

/* The sum as the library defines it: fp32, from k = 0 upwards. */
static float plain_sum(const uint16_t *a, const uint16_t *b, int64_t k)
{
    volatile float sum = 0; /* no wider registers, no contraction */

    for (int64_t p = 0; p < k; p++) {
        volatile float product = qt_f32(a[p]) * qt_f32(b[p]);

        sum = sum + product;
    }
    return sum;
}

/* Bit for bit, so that another order or a fused multiply-add would show. */
void test_ascending_k(void **state)
{
    struct qt_case c = {.what = "ascending k",
                        .n = 37,
                        .k = 1003,
                        .sizes_type = QUERN_I32,
                        .form = QT_FIRST,
                        .fill = QT_NORMAL,
                        .seed = 300};
    struct host_output out = {0};
    struct qt_data data;

    (void)state;
    qt_case_layout(&c, &qt_patterns[4]);
    assert_int_equal(qt_data_make(&c, &data), 0);
    host_multiply(&c, &data, QUERN_F32, 0, &out);
    for (int g = 0; g < c.groups; g++)
        for (int64_t i = c.start[g]; i < c.start[g] + c.length[g]; i++)
            for (int64_t j = 0; j < c.n; j++) {
                float sum = plain_sum(data.a + i * c.k,
                                      data.b + (g * c.n + j) * c.k, c.k);

                assert_memory_equal((float *)out.d + i * c.n + j, &sum, 4);
            }
    host_output_free(&out);
    qt_data_free(&data);
}

/* The number of threads splits the work, never a sum. */
void test_threads_agree(void **state)
{
    static const int threads[] = {2, 3, 7, 16};
    struct qt_case c = {.what = "threads",
                        .n = 200,
                        .k = 300,
                        .sizes_type = QUERN_I64,
                        .form = QT_BOTH,
                        .fill = QT_NORMAL,
                        .seed = 400};
    struct host_output one = {0};
    struct qt_data data;

    (void)state;
    qt_case_layout(&c, &qt_patterns[0]);
    assert_int_equal(qt_data_make(&c, &data), 0);
    for (int t = 0; t < 2; t++) {
        host_multiply(&c, &data, types[t], 1, &one);
        for (int i = 0; i < 4; i++) {
            struct host_output many = {0};

            host_multiply(&c, &data, types[t], threads[i], &many);
            assert_memory_equal(one.d, many.d, one.d_bytes);
            host_output_free(&many);
        }
        host_output_free(&one);
    }
    qt_data_free(&data);
}
