/* SPDX-License-Identifier: Apache-2.0 */
/* tensormap.h: the maps by which TMA copies tiles of an operand. */
#pragma once

#include "internal.h"

struct cu_tensor_map;
struct qn_driver;
struct qn_geometry;

/* The arguments of cuTensorMapEncodeTiled, except the address. */
struct qn_map {
    int type; /* CU_TENSOR_MAP_DATA_TYPE_... */
    int rank;
    uint64_t dims[4];
    uint64_t strides[3]; /* bytes, of the axes 1.. */
    uint32_t box[4];
    int swizzle; /* CU_TENSOR_MAP_SWIZZLE_... */
};

/* How a map reaches the elements of one group. */
enum qn_map_kind {
    QN_MAP_PLAIN,   /* covers the buffer */
    QN_MAP_RAGGED,  /* cut to one group by its coordinates */
    QN_MAP_POINTER, /* moved to one group's matrix by coordinates */
    QN_MAP_SCALES,  /* covers the operand's scales */
    QN_MAP_TAIL,    /* moved by coordinates to where a group's rows end */
    QN_MAP_SF_TAIL, /* the same for its scales */
    QN_MAP_NUMBERS, /* covers the values that the operand is quantized from */
    QN_MAP_EXTRA    /* covers its part of the steps of k that follow its own */
};

/* A parameter that is a map. */
struct qn_map_param {
    int param; /* enum qn_param */
    int role;  /* enum qn_role */
    int kind;  /* enum qn_map_kind */
};

/* All of them, QN_MAPS in number. */
#define QN_MAPS 19
extern const struct qn_map_param qn_tensormap_params[QN_MAPS];

/* The kernel's operand that a map is for; P is stored as D is. */
const struct qn_operand *qn_tensormap_operand(const struct qn_kernel *kernel,
                                              const struct qn_map_param *param);

/* 1 if the kernel declares the parameter (enum qn_param), a map or not. */
int qn_tensormap_takes(const struct qn_kernel *kernel, int param);

/* 1 if it declares any map. */
int qn_tensormap_any(const struct qn_kernel *kernel);

/* 1 if a launch needs the map: as a parameter, or of each part. */
int qn_tensormap_needs(const struct qn_kernel *kernel, int map);

/* The extent of an operand in its map: the operand's, or, of values in rows of
   their own and of extra steps of k, one made in `other`. */
const struct qn_geometry *
qn_tensormap_geometry(const struct qn_problem *problem,
                      const struct qn_geometry *operand, int kind,
                      struct qn_geometry *other);

/* Lay out the map for rows with `stride` elements and groups with
   `group_stride` between their starts; 0 for those of the geometry. Returns 1,
   or 0 and one sentence why there is no such map. */
int qn_tensormap_build(const struct qn_geometry *geometry,
                       const struct qn_operand *operand, int kind,
                       int64_t stride, int64_t group_stride, struct qn_map *map,
                       char *reason, size_t size);

/* Encode it for an address. QUERN_ECUDA. */
int qn_tensormap_encode(struct qn_driver *driver, const struct qn_map *map,
                        void *address, struct cu_tensor_map *out);
