/* SPDX-License-Identifier: Apache-2.0 */
/*
** tensormap.c: the maps by which TMA copies tiles of an operand.
**
** A plain map covers the buffer: (inner, rows), and (inner, rows, groups) for
** an operand with a group axis. One of scales covers (rows, blocks), and
** (rows, blocks of all groups) for an operand with a group axis.
**
** A ragged map is cut to one group only by the coordinates, so that a single
** static one serves all groups:
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
**                                     COUPLED: ragged map
**
** A pointer map is moved to any address by the coordinates, so that a single
** static one serves matrices that were allocated one by one:
**
**     dims     (inner, rows, 2^31, 2^29)
**     strides  (s, 16, 2^35)
**     coords   (column, row, (d >> 4) & (2^31 - 1), d >> 35)
**
** with d = (address of the group's matrix - the map's address) mod 2^64. Its
** address is the workspace, which every run has and every kernel knows as the
** error record. The map bounds column and row, not the matrices.
**                                     COUPLED: pointer map
**
** A tail map is a pointer map of 2^30 rows for an operand with the ragged axis.
** Its matrix is so that the last of the rows wanted is its last one: `len`
** rows that end before address e are those from 2^30 - len on of the matrix at
** e - 2^30 * s, and a row after them leaves the map. So one map cuts groups of
** all the buffers that a merged launch reads.
**                                     COUPLED: tail map
*/
#include "choose/tensormap.h"
#include "base/types.h"
#include "device/driver.h"
#include "problem/geometry.h"

#include <stdio.h>
#include <string.h>

#define RAGGED_ROWS  ((uint64_t)1 << 30)
#define RAGGED_OUTER (((uint64_t)1 << 31) - 1)
#define RAGGED_WRAP  ((uint64_t)1 << 34)
#define STRIDE_LIMIT ((uint64_t)1 << 40)

#define POINTER_STEP  ((uint64_t)16)
#define POINTER_LOWER ((uint64_t)1 << 31) /* steps, below one upper stride */
#define POINTER_UPPER ((uint64_t)1 << 29)

const struct qn_map_param qn_tensormap_params[QN_MAPS] = {
    {QN_PARAM_a_map, QN_ROLE_A, QN_MAP_PLAIN},
    {QN_PARAM_a_ragged_map, QN_ROLE_A, QN_MAP_RAGGED},
    {QN_PARAM_b_map, QN_ROLE_B, QN_MAP_PLAIN},
    {QN_PARAM_b_ragged_map, QN_ROLE_B, QN_MAP_RAGGED},
    {QN_PARAM_b_pointer_map, QN_ROLE_B, QN_MAP_POINTER},
    {QN_PARAM_d_map, QN_ROLE_D, QN_MAP_PLAIN},
    {QN_PARAM_d_ragged_map, QN_ROLE_D, QN_MAP_RAGGED},
    {QN_PARAM_d_pointer_map, QN_ROLE_D, QN_MAP_POINTER},
    {QN_PARAM_p_map, QN_ROLE_P, QN_MAP_PLAIN},
    {QN_PARAM_p_ragged_map, QN_ROLE_P, QN_MAP_RAGGED},
    {QN_PARAM_a_tail_map, QN_ROLE_A, QN_MAP_TAIL},
    {QN_PARAM_b_tail_map, QN_ROLE_B, QN_MAP_TAIL},
    {QN_PARAM_a_sf_tail_map, QN_ROLE_A, QN_MAP_SF_TAIL},
    {QN_PARAM_b_sf_tail_map, QN_ROLE_B, QN_MAP_SF_TAIL},
    {QN_PARAM_a_sf_map, QN_ROLE_A, QN_MAP_SCALES},
    {QN_PARAM_b_sf_map, QN_ROLE_B, QN_MAP_SCALES},
    {QN_PARAM_in_map, QN_ROLE_A, QN_MAP_NUMBERS},
    {QN_PARAM_extra_a_map, QN_ROLE_A, QN_MAP_EXTRA},
    {QN_PARAM_extra_b_map, QN_ROLE_B, QN_MAP_EXTRA},
};

const struct qn_operand *qn_tensormap_operand(const struct qn_kernel *kernel,
                                              const struct qn_map_param *param)
{
    return param->role == QN_ROLE_A   ? &kernel->a
           : param->role == QN_ROLE_B ? &kernel->b
                                      : &kernel->d;
}

int qn_tensormap_takes(const struct qn_kernel *kernel, int param)
{
    for (int i = 0; i < kernel->nparams; i++)
        if (kernel->params[i] == param)
            return 1;
    return 0;
}

int qn_tensormap_any(const struct qn_kernel *kernel)
{
    for (int i = 0; i < QN_MAPS; i++)
        if (qn_tensormap_takes(kernel, qn_tensormap_params[i].param))
            return 1;
    return 0;
}

int qn_tensormap_needs(const struct qn_kernel *kernel, int map)
{
    return qn_tensormap_takes(kernel, map) ||
           ((map == QN_PARAM_a_map || map == QN_PARAM_b_map) &&
            qn_tensormap_takes(kernel, QN_PARAM_microbatch_maps));
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

/* An empty buffer still needs an element to have a map; nothing is copied. */
static void fill_plain(struct qn_map *map, const struct qn_geometry *g,
                       uint64_t pitch, uint64_t group_pitch)
{
    map->rank = g->grouped ? 3 : 2;
    map->dims[1] = g->rows ? (uint64_t)g->rows : 1;
    map->dims[2] = (uint64_t)g->groups;
    map->strides[0] = pitch;
    map->strides[1] = group_pitch;
}

/* Rows of one matrix; the two outer axes make the address. */
static void fill_pointer(struct qn_map *map, uint64_t rows, uint64_t pitch)
{
    map->rank = 4;
    map->dims[1] = rows;
    map->dims[2] = POINTER_LOWER;
    map->dims[3] = POINTER_UPPER;
    map->strides[0] = pitch;
    map->strides[1] = POINTER_STEP;
    map->strides[2] = POINTER_STEP * POINTER_LOWER;
}

/* Two 4-bit values travel as one byte, as does the last of an odd number;
   everything else as itself. */
static uint64_t packed(int64_t elements, int bits)
{
    return bits < 8 ? ((uint64_t)elements * (uint64_t)bits + 7) / 8
                    : (uint64_t)elements;
}

/* A box's first axis. A kernel whose D is a quantized tensor names its own type
   of D, of 16 bits or more: codes are as many as their bytes would be. */
static void fill_width(struct qn_map *map, int bits,
                       const struct qn_operand *operand)
{
    int own = qn_type_bits(operand->type);
    int64_t columns = operand->box[0], bytes = columns * own / 8;

    if (bits < 8 && own > 8) {
        map->box[0] = (uint32_t)packed(bytes, bits);
        map->swizzle = map_swizzle(operand->swizzle * bits / 8);
        return;
    }
    map->box[0] = (uint32_t)packed(columns * own / bits, bits);
    map->swizzle = map_swizzle(operand->swizzle);
}

/* The letter of the operand comes first. */
static int refuse(char *reason, size_t size, int role, const char *why)
{
    snprintf(reason, size, "%c has no tensor map: %s", "ABCDPT"[role], why);
    return 0;
}

/* The part that no map can express; NULL if none. */
static const char *limit_passed(const struct qn_geometry *g, int kind,
                                uint64_t pitch, uint64_t group_pitch)
{
    int cut = kind == QN_MAP_RAGGED || kind == QN_MAP_TAIL;

    if (cut && g->grouped)
        return "it has a group axis, not a ragged one";
    if (cut && g->inner_ragged)
        return "its ragged axis is contiguous";
    if (kind == QN_MAP_POINTER && !g->grouped)
        return "it has no group axis";
    if (pitch >= RAGGED_WRAP || (g->grouped && group_pitch >= STRIDE_LIMIT))
        return "a stride passes TMA's limit";
    return NULL;
}

/* Packed rows and groups, or the given strides. */
static void find_pitches(const struct qn_geometry *g, int64_t stride,
                         int64_t group_stride, uint64_t *row, uint64_t *group)
{
    uint64_t bits = (uint64_t)qn_type_bits(g->type);

    *row = (uint64_t)(stride ? stride : g->pitch) * bits;
    *group = group_stride ? (uint64_t)group_stride * bits
                          : *row * (uint64_t)(g->rows ? g->rows : 1);
}

/* TMA's other rule; 0 and the reason where it is broken. */
static int check_pitches(const struct qn_geometry *g, uint64_t row,
                         uint64_t group, char *reason, size_t size)
{
    uint64_t bits = (uint64_t)qn_type_bits(g->type);
    int of_rows = row % 128 != 0;
    char why[128];

    if (!of_rows && (!g->grouped || group % 128 == 0))
        return 1;
    snprintf(why, sizeof why,
             "its %s are %llu elements of %s from each other, and TMA needs "
             "multiples "
             "of 16 bytes",
             of_rows ? "rows" : "matrices",
             (unsigned long long)((of_rows ? row : group) / bits),
             qn_type_name(g->type));
    return refuse(reason, size, g->role, why);
}

/* The operand's scales instead of its values. */
static int build_scales(const struct qn_geometry *g,
                        const struct qn_operand *operand, int kind,
                        struct qn_map *map, char *reason, size_t size)
{
    if (!g->sf.lines)
        return refuse(reason, size, g->role,
                      "of scales only fp32 ones stored column by column, as "
                      "long for all groups, have one");
    if (g->sf.rows % 4)
        return refuse(reason, size, g->role,
                      "columns of scales must start at multiples of 16 bytes, "
                      "and the recipe's storage does not pad them");
    if ((uint64_t)g->sf.rows * sizeof(float) >= RAGGED_WRAP)
        return refuse(reason, size, g->role, "a stride passes TMA's limit");
    map->type = QN_CU_FLOAT32;
    map->rank = 2;
    map->dims[0] = (uint64_t)g->sf.rows;
    map->dims[1] = (uint64_t)g->sf.lines;
    map->strides[0] = (uint64_t)g->sf.rows * sizeof(float);
    map->box[0] = (uint32_t)operand->sf_box[0];
    map->box[1] = (uint32_t)operand->sf_box[1];
    map->box[2] = map->box[3] = 1;
    map->swizzle = QN_CU_SWIZZLE_NONE;
    if (kind == QN_MAP_SF_TAIL)
        fill_pointer(map, RAGGED_ROWS, map->strides[0]);
    return 1;
}

const struct qn_geometry *
qn_tensormap_geometry(const struct qn_problem *p,
                      const struct qn_geometry *operand, int kind,
                      struct qn_geometry *other)
{
    if (kind != QN_MAP_NUMBERS && kind != QN_MAP_EXTRA)
        return operand;
    *other = *operand;
    if (kind == QN_MAP_NUMBERS || qn_type_bits(other->type) < 16)
        other->type = QUERN_BF16; /* as there is none in f16 with codes */
    if (kind == QN_MAP_EXTRA)
        *(other->inner == QUERN_AXIS_K ? &other->columns : &other->rows) =
            p->lora;
    other->pitch = other->columns;
    return other;
}

int qn_tensormap_build(const struct qn_geometry *g,
                       const struct qn_operand *operand, int kind,
                       int64_t stride, int64_t group_stride, struct qn_map *map,
                       char *reason, size_t size)
{
    int bits = qn_type_bits(g->type);
    const char *limit;
    uint64_t row, group;

    memset(map, 0, sizeof *map);
    if (kind == QN_MAP_SCALES || kind == QN_MAP_SF_TAIL)
        return build_scales(g, operand, kind, map, reason, size);
    find_pitches(g, stride, group_stride, &row, &group);
    limit = limit_passed(g, kind, row / 8, group / 8);
    if (limit)
        return refuse(reason, size, g->role, limit);
    if (!check_pitches(g, row, group, reason, size))
        return 0;
    map->type = map_type(g->type);
    map->dims[0] = g->columns ? packed(g->columns, bits) : 1;
    fill_width(map, bits, operand);
    map->box[1] = (uint32_t)operand->box[1];
    map->box[2] = map->box[3] = 1;
    if (kind == QN_MAP_EXTRA && qn_type_bits(operand->type) < bits) {
        /* extra steps of k next to codes */
        map->swizzle = QN_CU_SWIZZLE_128B;
        map->box[0] = map->box[1] = 64;
    }
    row = row ? row : 128; /* of no columns */
    if (kind == QN_MAP_RAGGED)
        fill_ragged(map, row / 8);
    else if (kind == QN_MAP_POINTER)
        fill_pointer(map, (uint64_t)g->rows, row / 8);
    else if (kind == QN_MAP_TAIL)
        fill_pointer(map, RAGGED_ROWS, row / 8);
    else
        fill_plain(map, g, row / 8, group / 8);
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
