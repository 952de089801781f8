/*
** tensormap.h: the maps by which TMA copies tiles of an operand.
*/
#ifndef QUERN_TENSORMAP_H
#define QUERN_TENSORMAP_H

#include "driver.h"
#include "geometry.h"

/* The arguments of cuTensorMapEncodeTiled, except the address. */
struct qn_map {
    int type; /* CU_TENSOR_MAP_DATA_TYPE_... */
    int rank;
    uint64_t dims[4];
    uint64_t strides[3]; /* bytes, of the axes 1.. */
    uint32_t box[4];
    int swizzle; /* CU_TENSOR_MAP_SWIZZLE_... */
};

/* A parameter that is a map. */
struct qn_map_param {
    int param;  /* enum qn_param */
    int role;   /* enum qn_role */
    int ragged; /* cut to one group by its coordinates */
};

/* All of them, QN_MAPS in number. */
#define QN_MAPS 4
extern const struct qn_map_param qn_tensormap_params[QN_MAPS];

/* 1 if the kernel declares the parameter. */
int qn_tensormap_used(const struct qn_kernel *kernel,
                      const struct qn_map_param *param);

/*
** Lay out the map for rows `stride` elements apart. Returns 1, or 0 and one
** sentence why there is no such map.
*/
int qn_tensormap_build(const struct qn_geometry *geometry,
                       const struct qn_operand *operand, int ragged,
                       int64_t stride, struct qn_map *map, char *reason,
                       size_t size);

/* Encode it for an address. QUERN_ECUDA. */
int qn_tensormap_encode(struct qn_driver *driver, const struct qn_map *map,
                        void *address, struct cu_tensor_map *out);

#endif
