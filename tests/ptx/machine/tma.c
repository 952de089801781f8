/* SPDX-License-Identifier: Apache-2.0 */
/* tma.c: the copy engine: boxes of tensors between global and shared memory. */
#include "build.h"
#include "hazard.h"
#include "matrix.h"
#include "tma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t box_bytes(const struct px_map *map)
{
    uint32_t bytes = map->element_bytes;

    for (int i = 0; i < map->rank; i++)
        bytes *= map->box[i];
    return bytes;
}

/* One row of a box, along dimension 0: its address in the tensor; 0 if it is
   outside. Elements `from` to `to` of the row are inside. */
static uint64_t row_of(const struct px_tile *tile, const int *index, int *from,
                       int *to)
{
    const struct px_map *map = &tile->map;
    uint64_t address = map->address;
    const int64_t x = tile->at[0];

    for (int i = 1; i < map->rank; i++) {
        const int other = i < 3 && map->rank > 2 ? 3 - i : i;
        const int from_other = px_misreads(PX_DIMENSIONS) ? other : i;
        const int64_t at = (int64_t)tile->at[from_other] + index[i];

        if (at < 0 || at >= (int64_t)map->dims[i])
            return 0;
        address += (uint64_t)at * map->strides[i - 1];
    }
    *from = x < 0 ? (int)-x : 0;
    *to = (int64_t)map->dims[0] - x < map->box[0]
              ? (int)((int64_t)map->dims[0] - x)
              : map->box[0];
    if (*from >= *to)
        return 0;
    return address + (uint64_t)(x + *from) * map->element_bytes;
}

/* CU_TENSOR_MAP_DATA_TYPE_... */
enum { U32 = 2, S32 = 3, F16 = 6, F32 = 7, BF16 = 9, F32_FTZ = 10 };

static uint32_t add_words(uint32_t x, uint32_t y, int type)
{
    union {
        uint32_t u;
        float f;
    } a = {x}, b = {y};

    if (type == U32 || type == S32)
        return x + y;
    a.f += b.f;
    return type == F32_FTZ && !(a.u & 0x7f800000) ? a.u & 0x80000000 : a.u;
}

static uint16_t add_halves(uint16_t x, uint16_t y, int type)
{
    return type == F16
               ? px_half_of(px_float_of_half(x) + px_float_of_half(y))
               : px_bf16_of((double)px_float_of_bf16(x) + px_float_of_bf16(y));
}

static int add_elements(struct px_async *async, unsigned char *to,
                        const unsigned char *from, size_t bytes)
{
    const int type = async->tile->map.type;
    const size_t size = async->tile->map.element_bytes;
    const int is_half = type == F16 || type == BF16;

    if (!is_half && type != U32 && type != S32 && type != F32 &&
        type != F32_FTZ)
        return px_fault(async->warp, async->op, async->lane,
                        "sums of type %d are not known", type);
    for (size_t i = 0; i < bytes; i += size) {
        uint32_t x = 0, y = 0;

        memcpy(&x, to + i, size);
        memcpy(&y, from + i, size);
        x = is_half ? add_halves((uint16_t)x, (uint16_t)y, type)
                    : add_words(x, y, type);
        memcpy(to + i, &x, size);
    }
    return PX_NEXT;
}

/* Between a row in linear order and the tensor. */
static int move_row(struct px_async *async, unsigned char *row,
                    const int *index)
{
    const struct px_tile *tile = async->tile;
    const size_t size = tile->map.element_bytes;
    int from = 0, to = 0;
    const uint64_t at = row_of(tile, index, &from, &to);
    unsigned char *global;
    size_t bytes;

    if (!async->store && !px_misreads(PX_OUTSIDE))
        memset(row, 0, size * tile->map.box[0]);
    if (!at)
        return PX_NEXT;
    bytes = (size_t)(to - from) * size;
    global = px_memory_global(async->warp, async->op, at, bytes, async->lane);
    if (!global)
        return PX_FAULT;
    if (!async->store)
        memcpy(row + (size_t)from * size, global, bytes);
    else if (tile->adds && !px_misreads(PX_PLAIN_ADD))
        return add_elements(async, global, row + (size_t)from * size, bytes);
    else
        memcpy(global, row + (size_t)from * size, bytes);
    return PX_NEXT;
}

/* All rows of a box, `data` in linear order. */
static int move_box(struct px_async *async, unsigned char *data)
{
    const struct px_map *map = &async->tile->map;
    const size_t row = (size_t)map->box[0] * map->element_bytes;
    int index[PX_MAX_RANK] = {0}, i;

    for (;;) {
        if (move_row(async, data, index))
            return PX_FAULT;
        data += row;
        for (i = 1; i < map->rank && ++index[i] == map->box[i]; i++)
            index[i] = 0;
        if (i == map->rank)
            return PX_NEXT;
    }
}

/* Between linear order and shared memory. */
static int move_shared(struct px_async *async, unsigned char *data, int loads)
{
    const struct px_tile *tile = async->tile;
    struct px_cta *cta = tile->to_cta;
    const uint32_t bytes = tile->bytes;

    if (tile->shared < PX_SHARED_START ||
        tile->shared + bytes > cta->shared_bytes)
        return px_fault(async->warp, async->op, async->lane,
                        "%u bytes at shared address %u, after its end", bytes,
                        tile->shared);
    if (loads)
        px_hazard_copied(cta, tile->shared, bytes);
    else if (px_hazard_read(async, cta, tile->shared, bytes))
        return PX_FAULT;
    for (uint32_t i = 0; i < bytes; i += 16) {
        const uint32_t size = bytes - i < 16 ? bytes - i : 16;
        unsigned char *at =
            cta->shared + px_swizzled(tile->shared + i, tile->map.swizzle);

        if (loads)
            memcpy(at, data + i, size);
        else
            memcpy(data + i, at, size);
    }
    return PX_NEXT;
}

/* Count the copy's bytes on its barrier, which a CTA of the cluster has. */
static int complete(struct px_async *async, struct px_cta *cta)
{
    const struct px_tile *tile = async->tile;
    struct px_mbarrier *barrier = px_barrier_find(async->warp, async->op, cta,
                                                  tile->barrier, async->lane);

    if (!barrier)
        return PX_FAULT;
    px_barrier_complete(barrier, tile->bytes);
    return PX_NEXT;
}

static int land_load(struct px_async *async)
{
    struct px_tile *tile = async->tile;
    unsigned char *data = calloc(1, tile->bytes);
    int code;

    if (!data)
        return px_fault_plain("out of memory");
    if (px_misreads(PX_OUTSIDE))
        memset(data, 0x3f, tile->bytes);
    code = move_box(async, data);
    if (!code)
        code = move_shared(async, data, 1);
    free(data);
    if (code)
        return code;
    return complete(async, px_misreads(PX_OWN_BARRIER) ? async->warp->cta
                                                       : tile->barrier_cta);
}

/* First shared memory is read, then global memory is written. */
static int land_store(struct px_async *async)
{
    struct px_tile *tile = async->tile;
    int code;

    if (!async->stage) {
        tile->data = malloc(tile->bytes);
        if (!tile->data)
            return px_fault_plain("out of memory");
        if (move_shared(async, tile->data, 0))
            return PX_FAULT;
        async->stage = 1;
        return PX_WAIT;
    }
    code = move_box(async, tile->data);
    free(tile->data);
    tile->data = NULL;
    return code;
}

/* Shared memory of one CTA to that of another. */
static int land_between(struct px_async *async)
{
    struct px_tile *tile = async->tile;
    struct px_cta *from = async->warp->cta;

    if (tile->global + tile->bytes > from->shared_bytes)
        return px_fault(async->warp, async->op, async->lane,
                        "%u bytes after the end of shared memory", tile->bytes);
    if (px_hazard_read(async, from, (uint32_t)tile->global, tile->bytes))
        return PX_FAULT;
    px_hazard_copied(tile->to_cta, tile->shared, tile->bytes);
    memcpy(tile->to_cta->shared + tile->shared, from->shared + tile->global,
           tile->bytes);
    return complete(async, tile->to_cta);
}

/* Bytes of global memory. */
static int land_bytes(struct px_async *async)
{
    struct px_tile *tile = async->tile;
    const unsigned char *from = px_memory_global(
        async->warp, async->op, tile->global, tile->bytes, async->lane);

    if (!from)
        return PX_FAULT;
    px_hazard_copied(tile->to_cta, tile->shared, tile->bytes);
    memcpy(tile->to_cta->shared + tile->shared, from, tile->bytes);
    return complete(async, tile->to_cta);
}

/* ------------------------------------------------------------------ issuing */

static struct px_tile *new_tile(struct px_async *async)
{
    if (async)
        async->tile = calloc(1, sizeof *async->tile);
    if (async && !async->tile)
        px_fault_plain("out of memory");
    return async ? async->tile : NULL;
}

/* The map at a generic address, and where the box is. */
static int read_map(struct px_warp *w, const struct px_op *op, int lane,
                    int map_arg, struct px_tile *tile)
{
    const uint64_t at = PX_AT(w, uint64_t, map_arg)[lane];
    const unsigned char *map = px_memory_at(w, op, 'a', at, 64, lane);

    if (!map || !px_memory_at(w, op, 'a', at + 64, 64, lane))
        return PX_FAULT;
    memcpy(&tile->map, map, sizeof tile->map);
    if (tile->map.signature != PX_MAP_SIGNATURE)
        return px_fault(w, op, lane, "there is no tensor map at 0x%llx",
                        (unsigned long long)at);
    if (tile->map.rank != op->vector)
        return px_fault(w, op, lane, "the tensor has %d dimensions",
                        tile->map.rank);
    for (int i = 0; i < op->vector; i++)
        tile->at[i] = PX_AT(w, int32_t, map_arg + 1 + i)[lane];
    tile->bytes = box_bytes(&tile->map);
    if (tile->map.halves)
        tile->at[0] >>= 1;
    if ((int64_t)tile->at[0] * tile->map.element_bytes % 16)
        return px_fault(w, op, lane, "column %d is no multiple of 16 bytes",
                        tile->at[0]);
    return PX_NEXT;
}

static int check_shared(struct px_warp *w, const struct px_op *op, int lane,
                        const struct px_tile *tile)
{
    if (tile->shared % 128)
        return px_fault(w, op, lane, "shared address %u is no multiple of 128",
                        tile->shared);
    return PX_NEXT;
}

/* At the same address in the CTA that has the box; .cta_group::2: in the CTA of
   its pair that the address names. */
static int find_barrier(struct px_warp *w, const struct px_op *op, int lane,
                        uint32_t address, struct px_tile *tile)
{
    const int named = (int)(address >> PX_RANK_SHIFT) - PX_FIRST_RANK;
    const int own = w->cta->rank, to = tile->to_cta->rank;

    tile->barrier_cta = tile->to_cta;
    if (op->is_pair && !px_misreads(PX_PAIR_BARRIER)) {
        const int rank = (to & ~1) | ((named < 0 ? own : named) & 1);

        if (named >= 0 && (named ^ own) >> 1)
            return px_fault(w, op, lane,
                            "its barrier is in CTA rank %d, of "
                            "another pair",
                            named);
        tile->barrier_cta = &w->cta->cluster->cta[rank];
    }
    return px_barrier_find(w, op, tile->barrier_cta, tile->barrier, lane)
               ? PX_NEXT
               : PX_FAULT;
}

/* [to], [map, {x, ..}], [barrier] (, ranks) */
static int load_tile(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const uint32_t local = (1u << PX_RANK_SHIFT) - 1;
    const int barrier_arg = 2 + op->vector;

    PX_EACH (mask) {
        const uint32_t to = PX_AT(w, uint32_t, 0)[i];
        const uint32_t barrier = PX_AT(w, uint32_t, barrier_arg)[i];
        uint32_t ranks = op->sub ? PX_AT(w, uint32_t, op->nargs - 1)[i] : 0;
        struct px_cta *own = w->cta;

        if (!op->sub && (!px_barrier_is_own(own, to) ||
                         (!op->is_pair && !px_barrier_is_own(own, barrier))))
            return px_fault(w, op, i, "goes to another CTA");
        if (!op->sub)
            ranks = 1u << own->rank;
        if (!ranks || ranks >> own->cluster->size)
            return px_fault(w, op, i, "ranks 0x%x of a cluster of %d", ranks,
                            own->cluster->size);
        for (int k = 0; k < own->cluster->size; k++) {
            struct px_tile *tile;

            if (!(ranks >> k & 1) ||
                (px_misreads(PX_OWN_MEMORY) && k != own->rank))
                continue;
            tile = new_tile(px_async_add(w, op, i, land_load));
            if (!tile || read_map(w, op, i, 1, tile))
                return PX_FAULT;
            tile->shared = to & local;
            tile->barrier = barrier & local;
            tile->to_cta = &own->cluster->cta[k];
            if (find_barrier(w, op, i, barrier, tile) ||
                check_shared(w, op, i, tile))
                return PX_FAULT;
        }
    }
    return PX_NEXT;
}

/* [map, {x, ..}], [from] */
static int store_tile(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    PX_EACH (mask) {
        struct px_async *async = px_async_add(w, op, i, land_store);
        struct px_tile *tile = new_tile(async);

        if (!tile || read_map(w, op, i, 0, tile))
            return PX_FAULT;
        async->store = 1;
        async->group = w->bulk_group[i];
        tile->shared = PX_AT(w, uint32_t, op->nargs - 1)[i];
        if (!px_barrier_is_own(w->cta, tile->shared))
            return px_fault(w, op, i, "is of another CTA's memory");
        tile->shared &= (1u << PX_RANK_SHIFT) - 1;
        tile->to_cta = w->cta;
        tile->adds = op->sub;
        if (check_shared(w, op, i, tile) ||
            px_hazard_issued(w, op, i, w->cta, tile->shared, tile->bytes))
            return PX_FAULT;
    }
    return PX_NEXT;
}

/* [to], [from], bytes, [barrier] */
static int copy_between(struct px_warp *w, const struct px_op *op,
                        uint32_t mask)
{
    const uint32_t local = (1u << PX_RANK_SHIFT) - 1;

    PX_EACH (mask) {
        const uint32_t to = PX_AT(w, uint32_t, 0)[i];
        struct px_tile *tile = new_tile(
            px_async_add(w, op, i, op->sub ? land_bytes : land_between));

        if (!tile)
            return PX_FAULT;
        tile->bytes = PX_AT(w, uint32_t, 2)[i];
        if (!px_memory_shared(w, op, to, tile->bytes, i, &tile->to_cta))
            return PX_FAULT;
        tile->shared = to & local;
        tile->global = op->sub ? PX_AT(w, uint64_t, 1)[i]
                               : PX_AT(w, uint32_t, 1)[i] & local;
        tile->barrier = PX_AT(w, uint32_t, 3)[i] & local;
        if (to >> PX_RANK_SHIFT != PX_AT(w, uint32_t, 3)[i] >> PX_RANK_SHIFT)
            return px_fault(w, op, i, "its barrier is in another CTA");
        if (to % 16 || tile->global % 16 || tile->bytes % 16)
            return px_fault(w, op, i, "no multiple of 16 bytes");
        if (!op->sub && px_hazard_issued(w, op, i, w->cta,
                                         (uint32_t)tile->global, tile->bytes))
            return PX_FAULT;
    }
    return PX_NEXT;
}

/* Take a word out of a name that has it. */
static int take_word(char *name, const char *word)
{
    char *at = strstr(name, word);

    if (at)
        memmove(at, at + strlen(word), strlen(at + strlen(word)) + 1);
    return at != NULL;
}

/* The rest of a copy's name after a beginning with the rank, or NULL. A copy to
   the own CTA may say so. */
static const char *after_load(const char *name, int rank)
{
    static const char *const spaces[] = {"cluster", "cta"};
    char load[120];

    for (int i = 0; i < 2; i++) {
        const int length = snprintf(load, sizeof load,
                                    "cp.async.bulk.tensor.%dd.shared::%s."
                                    "global.mbarrier::complete_tx::bytes",
                                    rank, spaces[i]);

        if (!strncmp(name, load, (size_t)length))
            return name + length;
    }
    return NULL;
}

/* Names are a beginning, the rank, and an end. */
static int setup_ranked(struct px_build *b, int rank)
{
    struct px_op *op = b->op;
    char store[100], add[100], name[160];
    const char *rest;
    int n = 0, hinted;

    snprintf(store, sizeof store,
             "cp.async.bulk.tensor.%dd.global.shared::cta.bulk_group", rank);
    snprintf(add, sizeof add,
             "cp.reduce.async.bulk.tensor.%dd.global.shared::cta.add."
             "bulk_group",
             rank);
    snprintf(name, sizeof name, "%s", b->mnemonic);
    take_word(name, ".tile");
    hinted = take_word(name, ".L2::cache_hint");
    op->is_pair = (char)take_word(name, ".cta_group::2");
    op->vector = (short)rank;
    if (!strcmp(name, store) || !strcmp(name, add)) {
        op->run = store_tile;
        op->sub = !strcmp(name, add);
        if (px_give(b, n++, 'd'))
            return PX_FAULT;
    } else if ((rest = after_load(name, rank))) {
        op->sub = !strcmp(rest, ".multicast::cluster");
        if (*rest && !op->sub)
            return PX_NEXT;
        op->run = load_tile;
        if (px_give(b, n++, 'r') || px_give(b, n++, 'd'))
            return PX_FAULT;
    } else {
        return PX_NEXT;
    }
    while (n < b->noperands - hinted)
        if (px_give(b, n++, 'r'))
            return PX_FAULT;
    if (op->offset)
        return px_bad(b, "an offset is not known here");
    return PX_EXIT;
}

int px_setup_tile(struct px_build *b)
{
    static const char *const sources[] = {"shared::cta", "global"};
    char name[80];

    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name,
                 "cp.async.bulk.shared::cluster.%s.mbarrier::complete_tx::"
                 "bytes",
                 sources[k]);
        if (strcmp(b->mnemonic, name))
            continue;
        b->op->run = copy_between;
        b->op->sub = (short)k;
        for (int i = 0; i < 4; i++)
            if (px_give(b, i, k && i == 1 ? 'd' : 'r'))
                return PX_FAULT;
        return PX_EXIT;
    }
    for (int rank = 1; rank <= PX_MAX_RANK; rank++) {
        int code = setup_ranked(b, rank);

        if (code != PX_NEXT)
            return code;
    }
    return PX_NEXT;
}
