/* SPDX-License-Identifier: Apache-2.0 */
/* tensormap.c: kernels that change a tensor map: its fields, and its copy from
   shared to global memory. That a copy reads the new map only after the fences
   of the tensormap proxy is not modelled. */
#include "build.h"
#include "tma.h"

#include <stdio.h>
#include <string.h>

enum { ADDRESS, DIM, STRIDE, BOX, STEP, RANK };
static const struct {
    const char *name;
    int ordinal, wide;
} fields[] = {
    [ADDRESS] = {"global_address", 0, 1}, [DIM] = {"global_dim", 1, 0},
    [STRIDE] = {"global_stride", 1, 1},   [BOX] = {"box_dim", 1, 0},
    [STEP] = {"element_stride", 1, 0},    [RANK] = {"rank", 0, 0},
};

static int set_field(struct px_map *map, int field, unsigned which,
                     uint64_t value)
{
    if (which >= PX_MAX_RANK - (field == STRIDE))
        return px_fault_plain("a tensor map has no dimension %u", which);
    switch (field) {
    case ADDRESS:
        map->address = value;
        return value % 16;
    case DIM:
        map->dims[which] = (uint32_t)value;
        return !value;
    case STRIDE:
        map->strides[which] = value;
        return value % 16 || value >> 40;
    case BOX:
        map->box[which] = (uint16_t)value;
        return !value || value > 256;
    case STEP:
        return value != 1; /* as the driver's call has it */
    default:
        map->rank = (uint8_t)(value + 1);
        return value >= PX_MAX_RANK;
    }
}

/* tensormap.replace.tile.FIELD [map] (, dimension), value */
static int replace(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int last = op->nargs - 1;

    PX_EACH (mask) {
        struct px_map *map = (void *)px_memory_at(
            w, op, op->space, px_address(w, op, 0, i), 64, i);
        const uint64_t value = fields[op->sub].wide
                                   ? PX_AT(w, uint64_t, last)[i]
                                   : PX_AT(w, uint32_t, last)[i];
        const unsigned which = last > 1 ? PX_AT(w, uint32_t, 1)[i] : 0;

        if (!map)
            return PX_FAULT;
        if (map->signature != PX_MAP_SIGNATURE)
            return px_fault(w, op, i, "there is no tensor map");
        if (set_field(map, op->sub, which, value))
            return px_fault(w, op, i, "%llu is no valid %s",
                            (unsigned long long)value, fields[op->sub].name);
    }
    return PX_NEXT;
}

/* tensormap.cp_fenceproxy [to], [from], bytes: by a warp. */
static int copy_map(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int i = __builtin_ctz(mask);
    const unsigned char *from;
    unsigned char *to;

    for (unsigned part = 0; part < sizeof(struct px_map); part += 64) {
        to = px_memory_at(w, op, 'g', PX_AT(w, uint64_t, 0)[i] + part, 64, i);
        from = px_memory_at(w, op, 's', PX_AT(w, uint32_t, 1)[i] + part, 64, i);
        if (!to || !from)
            return PX_FAULT;
        memcpy(to, from, 64);
    }
    return PX_NEXT;
}

static int nothing(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)w, (void)op, (void)mask;
    return PX_NEXT;
}

static int setup_replace(struct px_build *b, const char *rest)
{
    char name[60];

    for (int k = ADDRESS; k <= RANK; k++)
        for (int shared = 0; shared < 2; shared++) {
            const int n = 2 + fields[k].ordinal;

            snprintf(name, sizeof name, "%s.%s.b1024.b%d", fields[k].name,
                     shared ? "shared::cta" : "global",
                     fields[k].wide ? 64 : 32);
            if (strcmp(name, rest) || b->noperands != n)
                continue;
            b->op->run = replace;
            b->op->sub = (short)k;
            b->op->space = shared ? 's' : 'g';
            if (px_give_address(b, 0) || (n > 2 && px_give(b, 1, 'r')) ||
                px_give(b, n - 1, fields[k].wide ? 'd' : 'r'))
                return PX_FAULT;
            return PX_EXIT;
        }
    return PX_NEXT;
}

int px_setup_map(struct px_build *b)
{
    static const char begin[] = "tensormap.replace.tile.";
    const char *name = b->mnemonic;

    if (!strncmp(name, begin, sizeof begin - 1))
        return setup_replace(b, name + sizeof begin - 1);
    if (!strcmp(name, "tensormap.cp_fenceproxy.global.shared::cta."
                      "tensormap::generic.release.gpu.sync.aligned")) {
        b->op->run = copy_map;
        b->op->meet = PX_MEET_ALL;
        return px_give(b, 0, 'd') || px_give(b, 1, 'r') ? PX_FAULT : PX_EXIT;
    }
    if (strncmp(name, "fence.proxy.tensormap::generic.", 31))
        return PX_NEXT;
    b->op->run = nothing;
    return PX_EXIT;
}
