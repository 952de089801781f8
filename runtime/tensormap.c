/*
** tensormap.c: the maps by which TMA copies tiles of an operand.
**
** A plain map covers the buffer: (inner, rows), and (inner, rows, groups) for
** an operand with a group axis. A ragged map is cut to one group by the
** coordinates alone, so that a single static one serves all groups:
**
**     dims     (inner, 2^30, 2^31 - 1, 2^31 - 1)
**     strides  (s, 2^34 - s, s)                    s: bytes between rows
**     coords   (column, 2^30 - len + row, 2^30, off + len)
**
** for row `row` of the group that has `len` rows from row `off` on. Summed,
** the address is (2^30 - len + row) * s + 2^30 * (2^34 - s) + (off + len) * s
** = (off + row) * s + 2^64: the 64-bit sum wraps to the row's own address, and
** a row at or past `len` leaves dimension 1, so loads give zeros and stores
** are dropped. Off and len change on the device without a new map. The map
** does not bound the buffer: kernels clamp off and len before they use them.
**                                     COUPLED: ragged map -> pieces/ragged
*/
#include "tensormap.h"
#include "types.h"

#include <stdio.h>
#include <string.h>

#define RAGGED_ROWS  ((uint64_t)1 << 30)
#define RAGGED_OUTER (((uint64_t)1 << 31) - 1)
#define RAGGED_WRAP  ((uint64_t)1 << 34)
#define STRIDE_LIMIT ((uint64_t)1 << 40)

const struct qn_map_param qn_tensormap_params[QN_MAPS] = {
    {QN_PARAM_a_map, QN_ROLE_A, 0},
    {QN_PARAM_b_map, QN_ROLE_B, 0},
    {QN_PARAM_d_map, QN_ROLE_D, 0},
    {QN_PARAM_d_ragged_map, QN_ROLE_D, 1},
};

int qn_tensormap_used(const struct qn_kernel *kernel,
                      const struct qn_map_param *param)
{
    for (int i = 0; i < kernel->nparams; i++)
        if (kernel->params[i] == param->param)
            return 1;
    return 0;
}

/* 8-bit floats and packed 4-bit ones are bytes to TMA. */
static int map_type(int type)
{
    switch (type) {
    case QUERN_BF16:
        return QN_CU_BFLOAT16;
    case QUERN_F16:
        return QN_CU_FLOAT16;
    case QUERN_F32:
        return QN_CU_FLOAT32;
    case QUERN_I32:
        return QN_CU_INT32;
    case QUERN_I64:
        return QN_CU_INT64;
    default:
        return QN_CU_UINT8;
    }
}

static int map_swizzle(int bytes)
{
    switch (bytes) {
    case 32:
        return QN_CU_SWIZZLE_32B;
    case 64:
        return QN_CU_SWIZZLE_64B;
    case 128:
        return QN_CU_SWIZZLE_128B;
    default:
        return QN_CU_SWIZZLE_NONE;
    }
}

/* The constants above; only the pitch differs between operands. */
static void fill_ragged(struct qn_map *map, uint64_t pitch)
{
    map->rank = 4;
    map->dims[1] = RAGGED_ROWS;
    map->dims[2] = map->dims[3] = RAGGED_OUTER;
    map->strides[0] = pitch;
    map->strides[1] = RAGGED_WRAP - pitch;
    map->strides[2] = pitch;
}

/* An empty buffer still needs a row to have a map; nothing is copied. */
static void fill_plain(struct qn_map *map, const struct qn_geometry *g,
                       uint64_t pitch)
{
    map->rank = g->grouped ? 3 : 2;
    map->dims[1] = g->rows ? (uint64_t)g->rows : 1;
    map->dims[2] = (uint64_t)g->groups;
    map->strides[0] = pitch;
    map->strides[1] = pitch * map->dims[1];
}

/* Two 4-bit values travel as one byte; everything else as itself. */
static uint64_t packed(int64_t elements, int bits)
{
    return bits < 8 ? (uint64_t)elements * (uint64_t)bits / 8
                    : (uint64_t)elements;
}

/* The letter of the operand comes first. */
static int refuse(char *reason, size_t size, int role, const char *why)
{
    snprintf(reason, size, "%c has no tensor map: %s", "ABD"[role], why);
    return 0;
}

/* What no map can express; NULL if nothing. */
static const char *limit_passed(const struct qn_geometry *g, int ragged,
                                uint64_t pitch)
{
    if (ragged && g->grouped)
        return "it has a group axis, not a ragged one";
    if (ragged && g->inner_ragged)
        return "its ragged axis is contiguous";
    if (pitch >= RAGGED_WRAP ||
        (g->grouped && pitch * (uint64_t)g->rows >= STRIDE_LIMIT))
        return "a stride passes TMA's limit";
    return NULL;
}

int qn_tensormap_build(const struct qn_geometry *g,
                       const struct qn_operand *operand, int ragged,
                       int64_t stride, struct qn_map *map, char *reason,
                       size_t size)
{
    uint64_t bits = (uint64_t)stride * (uint64_t)qn_type_bits(g->type);
    const char *limit = limit_passed(g, ragged, bits / 8);
    char why[128];

    memset(map, 0, sizeof *map);
    if (limit)
        return refuse(reason, size, g->role, limit);
    if (bits % 128) {
        snprintf(why, sizeof why,
                 "its rows are %lld elements of %s apart, and TMA needs "
                 "multiples of 16 bytes",
                 (long long)stride, qn_type_name(g->type));
        return refuse(reason, size, g->role, why);
    }
    map->type = map_type(g->type);
    map->swizzle = map_swizzle(operand->swizzle);
    map->dims[0] = packed(g->columns, qn_type_bits(g->type));
    map->box[0] = (uint32_t)packed(operand->box[0], qn_type_bits(g->type));
    map->box[1] = (uint32_t)operand->box[1];
    map->box[2] = map->box[3] = 1;
    if (ragged)
        fill_ragged(map, bits / 8);
    else
        fill_plain(map, g, bits / 8);
    return 1;
}

int qn_tensormap_encode(struct qn_driver *driver, const struct qn_map *map,
                        void *address, struct cu_tensor_map *out)
{
    static const uint32_t ones[] = {1, 1, 1, 1};

    return QN_CU(driver, cuTensorMapEncodeTiled, out, map->type,
                 (uint32_t)map->rank, address, map->dims, map->strides,
                 map->box, ones, QN_CU_INTERLEAVE_NONE, map->swizzle,
                 QN_CU_L2_PROMOTION_256B, QN_CU_OOB_FILL_NONE);
}
