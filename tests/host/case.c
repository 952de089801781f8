/*
** case.c: layouts of groups, random data, arrays of sizes.
*/
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
** 63..65 and 127..129 lie around the heights of the tiles; a group of 0 rows
** has no tile at all, one of 1 row a tile that is nearly empty.
*/
const struct qt_pattern qt_patterns[] = {
    {"torture", 9, 9, {0, 1, 7, 63, 64, 65, 127, 128, 129}, 0},
    {"torture down", 9, 9, {129, 128, 127, 65, 64, 63, 7, 1, 0}, 0},
    {"one group", 1, 1, {200}, 0},
    {"one group of one row", 1, 1, {1}, 0},
    {"three groups", 3, 3, {129, 0, 65}, 0},
    {"one has all", 8, 8, {0, 0, 0, 517, 0, 0, 0, 0}, 0},
    {"the last has all", 4, 4, {0, 0, 0, 300}, 0},
    {"all empty", 5, 1, {0}, 0},
    {"whole tiles", 4, 4, {128, 256, 128, 384}, 0},
    {"ones", 40, 1, {1}, 0},
    {"65 groups", 65, 0, {0}, 40},
    {"256 groups", 256, 0, {0}, 7},
    {"1024 groups", 1024, 9, {0, 1, 0, 0, 2, 0, 0, 0, 1}, 0},
};
const int qt_npatterns = sizeof qt_patterns / sizeof qt_patterns[0];

uint64_t qt_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t qt_random_below(uint64_t *state, int64_t bound)
{
    return (int64_t)(qt_random(state) % (uint64_t)bound);
}

/* Adding half of the last place, less one where the place is even, carries into
   the upper half exactly when it must. */
uint16_t qt_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return 0x7FC0;
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float qt_f32(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
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
static uint16_t draw(uint64_t *state, int fill)
{
    if (fill == QT_INTEGER)
        return qt_bf16((float)(qt_random_below(state, 17) - 8));
    return qt_bf16(normal(state));
}

/* A list is repeated; without one, lengths are drawn. */
static int64_t pattern_length(const struct qt_pattern *p, int g,
                              uint64_t *state)
{
    if (!p->count)
        return qt_random_below(state, p->random + 1);
    return p->length[g % p->count];
}

void qt_case_layout(struct qt_case *c, const struct qt_pattern *p)
{
    uint64_t state = c->seed ^ 0x5157;
    int64_t row = c->form == QT_FIRST ? 0 : 5;

    c->groups = p->groups;
    for (int g = 0; g < p->groups; g++) {
        if (c->form == QT_BOTH)
            row += qt_random_below(&state, 10);
        c->start[g] = row;
        c->length[g] = pattern_length(p, g, &state);
        row += c->length[g];
    }
    c->start[p->groups] = row;
    c->m = row + 3; /* rows that belong to no group */
}

size_t qt_d_bytes(const struct qt_case *c, int d_type)
{
    size_t size = d_type == QUERN_F32 ? 4 : 2;

    return (size_t)c->m * (size_t)(c->n + c->d_pad) * size;
}

/* `rows` rows of k values, then NaN up to the stride. */
static void fill_rows(const struct qt_case *c, uint16_t *rows, int64_t count,
                      int64_t stride, uint64_t *state)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < c->k; j++)
            rows[i * stride + j] = draw(state, c->fill);
}

/* NaN everywhere first; only what a group owns gets values. */
static void fill_operands(const struct qt_case *c, struct qt_data *data)
{
    uint64_t state = c->seed;
    int64_t a_stride = c->k + c->a_pad;

    memset(data->a, QT_POISON, data->a_bytes);
    memset(data->b, QT_POISON, data->b_bytes);
    for (int g = 0; g < c->groups; g++)
        fill_rows(c, data->a + c->start[g] * a_stride, c->length[g], a_stride,
                  &state);
    fill_rows(c, data->b, c->groups * c->n, c->k + c->b_pad, &state);
}

/* One byte more than needed, so that an empty operand has an address. */
int qt_data_make(const struct qt_case *c, struct qt_data *data)
{
    size_t word = c->sizes_type == QUERN_I64 ? 8 : 4;

    memset(data, 0, sizeof *data);
    data->a_bytes = (size_t)(c->m * (c->k + c->a_pad)) * 2;
    data->b_bytes = (size_t)(c->groups * c->n * (c->k + c->b_pad)) * 2;
    if (c->form != QT_OFFSETS)
        data->first_bytes = word * (size_t)c->groups;
    if (c->form != QT_FIRST)
        data->offsets_bytes = word * (size_t)(c->groups + 1);
    data->a = malloc(data->a_bytes + 1);
    data->b = malloc(data->b_bytes + 1);
    data->first = data->first_bytes ? malloc(data->first_bytes) : NULL;
    data->offsets = data->offsets_bytes ? malloc(data->offsets_bytes) : NULL;
    if (!data->a || !data->b || (data->first_bytes && !data->first) ||
        (data->offsets_bytes && !data->offsets))
        return -1;
    fill_operands(c, data);
    qt_sizes_write(c, data->first, data->offsets);
    return 0;
}

void qt_data_free(struct qt_data *data)
{
    free(data->a);
    free(data->b);
    free(data->first);
    free(data->offsets);
    free(data->ref);
    memset(data, 0, sizeof *data);
}

/* A value beyond int32 is cut on purpose where the type is int32. */
void qt_sizes_set(void *array, int sizes_type, int index, int64_t value)
{
    if (sizes_type == QUERN_I64)
        ((int64_t *)array)[index] = value;
    else
        ((int32_t *)array)[index] = (int32_t)value;
}

void qt_sizes_write(const struct qt_case *c, void *first, void *offsets)
{
    for (int g = 0; first && g < c->groups; g++)
        qt_sizes_set(first, c->sizes_type, g, c->length[g]);
    for (int g = 0; offsets && g <= c->groups; g++)
        qt_sizes_set(offsets, c->sizes_type, g, c->start[g]);
}

/* Without offsets or first_dims of its own, D lies as A does. */
void qt_args_set(const struct qt_case *c, struct quern_args *args)
{
    args->a.sizes_type = c->sizes_type;
    args->d.sizes_type = c->sizes_type;
    args->a.stride = c->k + c->a_pad;
    args->b.stride = c->k + c->b_pad;
    args->d.stride = c->n + c->d_pad;
    args->a.bytes = (size_t)(c->m * args->a.stride) * 2;
    args->b.bytes = (size_t)(c->groups * c->n * args->b.stride) * 2;
    args->d.bytes = qt_d_bytes(c, args->d.type);
}
