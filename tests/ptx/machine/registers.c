/* SPDX-License-Identifier: Apache-2.0 */
/* registers.c: files of registers, which warps of a kernel inherit from warps
   that have ended: values of others are as good as poison. */
#include "build.h"
#include "hazard.h"

#include <stdlib.h>
#include <string.h>

static unsigned char **spare;
static int nspare, room;
static const struct px_program *owner;

void px_registers_clear(void)
{
    while (nspare)
        free(spare[--nspare]);
    owner = NULL;
}

static void fill_constants(unsigned char *file)
{
    for (int k = 0; k < owner->nconstants; k++) {
        const struct px_constant *constant = &owner->constants[k];
        unsigned char *at = file + constant->at;
        const int n = constant->wide == 2 ? 1 : PX_LANES;
        const size_t size = constant->wide == 1 ? 8 : 4;

        for (int i = 0; i < n; i++)
            memcpy(at + (size_t)i * size, &constant->value, size);
    }
}

/* Addresses of shared memory name their CTA in kernels for pairs, which reach
   the other CTA of the pair by a bit of them. */
static void fill_shared(const struct px_warp *w)
{
    const uint32_t rank = (uint32_t)w->cta->rank + PX_FIRST_RANK;

    for (int k = 0; k < owner->nconstants; k++) {
        const struct px_constant *constant = &owner->constants[k];
        const uint64_t value = constant->value | rank << PX_RANK_SHIFT;
        const size_t size = constant->wide == 1 ? 8 : 4;

        for (size_t i = 0; constant->shared && i < PX_LANES; i++)
            memcpy(w->file + constant->at + i * size, &value, size);
    }
}

static uint32_t special_value(const struct px_cta *cta, int which, int warp,
                              int lane)
{
    const struct px_launch *launch = px_machine.launch;
    const uint32_t thread = (uint32_t)(warp * PX_LANES + lane);
    const uint32_t *block = launch->block, *cluster = launch->cluster;

    switch (which) {
    case PX_TID_X:
        return thread % block[0];
    case PX_TID_Y:
        return thread / block[0] % block[1];
    case PX_TID_Z:
        return thread / block[0] / block[1];
    case PX_NTID_X:
    case PX_NTID_Y:
    case PX_NTID_Z:
        return block[which - PX_NTID_X];
    case PX_CTAID_X:
    case PX_CTAID_Y:
    case PX_CTAID_Z:
        return cta->id[which - PX_CTAID_X];
    case PX_NCTAID_X:
    case PX_NCTAID_Y:
    case PX_NCTAID_Z:
        return launch->grid[which - PX_NCTAID_X];
    case PX_LANEID:
        return (uint32_t)lane;
    case PX_WARPID:
        return (uint32_t)warp;
    case PX_CLUSTER_RANK:
        return (uint32_t)cta->rank;
    case PX_CLUSTER_SIZE:
        return (uint32_t)cta->cluster->size;
    case PX_CLUSTER_CTAID_X:
    case PX_CLUSTER_CTAID_Y:
    case PX_CLUSTER_CTAID_Z:
        which -= PX_CLUSTER_CTAID_X;
        return cta->id[which] % cluster[which];
    case PX_CLUSTER_NCTAID_X:
    case PX_CLUSTER_NCTAID_Y:
    case PX_CLUSTER_NCTAID_Z:
        return cluster[which - PX_CLUSTER_NCTAID_X];
    case PX_CLUSTERID_X:
    case PX_CLUSTERID_Y:
    case PX_CLUSTERID_Z:
        which -= PX_CLUSTERID_X;
        return cta->id[which] / cluster[which];
    case PX_NCLUSTERID_X:
    case PX_NCLUSTERID_Y:
    case PX_NCLUSTERID_Z:
        which -= PX_NCLUSTERID_X;
        return launch->grid[which] / cluster[which];
    default:
        return 0;
    }
}

static void fill_special(const struct px_warp *w)
{
    for (int k = 0; k < owner->nspecial; k++)
        for (int i = 0; i < PX_LANES; i++) {
            const uint32_t x =
                special_value(w->cta, owner->special[k].which, w->number, i);

            memcpy(w->file + owner->special[k].at + 4 * i, &x, 4);
        }
}

int px_registers_take(struct px_warp *w)
{
    const struct px_program *program = px_machine.launch->program;

    if (owner != program)
        px_registers_clear();
    owner = program;
    if (nspare) {
        w->file = spare[--nspare];
    } else {
        w->file = aligned_alloc(64, (program->file_bytes + 63) / 64 * 64);
        if (!w->file)
            return px_fault_plain("out of memory");
        memset(w->file, 0xff, program->file_bytes);
        fill_constants(w->file);
    }
    fill_special(w);
    if (program->tensor == 2)
        fill_shared(w);
    return program->products || program->tensor ? px_hazard_warp(w) : PX_NEXT;
}

void px_registers_give(struct px_warp *w)
{
    free(w->uses);
    if (!w->file)
        return;
    if (px_grow(&spare, nspare, &room, sizeof *spare))
        free(w->file);
    else
        spare[nspare++] = w->file;
}
