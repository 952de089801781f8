/* SPDX-License-Identifier: Apache-2.0 */
/* data.c: random operands of a case, with NaN wherever nothing may read. */
#include "support/case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Adding half of the last bit's value, less one where the bit is even, carries
   into the upper half exactly when it must. */
uint16_t qt_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return 0x7FC0;
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float qt_from_bf16(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* In integers: the significand is cut to the units of the last place. */
uint16_t qt_f16(float value)
{
    uint32_t bits, significand, rest, unit;
    uint16_t sign, half;
    int shift;

    memcpy(&bits, &value, sizeof bits);
    sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000)
        return 0x7E00;
    if (bits >= 0x477FF000) /* 65520 rounds to infinity */
        return sign | 0x7C00;
    if (bits < 0x33000000) /* below 2^-25 */
        return sign;
    significand = (bits & 0x7FFFFF) | 0x800000;
    shift = bits < 0x38800000 ? 126 - (int)(bits >> 23) : 13;
    unit = (uint32_t)1 << shift;
    rest = significand % unit;
    half = (uint16_t)(significand / unit);
    half += rest > unit / 2 || (rest == unit / 2 && half % 2 == 1);
    if (bits >= 0x38800000) /* the implicit bit counts as an exponent of 1 */
        half += (uint16_t)((bits >> 23) - 113) * 1024;
    return sign | half;
}

/* All 65536 of them, made on first use. */
float qt_from_f16(uint16_t half)
{
    static float values[1 << 16];
    static int made;

    if (!__atomic_load_n(&made, __ATOMIC_ACQUIRE)) {
        for (int i = 0; i < 1 << 16; i++) {
            int exponent = i >> 10 & 31;
            float units = (float)(i & 1023);
            float size = exponent == 31  ? (i & 1023 ? NAN : INFINITY)
                         : exponent == 0 ? ldexpf(units, -24)
                                         : ldexpf(units + 1024, exponent - 25);

            values[i] = i >> 15 ? -size : size;
        }
        __atomic_store_n(&made, 1, __ATOMIC_RELEASE);
    }
    return values[half];
}

float qt_load(const void *data, int type, int64_t index)
{
    if (type == QUERN_F32)
        return ((const float *)data)[index];
    if (type == QUERN_F16)
        return qt_from_f16(((const uint16_t *)data)[index]);
    return qt_from_bf16(((const uint16_t *)data)[index]);
}

void qt_store(void *data, int type, int64_t index, float value)
{
    if (type == QUERN_F32)
        ((float *)data)[index] = value;
    else if (type == QUERN_F16)
        ((uint16_t *)data)[index] = qt_f16(value);
    else
        ((uint16_t *)data)[index] = qt_bf16(value);
}

/* Sum of four uniform values, variance 1: normal enough, the same bits on any
   machine, and never so large that a sum overflows. */
static float normal(uint64_t *state)
{
    uint64_t r = qt_random(state);
    int sum = (int)(r & 0xFFFF) + (int)(r >> 16 & 0xFFFF) +
              (int)(r >> 32 & 0xFFFF) + (int)(r >> 48);

    return (float)(sum - 2 * 0xFFFF) * (1.7320508f / 65536.0f);
}

/* Integers up to 8: a sum of 2^17 products stays below 2^24. */
float qt_draw(uint64_t *state, int fill)
{
    if (fill == QT_INTEGER)
        return (float)(qt_random_below(state, 17) - 8);
    return normal(state);
}

/* Every element that a group owns; all others stay NaN, and those of groups
   whose beta is 0 where `beta` is given, since these are not read. */
static void fill_operand(const struct qt_case *c, int role, void *data,
                         const float *beta, uint64_t *state)
{
    int axes[2] = {role == QT_B ? QUERN_AXIS_N : QUERN_AXIS_M,
                   role <= QT_B ? QUERN_AXIS_K : QUERN_AXIS_N};
    struct qt_place p;

    qt_place_of(c, role, &p);
    for (int g = 0; g < c->groups; g++) {
        int64_t rows = qt_extent(c, axes[0], g);
        int64_t columns = qt_extent(c, axes[1], g);

        const int unread = beta && beta[qt_case_epilogue(c)->each ? g : 0] == 0;

        for (int64_t x = 0; x < rows; x++) {
            int64_t at = qt_place_at(c, &p, role, g, x, 0);

            for (int64_t y = 0; y < columns; y++) {
                const float value = qt_draw(state, c->fill);

                qt_store(data, p.type, at + y * (p.swapped ? p.stride : 1),
                         unread ? NAN : value);
            }
        }
    }
}

/* Small factors that keep integers exact; 0 is among them, and a C that it
   multiplies must not be read. */
static void draw_factors(const struct qt_case *c, struct qt_data *data,
                         uint64_t *state)
{
    static const float factors[] = {1, -1, 2, 0.5f, -3, 0.25f, 0, 1};

    data->scalars = qt_case_epilogue(c)->each ? c->groups : 1;
    for (int i = 0; i < data->scalars; i++) {
        data->alpha[i] = factors[qt_random_below(state, 6)];
        data->beta[i] = factors[qt_random_below(state, 8)];
    }
}

/* NaN everywhere first. One byte more than needed, so that an empty operand has
   an address. */
static int make_operand(const struct qt_case *c, struct qt_data *data, int role,
                        int filled, uint64_t *state)
{
    struct qt_place p;

    if (qt_scaled(c, role))
        return qt_copies_make(c, data, role, state);
    qt_place_of(c, role, &p);
    data->bytes[role] = (size_t)(p.elements * p.bytes);
    data->operand[role] = aligned_alloc(64, (data->bytes[role] + 64) / 64 * 64);
    if (!data->operand[role])
        return -1;
    memset(data->operand[role], QT_POISON, data->bytes[role]);
    if (filled)
        fill_operand(c, role, data->operand[role],
                     role >= QT_C && c->unread ? data->beta : NULL, state);
    return 0;
}

/* The arrays of sizes that the form gives. */
static int make_sizes(const struct qt_case *c, struct qt_data *data)
{
    size_t word = c->sizes_type == QUERN_I64 ? 8 : 4;

    if (c->ragged == QUERN_AXIS_NONE)
        return 0;
    if (c->form != QT_OFFSETS)
        data->first_bytes = word * (size_t)c->groups;
    if (c->form != QT_FIRST)
        data->offsets_bytes = word * (size_t)(c->groups + 1);
    data->first = data->first_bytes ? malloc(data->first_bytes) : NULL;
    data->offsets = data->offsets_bytes ? malloc(data->offsets_bytes) : NULL;
    if ((data->first_bytes && !data->first) ||
        (data->offsets_bytes && !data->offsets))
        return -1;
    qt_sizes_write(c, data->first, data->offsets);
    return 0;
}

int qt_data_make(const struct qt_case *c, struct qt_data *data)
{
    const struct qt_epilogue *e = qt_case_epilogue(c);
    uint64_t state = c->seed;
    int added =
        e->beta == QUERN_BETA_ONE || (e->beta == QUERN_BETA_ANY && !e->apart);

    memset(data, 0, sizeof *data);
    draw_factors(c, data, &state);
    if (make_sizes(c, data)) /* copies depend on them */
        return -1;
    if (make_operand(c, data, QT_A, 1, &state) ||
        make_operand(c, data, QT_B, 1, &state) ||
        make_operand(c, data, QT_D, added, &state) ||
        (e->beta == QUERN_BETA_ANY && e->apart &&
         make_operand(c, data, QT_C, 1, &state)))
        return -1;
    return 0;
}

void qt_data_free(struct qt_data *data)
{
    for (int role = 0; role < QT_ROLES; role++)
        free(data->operand[role]);
    free(data->first);
    free(data->offsets);
    free(data->ref);
    free(data->sum);
    for (int role = 0; role < 2; role++) {
        free(data->sf[role]);
        free(data->global[role]);
        free(data->values[role]);
        free(data->numbers[role]);
    }
    memset(data, 0, sizeof *data);
}
