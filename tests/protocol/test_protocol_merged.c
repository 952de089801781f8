/* SPDX-License-Identifier: Apache-2.0 */
/* test_protocol_merged.c: the merged products of a launch: sizes, operands and
   maps of each. */
#include "test_protocol_launch.h"

#include <string.h>

/* So many products, the first with the sizes of the shape, the others with
   those of other groups: some longer, some empty. */
static int count_parts(const struct qn_kernel *kernel, const struct shape *s)
{
    if (!qn_tensormap_takes(kernel, QN_PARAM_microbatches))
        return 0;
    return s->seed % 5 == 4 ? QUERN_MAX_MICROBATCHES : (int)(1 + s->seed % 4);
}

static void set_part_sizes(const struct shape *s, int i)
{
    int *sizes = launch.part_sizes[i], end = 0;

    for (int g = 0; g < s->groups; g++) {
        const int other = (g + i * 3) % s->groups;

        sizes[g] = (g + i) % 5 == 3 ? 0 : s->lengths[other];
        launch.part_starts[i][g] = end;
        launch.part_lengths[i][g] = sizes[g];
        end += sizes[g];
    }
    launch.part_k[i] = end + i % 3;
}

/* In the copies, from multiples of TILE on. */
static void align_part(int groups, int i)
{
    int end = 0;

    for (int g = 0; g < groups; g++) {
        launch.part_starts[i][g] = end;
        launch.part_lengths[i][g] =
            (launch.part_lengths[i][g] + TILE - 1) / TILE * TILE;
        end += launch.part_lengths[i][g];
    }
}

/* Sizes of all parts and, over all, of each group. The first is the shape's;
   where that is, one part has its sizes and the others have none. */
void launch_parts(const struct qn_kernel *kernel, const struct shape *s)
{
    const int scaled = launch.geometry[QN_ROLE_A].sf.scaling != NULL;
    struct twin_launch *l = &launch.twin;

    l->microbatches = count_parts(kernel, s);
    l->part = l->microbatches ? launch.part : NULL;
    launch.liar =
        l->microbatches ? (int)(s->seed % (uint64_t)l->microbatches) : 0;
    memset(launch.totals, 0, sizeof launch.totals);
    for (int i = 0; i < l->microbatches; i++) {
        memset(launch.part_sizes[i], 0, sizeof launch.part_sizes[i]);
        launch.part_k[i] = s->k;
        if (s->lengths && i > 0)
            set_part_sizes(s, i);
        if (s->lengths && i == 0)
            for (int g = 0; g < s->groups; g++) {
                launch.part_starts[0][g] = s->starts[g];
                launch.part_lengths[0][g] = s->lengths[g];
            }
        if (s->lengths && scaled)
            align_part(s->groups, i);
        for (int g = 0; s->lengths && g < s->groups; g++)
            launch.totals[g] += launch.part_lengths[i][g];
        launch.part[i].starts = launch.part_starts[i];
        launch.part[i].lengths = launch.part_lengths[i];
    }
    if (l->microbatches && s->lengths) {
        l->starts = s->starts; /* any */
        l->lengths = launch.totals;
    }
}

/* The operands of one part as the runtime sees them. */
static void part_geometry(const struct qn_kernel *kernel, const struct shape *s,
                          int part, int role, struct qn_geometry *g)
{
    struct qn_problem problem = launch_problem(kernel, s);

    problem.k = launch.part_k[part];
    qn_geometry_of(&problem, launch_recipe(kernel), role, g);
}

static void set_part_map(const struct qn_kernel *kernel, const struct shape *s,
                         int i, int role)
{
    struct twin_map *to =
        role ? &launch.microbatch_maps[i].b : &launch.microbatch_maps[i].a;
    struct qn_geometry g;
    struct qn_map map;
    char reason[256];

    part_geometry(kernel, s, i, role, &g);
    if (!qn_tensormap_build(&g, role ? &kernel->b : &kernel->a, QN_MAP_PLAIN,
                            g.sf.scaling ? g.pitch : launch.stride[role], 0,
                            &map, reason, sizeof reason))
        fail_msg("%s", reason);
    *to = (struct twin_map){.role = role,
                            .kind = TWIN_PLAIN,
                            .rank = map.rank,
                            .base = launch.part[i].base[role],
                            .box = {(int)map.box[0], (int)map.box[1]},
                            .part = i};
    memcpy(to->dims, map.dims, sizeof map.dims);
    memcpy(to->strides + 1, map.strides, sizeof map.strides);
}

/* One of the merged products, the sizes of some in 64 bits or by offsets. */
void launch_part(const struct qn_kernel *kernel, const struct shape *s, int i)
{
    struct qn_microbatch *part = &launch.values.microbatches.part[i];
    const int first = s->lengths ? i == 0 : i == launch.liar;
    struct qn_geometry g;

    part->first_dims = first ? s->first_dims : launch.part_sizes[i];
    part->offsets = first ? s->offsets : NULL;
    part->sizes_bytes = first ? s->sizes_bytes : 4;
    part->k = launch.part_k[i];
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        part_geometry(kernel, s, i, role, &g);
        launch.part[i].base[role] =
            launch.twin.operand[role].base + ((uint64_t)i << 37);
        launch.part[i].rows = g.inner_ragged ? g.columns : g.rows;
        *(role ? &part->b : &part->a) =
            (const void *)(uintptr_t)launch.part[i].base[role];
        *(role ? &part->b_stride : &part->a_stride) =
            g.sf.scaling ? g.pitch : launch.stride[role];
        *(role ? &part->b_sf_stride : &part->a_sf_stride) = g.sf.stride;
        set_part_map(kernel, s, i, role);
    }
}
