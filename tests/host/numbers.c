/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.c: the host backend against float64, and against a plain loop. */
#include "host.h"

#include <stdio.h>

/* The recipes' types: of A and B, of D. */
static const int types[][2] = {{QUERN_BF16, QUERN_BF16},
                               {QUERN_BF16, QUERN_F32},
                               {QUERN_F16, QUERN_F16},
                               {QUERN_F16, QUERN_F32}};

/* The i-th of all layouts, ragged axes and types, for each op. */
static void set_variant(struct qt_case *c, int i)
{
    c->a_major = i % 2;
    c->b_major = i / 2 % 2;
    c->ragged = i / 4 % 4;
    c->type = types[i / 16 % 4][0];
    c->d_type = types[i / 16 % 4][1];
    c->op = i / 64 % 3;
}

enum { VARIANTS = 2 * 2 * 4 * 4 * 3 };

/* Rows and matrices with something between them, or by address. */
static void set_distances(struct qt_case *c, int i)
{
    for (int role = 0; role < QT_ROLES; role++) {
        c->pad[role] = (i + role) % 3;
        c->gap[role] = (i + role) % 4 == 3 ? 5 : 0;
        c->pointers[role] = (i + role) % 5 == 4;
        if (c->pointers[role]) /* matrices begin at multiples of 16 bytes */
            c->gap[role] = 0;
    }
}

/* Every variant, the epilogues and patterns in turns. */
TEST(test_every_variant)
{
    static const int sides[][3] = {{19, 33, 40}, {70, 64, 17}, {7, 130, 65}};

    for (int i = 0; i < VARIANTS * 2; i++) {
        const struct qt_pattern *pattern = &qt_patterns[(i * 5 + i / 64) % 10];
        struct qt_case c = {
            .what = pattern->name,
            .m = sides[i % 3][0],
            .n = sides[i % 3][1],
            .k = sides[i % 3][2],
            .sizes_type = i % 2 ? QUERN_I64 : QUERN_I32,
            .form = i / 2 % QT_FORMS,
            .fill = i % 7 ? QT_INTEGER : QT_NORMAL,
            .outside = i / 4 % 3 == 0,
            .epilogue = &qt_epilogues[(i + i / 8) % qt_nepilogues],
            .seed = (uint64_t)i + 1,
        };

        set_variant(&c, i % VARIANTS);
        set_distances(&c, i);
        qt_case_layout(&c, pattern);
        host_case_right(&c);
    }
}

/* Every pattern of groups, in each of the three forms, for each op. */
TEST(test_torture_sizes)
{
    static const int sides[][2] = {{19, 33}, {64, 64}, {7, 128}, {40, 5}};
    int index = 0;

    for (int p = 0; p < qt_npatterns; p++)
        for (int form = 0; form < QT_FORMS; form++, index++) {
            struct qt_case c = {
                .what = qt_patterns[p].name,
                .type = types[index % 4][0],
                .d_type = types[index % 4][1],
                .m = qt_patterns[p].groups > 100 ? 3 : 20,
                .n = sides[index % 4][0],
                .k = sides[index % 4][1],
                .sizes_type = index % 2 ? QUERN_I64 : QUERN_I32,
                .form = form,
                .fill = QT_INTEGER,
                .outside = p % 2,
                .epilogue = &qt_epilogues[index % qt_nepilogues],
                .seed = (uint64_t)index + 1,
            };

            qt_case_op(&c, (p + form) % 3);
            qt_case_layout(&c, &qt_patterns[p]);
            host_case_right(&c);
        }
}

/* Sides that fill no vector, rows with gaps after them, both sizes types. */
TEST(test_odd_shapes)
{
    static const int sides[] = {1, 2, 3, 15, 17, 31, 77, 129, 255, 257};
    const int count = sizeof sides / sizeof sides[0];

    for (int i = 0; i < count * 3; i++) {
        struct qt_case c = {
            .what = "odd sides",
            .type = QUERN_BF16,
            .d_type = i % 2 ? QUERN_BF16 : QUERN_F32,
            .m = sides[(i * 3 + 1) % count],
            .n = sides[i % count],
            .k = sides[(i * 7 + 3) % count],
            .sizes_type = i < count ? QUERN_I32 : QUERN_I64,
            .form = i % QT_FORMS,
            .fill = QT_INTEGER,
            .pad = {i % 3, i % 5, i % 2, i % 4},
            .seed = (uint64_t)i + 100,
        };

        qt_case_op(&c, i / count);
        qt_case_layout(&c, &qt_patterns[4]);
        host_case_right(&c);
    }
}

/* Random values: the tolerances are those stated in reference.c. */
TEST(test_float64_tolerance)
{
    static const int lengths[] = {1, 8, 64, 200, 1000, 4096};

    for (int i = 0; i < 6 * 4; i++) {
        struct qt_case c = {
            .what = "random values",
            .type = types[i / 6][0],
            .d_type = types[i / 6][1],
            .n = 40,
            .k = lengths[i % 6],
            .sizes_type = QUERN_I32,
            .form = i % QT_FORMS,
            .fill = QT_NORMAL,
            .epilogue = &qt_epilogues[i % qt_nepilogues],
            .seed = (uint64_t)i + 200,
        };

        qt_case_op(&c, QUERN_FPROP);
        qt_case_layout(&c, &qt_patterns[4]);
        host_case_right(&c);
    }
}

/* The value as the library defines it: fp32 sums from k = 0 upwards, alpha,
   then beta * C. */
static float plain_value(const struct qt_case *c, const struct qt_data *data,
                         int group, int64_t i, int64_t j)
{
    const struct qt_epilogue *e = qt_case_epilogue(c);
    int scalar = data->scalars > 1 ? group : 0;
    volatile float sum = 0; /* no wider registers, no contraction */
    struct qt_place a, b, added;

    qt_place_of(c, QT_A, &a);
    qt_place_of(c, QT_B, &b);
    qt_place_of(c, QT_C, &added);
    for (int64_t p = 0; p < qt_extent(c, QUERN_AXIS_K, group); p++) {
        volatile float product =
            qt_load(data->operand[QT_A], a.type,
                    qt_place_at(c, &a, QT_A, group, i, p)) *
            qt_load(data->operand[QT_B], b.type,
                    qt_place_at(c, &b, QT_B, group, j, p));

        sum = sum + product;
    }
    if (e->alpha)
        sum = data->alpha[scalar] * sum;
    if (e->beta == QUERN_BETA_ANY && data->beta[scalar] != 0) {
        volatile float more =
            data->beta[scalar] *
            qt_load(data->operand[QT_C], added.type,
                    qt_place_at(c, &added, QT_C, group, i, j));

        sum = sum + more;
    }
    return sum;
}

/* One group of D, bit for bit. */
static void same_bits(const struct qt_case *c, const struct qt_data *data,
                      const struct host_output *out, int group)
{
    struct qt_place d;

    qt_place_of(c, QT_D, &d);
    for (int64_t i = 0; i < qt_extent(c, QUERN_AXIS_M, group); i++)
        for (int64_t j = 0; j < qt_extent(c, QUERN_AXIS_N, group); j++) {
            float value = plain_value(c, data, group, i, j);
            int64_t at = qt_place_at(c, &d, QT_D, group, i, j);

            assert_memory_equal((float *)out->d + at, &value, 4);
        }
}

/* Bit for bit, so that another order or a fused multiply-add would show. */
TEST(test_ascending_k)
{
    for (int i = 0; i < 4; i++) {
        struct qt_case c = {.what = "ascending k",
                            .type = i % 2 ? QUERN_F16 : QUERN_BF16,
                            .d_type = QUERN_F32,
                            .m = 41,
                            .n = 37,
                            .k = 603,
                            .sizes_type = QUERN_I32,
                            .form = QT_FIRST,
                            .fill = QT_NORMAL,
                            .epilogue = &qt_epilogues[i % 2 ? 4 : 0],
                            .seed = 300 + (uint64_t)i};
        struct host_output out = {0};
        struct qt_data data;

        qt_case_op(&c, i < 2 ? QUERN_FPROP : QUERN_WGRAD);
        qt_case_layout(&c, &qt_patterns[4]);
        assert_int_equal(qt_data_make(&c, &data), 0);
        for (int s = 0; s < data.scalars; s++) {
            data.alpha[s] = 1.7f + (float)s;
            data.beta[s] = -0.3f * (float)(s + 1);
        }
        host_multiply(&c, &data, 0, &out);
        for (int g = 0; g < c.groups; g++)
            same_bits(&c, &data, &out, g);
        host_output_free(&out);
        qt_data_free(&data);
    }
}

/* The number of threads splits the work, never a sum. */
TEST(test_threads_agree)
{
    static const int threads[] = {2, 3, 7, 16};

    for (int op = QUERN_FPROP; op <= QUERN_WGRAD; op++) {
        struct qt_case c = {.what = "threads",
                            .type = QUERN_BF16,
                            .d_type = op ? QUERN_F32 : QUERN_BF16,
                            .m = 100,
                            .n = 200,
                            .k = 300,
                            .sizes_type = QUERN_I64,
                            .form = QT_BOTH,
                            .fill = QT_NORMAL,
                            .seed = 400};
        struct host_output one = {0};
        struct qt_data data;

        qt_case_op(&c, op);
        qt_case_layout(&c, &qt_patterns[0]);
        assert_int_equal(qt_data_make(&c, &data), 0);
        host_multiply(&c, &data, 1, &one);
        for (int i = 0; i < 4; i++) {
            struct host_output many = {0};

            host_multiply(&c, &data, threads[i], &many);
            assert_memory_equal(one.d, many.d, one.d_bytes);
            host_output_free(&many);
        }
        host_output_free(&one);
        qt_data_free(&data);
    }
}
