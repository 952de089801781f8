/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_protocol_launch.c: a launch's arguments: operands that are somewhere,
** maps of them as the runtime builds them, C in real memory.
**
** A, B and D have addresses and nothing there, far enough apart that no wrong
** coordinate leads from one into another. C and scales must exist: the kernel's
** own text reads them. A wrong element shows by its value, and one past the
** end by the signal that reading there raises.
*/
#include "base/types.h"
#include "choose/tensormap.h"
#include "choose/values.h"
#include "problem/geometry.h"
#include "problem/quantize.h"
#include "problem/scale.h"
#include "test_protocol_launch.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* C is at the end of a pool, the scales of A and of B at the ends of two
   others. After a pool is its trap: no access. */
#define POOL_BYTES ((size_t)16 << 20)
#define TRAP_BYTES ((size_t)64 << 20)

struct launch launch;
static const unsigned int bases[] = {TWIN_BASE_A, TWIN_BASE_B};
static _Alignas(256) unsigned int workspace[QN_WORKSPACE_BYTES / 4];
static char *trap; /* just after the pool */

/* Values that fit 16 bits, none of them 0, alike only at a distance of 127. */
static void fill_pool(int bytes)
{
    static int filled;

    if (bytes == filled)
        return;
    for (size_t i = 1; i <= POOL_BYTES / (size_t)bytes; i++) {
        float value = (float)(1 + i * 37 % 127);
        uint32_t word;

        memcpy(&word, &value, sizeof word);
        word >>= bytes == 2 ? 16 : 0; /* bf16 */
        memcpy(trap - i * (size_t)bytes, &word, (size_t)bytes);
    }
    filled = bytes;
}

/* A pool, once; returns where its trap begins. */
static char *pool_end(char **end)
{
    if (!*end) {
        char *pool = mmap(NULL, POOL_BYTES + TRAP_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(pool != MAP_FAILED);
        *end = pool + POOL_BYTES;
        assert_int_equal(mprotect(*end, TRAP_BYTES, PROT_NONE), 0);
    }
    return *end;
}

static const struct quern_registry *registry; /* of the twin */

const struct qn_recipe *launch_recipe(const struct qn_kernel *kernel)
{
    const struct quern_registry *r = registry;

    for (int i = 0; i < r->nrecipes; i++)
        if (!strcmp(r->recipes[i].name, kernel->recipe))
            return &r->recipes[i];
    fail_msg("no recipe %s", kernel->recipe);
    return NULL;
}

struct qn_problem launch_problem(const struct qn_kernel *kernel,
                                 const struct shape *s)
{
    int activation = QUERN_NO_ACTIVATION;

    if (kernel->epilogue == QN_ACTIVATE)
        assert_true(qn_activation_find(kernel->activation, &activation));
    return (struct qn_problem){
        .activation = activation,
        .op = kernel->op,
        .groups = s->groups,
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .ragged = kernel->ragged,
        .a_major = kernel->a.major,
        .b_major = kernel->b.major,
        .d_type = kernel->d.type,
    };
}

/* The runtime's own view of the operands, with room between rows or without;
   copies have only the padding of their rows. */
static void set_geometry(const struct qn_kernel *kernel, const struct shape *s)
{
    const struct qn_recipe *recipe = launch_recipe(kernel);
    const struct qn_problem problem = launch_problem(kernel, s);

    for (int role = 0; role < QN_ROLES; role++) {
        struct qn_geometry *g = &launch.geometry[role];
        int gaps;

        qn_geometry_of(&problem, recipe, role, g);
        gaps = s->gaps && !g->sf.scaling;
        launch.stride[role] = g->pitch + (gaps ? 16 : 0);
        launch.group_stride[role] =
            launch.stride[role] * g->rows + (gaps ? 48 : 0);
    }
}

/* By a map's address and its 16-byte steps: below it, above it, far off. */
static void place_apart(int role, int groups)
{
    const uint64_t here = (uint64_t)(uintptr_t)workspace;

    for (int g = 0; g < groups; g++)
        launch.apart[role][g] =
            here + (((uint64_t)(g * 7 % 1021) << 36) - ((uint64_t)1 << 41)) +
            (uint64_t)g * 1040;
}

/* By address where that is wanted and the kernel has a map for it. */
static void set_operand(const struct qn_kernel *kernel, int role, int param,
                        int apart)
{
    const struct qn_operand *operand[] = {&kernel->a, &kernel->b, &kernel->d,
                                          &kernel->d};
    const int from = role == TWIN_D   ? QN_ROLE_D
                     : role == TWIN_P ? QN_ROLE_P
                                      : role;
    const struct qn_geometry *g = &launch.geometry[from];
    const int bits = qn_type_bits(g->type);
    struct twin_operand *o = &launch.twin.operand[role];

    o->base = ((uint64_t)role + 1) << 44;
    o->pitch = (uint64_t)launch.stride[from] * (uint64_t)bits / 8;
    o->rows = g->rows;
    o->bytes = bits < 8 ? 1 : bits / 8;
    o->values = bits < 8 ? 8 / bits : 1;
    o->k_major = operand[role]->major == QUERN_MAJOR_K;
    if (!apart || !g->grouped || !qn_tensormap_takes(kernel, param))
        return;
    place_apart(role, (int)g->groups);
    o->base = 0;
    o->pointers = launch.apart[role];
}

/* ------------------------------------------------------------- scales */

/* The beginnings of groups that are summed in the copies, and the steps of k
   that are read there. */
static void set_copies(const struct qn_kernel *kernel, struct twin_launch *l)
{
    const int step = kernel->tile[2];
    int end = 0;

    if (!launch.geometry[QN_ROLE_A].sf.scaling || l->ragged != QUERN_AXIS_K ||
        !l->lengths)
        return;
    for (int g = 0; g < l->groups; g++) {
        launch.starts[g] = end;
        launch.lengths[g] = (l->lengths[g] + step - 1) / step * step;
        end += (l->lengths[g] + TILE - 1) / TILE * TILE;
    }
    l->starts = launch.starts;
    l->lengths = launch.lengths;
}

/* Are codes multiplied by their scales before they are summed? */
static int dequantizes(const struct qn_scaling *f)
{
    return f->span == QN_SPAN_BLOCK && f->type != QUERN_F32;
}

/* The values that share a scale, as the twin counts them; of two levels the
   second. */
static void set_scaling(int role)
{
    const struct qn_scaling *f = launch.geometry[role].sf.scaling;
    struct twin_scaling *to = &launch.twin.scaling[role];

    if (dequantizes(f))
        launch.twin.blocks[role] = (struct twin_blocks){f->rows, f->k};
    if (dequantizes(f) && !f->global)
        return;
    *to = (struct twin_scaling){INT_MAX, INT_MAX, f->span != QN_SPAN_TENSOR};
    if (dequantizes(f))
        return;
    if (f->span == QN_SPAN_BLOCK || f->span == QN_SPAN_ROW)
        to->rows = f->span == QN_SPAN_BLOCK ? f->rows : 1;
    if (f->span == QN_SPAN_BLOCK)
        to->k = f->k;
}

/* In tiles of 128 x 4, each group by itself. */
static int64_t place_in_tiles(int role, int group, int line, int block)
{
    const struct twin_launch *l = &launch.twin;
    const struct qn_scales *sf = &launch.geometry[role].sf;
    const int k = l->ragged == QUERN_AXIS_K
                      ? (l->lengths[group] + TILE - 1) / TILE * TILE
                      : l->k;
    const int64_t columns = ((k + sf->scaling->k - 1) / sf->scaling->k + 3) / 4;
    int64_t tiles = 0; /* before the group's */

    for (int g = 0; g < group && role == QN_ROLE_A; g++)
        if (l->ragged == QUERN_AXIS_M)
            tiles += (l->lengths[g] + TILE - 1) / TILE * columns;
    if (l->ragged == QUERN_AXIS_K)
        tiles = ((role == QN_ROLE_A ? l->m : l->n) + TILE - 1) / TILE *
                (int64_t)(l->starts[group] / sf->scaling->k / 4);
    return group * sf->group_stride +
           (tiles + line / TILE * columns + block / 4) * 512 + line % 32 * 16 +
           line % TILE / 32 * 4 + block % 4;
}

/* The groups' positions: of a part, or of all parts. */
static const int *starts_of(int part)
{
    return launch.twin.microbatches ? launch.part_starts[part]
                                    : launch.twin.starts;
}

static const int *lengths_of(int part)
{
    return launch.twin.microbatches ? launch.part_lengths[part]
                                    : launch.twin.lengths;
}

/* A scale's position, by its group and its index in the group. */
static int64_t place_scale(int role, int part, int group, int line, int block)
{
    const struct twin_launch *l = &launch.twin;
    const struct qn_scales *sf = &launch.geometry[role].sf;
    const int64_t first = group * sf->group_stride;
    const int down = sf->scaling->order == QN_ORDER_COLUMNS;

    if (sf->scaling->span != QN_SPAN_BLOCK && sf->scaling->span != QN_SPAN_ROW)
        return first;
    if (sf->scaling->order == QN_ORDER_TILES)
        return place_in_tiles(role, group, line, block);
    if (role == QN_ROLE_A && l->ragged == QUERN_AXIS_M)
        line += l->starts[group];
    if (sf->scaling->span == QN_SPAN_ROW)
        return first + line;
    if (l->ragged == QUERN_AXIS_K)
        block += starts_of(part)[group] / sf->scaling->k;
    return first +
           (down ? block * sf->stride + line : line * sf->stride + block);
}

static void fill_scale(int role, int64_t at, int part, int group, int line,
                       int block)
{
    const struct twin_launch *l = &launch.twin;
    const float value =
        twin_scale(role, group * l->scaling[role].each + part, line, block);

    if (l->blocks[role].k)
        launch.scales[role][at] =
            (char)twin_scale_code(role, group, line, block);
    else
        memcpy(launch.scales[role] + 4 * at, &value, sizeof value);
}

/* Those of one group, of which an empty one has none. */
static void fill_group(int role, int part, int group)
{
    const struct twin_launch *l = &launch.twin;
    const int each_rows =
        l->blocks[role].k ? l->blocks[role].rows : l->scaling[role].rows;
    const int each_k =
        l->blocks[role].k ? l->blocks[role].k : l->scaling[role].k;
    const int rows = role == QN_ROLE_B           ? l->n
                     : l->ragged == QUERN_AXIS_M ? l->lengths[group]
                                                 : l->m;
    const int k = l->ragged == QUERN_AXIS_K ? lengths_of(part)[group] : l->k;

    if (!rows || !k)
        return;
    for (int line = 0; line <= (rows - 1) / each_rows; line++)
        for (int block = 0; block <= (k - 1) / each_k; block++)
            fill_scale(role, place_scale(role, part, group, line, block), part,
                       group, line, block);
    launch.global[role][group] = twin_scale(role, group, 0, 0);
}

/* Scales of a copy as large as the runtime says, real because the kernel's own
   text may read them: NaN wherever the quantizer need not have written. */
static void set_scales_of(const struct qn_kernel *kernel, const struct shape *s,
                          int role, int part)
{
    static char *ends[TWIN_D];
    struct qn_problem problem = launch_problem(kernel, s);
    const struct qn_scaling *f = launch.geometry[role].sf.scaling;
    struct qn_tensor copy = {0};
    struct qn_quantization q;

    if (launch.twin.microbatches)
        problem.k = launch.part_k[part];
    launch.scales[role] = NULL;
    if (!qn_scale_source(&problem, launch_recipe(kernel), role, &q))
        return;
    qn_quantize_copy(&q, launch_recipe(kernel), q.copies, &copy);
    assert_in_range(copy.sf_bytes, 0, POOL_BYTES - 16);
    /* a multiple of 16, as near to the trap as that allows */
    if (part == 0)
        launch.scales_end[role] = pool_end(&ends[role]);
    else
        assert_int_equal(f->type, QUERN_F32);
    launch.scales_end[role] -= (copy.sf_bytes + 15) / 16 * 16;
    launch.scales[role] =
        launch.scales_end[role]; /* the next part's end there */
    launch.twin.nan_scale = f->type == QUERN_E8M0 ? 0xff : 0x7f;
    memset(launch.scales[role], f->type == QUERN_E4M3 ? 0x7f : 0xff,
           copy.sf_bytes); /* of fp32, too, a NaN */
    for (int g = 0; g < s->groups; g++)
        launch.global[role][g] = NAN;
    set_scaling(role);
    for (int g = 0; g < s->groups && launch.twin.lengths; g++)
        fill_group(role, part, g);
}

static void set_scales(const struct qn_kernel *kernel, const struct shape *s,
                       int role)
{
    const int microbatches =
        launch.twin.microbatches ? launch.twin.microbatches : 1;

    for (int i = 0; i < microbatches; i++) {
        struct qn_microbatch *part = &launch.values.microbatches.part[i];

        set_scales_of(kernel, s, role, i);
        *(role ? &part->b_sf : &part->a_sf) = launch.scales[role];
    }
}

/* --------------------------------------------------------------- maps */

/* The map as the runtime lays it out; none if the operand is otherwise. */
static void set_map(const struct qn_kernel *kernel, int i)
{
    const struct qn_map_param *param = &qn_tensormap_params[i];
    const int role = param->role == QN_ROLE_D   ? TWIN_D
                     : param->role == QN_ROLE_P ? TWIN_P
                                                : param->role;
    const struct twin_operand *o = &launch.twin.operand[role];
    const int anywhere = param->kind == QN_MAP_POINTER ||
                         param->kind == QN_MAP_TAIL ||
                         param->kind == QN_MAP_SF_TAIL;
    const int numbers = param->kind == QN_MAP_NUMBERS;
    struct twin_map *to = &launch.maps[i];
    struct qn_geometry g;
    struct qn_map map;
    char reason[256];

    memset(to, 0, sizeof *to);
    launch.params[param->param] = to;
    if (!qn_tensormap_takes(kernel, param->param) ||
        (param->kind == QN_MAP_POINTER ? !o->pointers : o->pointers != NULL))
        return;
    qn_tensormap_geometry(&launch.geometry[param->role], param->kind, &g);
    if (!qn_tensormap_build(
            &g, qn_tensormap_operand(kernel, param), param->kind,
            numbers ? 0 : launch.stride[param->role],
            launch.group_stride[param->role], &map, reason, sizeof reason))
        fail_msg("%s", reason);
    to->role = role;
    to->kind = (int)param->kind;
    to->rank = map.rank;
    to->base = anywhere ? (uint64_t)(uintptr_t)workspace
               : param->kind == QN_MAP_SCALES
                   ? (uint64_t)(uintptr_t)launch.scales[param->role]
                   : o->base;
    memcpy(to->dims, map.dims, sizeof map.dims);
    memcpy(to->strides + 1, map.strides, sizeof map.strides);
    to->box[0] = (int)map.box[0];
    to->box[1] = (int)map.box[1];
}

/* Whole numbers, so that the epilogue's sums are exact. */
static void set_alphas(struct twin_c *c, const struct shape *s)
{
    for (int g = 0; g < s->groups; g++)
        launch.alpha[g] = (float)(2 + g % 5);
    c->alpha = launch.alpha;
    c->step = s->addend == C_GROUPS;
}

static void set_scalars(struct twin_c *c, const struct shape *s)
{
    if (s->addend < C_SCALARS)
        return;
    set_alphas(c, s);
    for (int g = 0; g < s->groups; g++)
        launch.beta[g] = s->addend == C_UNREAD || (c->step && g % 3 == 1)
                             ? 0.0f
                             : (float)(1 + g % 4);
    c->beta = launch.beta;
}

/* One buffer that ends where the trap begins. */
static void set_c_data(struct twin_c *c, int bytes)
{
    const struct qn_geometry *g = &launch.geometry[QN_ROLE_C];
    const int64_t size = qn_geometry_bytes(g, launch.stride[QN_ROLE_C],
                                           launch.group_stride[QN_ROLE_C]);

    assert_true(bytes == 2 || bytes == 4);
    assert_in_range(size, 0, POOL_BYTES);
    c->data = trap - size;
}

/* Every matrix as near to the trap as the others; those unread inside it. */
static void set_c_apart(struct twin_c *c, const struct shape *s, int bytes)
{
    const struct qn_geometry *g = &launch.geometry[QN_ROLE_C];
    const int64_t size =
        (((g->rows - 1) * launch.stride[QN_ROLE_C]) + g->columns) * bytes;

    assert_in_range(size, 0, POOL_BYTES);
    for (int i = 0; i < s->groups; i++)
        launch.c_apart[i] = c->beta && launch.beta[c->step * i] == 0
                                ? trap
                                : trap - size - i % 7 * 16;
    c->pointers = launch.c_apart;
}

/* With "add" C stands for D: of real memory, but laid out as D is. */
static void set_c(const struct qn_kernel *kernel, const struct shape *s)
{
    struct twin_c *c = &launch.twin.c;
    const int bytes = qn_type_bits(kernel->d.type) / 8;

    memset(c, 0, sizeof *c);
    c->stride = launch.stride[QN_ROLE_C];
    c->group_stride = launch.group_stride[QN_ROLE_C];
    if (kernel->epilogue == QN_ACTIVATE)
        set_scalars(c, s); /* of which only alpha is read */
    if (kernel->epilogue == QN_ALPHA)
        set_alphas(c, s);
    if (kernel->epilogue == QN_STORE || kernel->epilogue == QN_ALPHA ||
        kernel->epilogue == QN_ACTIVATE)
        return;
    pool_end(&trap);
    fill_pool(bytes);
    if (kernel->epilogue == QN_SCALE)
        set_scalars(c, s);
    if (kernel->epilogue == QN_SCALE && s->addend == C_NOTHING)
        return;
    if (s->apart && launch.geometry[QN_ROLE_C].grouped)
        set_c_apart(c, s, bytes);
    else if (kernel->epilogue == QN_SCALE && s->addend == C_UNREAD)
        c->data = trap;
    else
        set_c_data(c, bytes);
}

/* The code below the product, if something does; the seed says what is
   given. */
static void set_follow(const struct qn_kernel *kernel, const struct shape *s)
{
    const struct qn_problem problem = launch_problem(kernel, s);
    struct twin_follow *f = &launch.twin.follow;

    memset(f, 0, sizeof *f);
    if (kernel->epilogue != QN_ACTIVATE)
        return;
    assert_in_range((size_t)s->groups * (size_t)s->n, 0, 1 << 20);
    assert_in_range(s->m, 0, 1 << 14);
    for (int i = 0; i < s->groups * s->n; i++)
        launch.bias[i] = (float)(i * 37 % 127);
    for (int i = 0; i < s->m; i++)
        launch.probability[i] = (float)(i * 5 % 11);
    f->operands = qn_geometry_halves(&problem) ? 2 : 1;
    f->interleave = kernel->interleave;
    f->saved = s->seed % 3 != 0 && problem.activation;
    f->bias = s->seed % 5 ? launch.bias : NULL;
    f->probability =
        s->seed % 7 && problem.activation ? launch.probability : NULL;
}

/* The kernel's parameters other than maps. */
static void set_values(const struct qn_kernel *kernel, const struct shape *s)
{
    const struct twin_launch *l = &launch.twin;
    const struct qn_scales *a = &launch.geometry[QN_ROLE_A].sf;
    const struct qn_scales *b = &launch.geometry[QN_ROLE_B].sf;

    const struct qn_microbatches microbatches =
        launch.values.microbatches; /* their scales */

    launch.values = (struct qn_values){
        .b_pointers = (const void *const *)l->operand[TWIN_B].pointers,
        .d_pointers = (void *const *)l->operand[TWIN_D].pointers,
        .a_sf = (const float *)launch.scales[QN_ROLE_A],
        .b_sf = (const float *)launch.scales[QN_ROLE_B],
        .a_global = launch.global[QN_ROLE_A],
        .b_global = launch.global[QN_ROLE_B],
        .a_sf_stride = a->stride,
        .b_sf_stride = b->stride,
        .a_sf_group_stride = a->group_stride,
        .b_sf_group_stride = b->group_stride,
        .c = l->c.data,
        .c_pointers = l->c.pointers,
        .c_stride = l->c.stride,
        .c_group_stride = l->c.group_stride,
        .alpha = l->c.alpha,
        .beta = l->c.beta,
        .scalar_step = l->c.step,
        .bias = l->follow.bias,
        .probability = l->follow.probability,
        .saved = l->follow.saved ? workspace : NULL,
        .limit = 3,
        .slope = 5,
        .shift = 7,
        .first_dims = s->first_dims,
        .offsets = s->offsets,
        .sizes_bytes = s->sizes_bytes,
        .ragged = kernel->ragged,
        .a_major = kernel->a.major,
        .b_major = kernel->b.major,
        .groups = s->groups,
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .band = 1 + (int)(s->seed % 16),
        .error = workspace,
        .microbatch_count = l->microbatches,
        .microbatches = microbatches,
        .bases = bases,
    };
    for (int i = 0; i < l->microbatches; i++)
        launch_part(kernel, s, i);
    for (int i = 0; i < QN_PARAM_COUNT; i++)
        launch.params[i] = (const char *)&launch.values + qn_value_offsets[i];
    launch.params[QN_PARAM_microbatch_maps] = launch.microbatch_maps;
}

const char *twin_launch(const struct twin *twin, const struct shape *s,
                        unsigned int error[4])
{
    const struct qn_kernel *kernel = twin->kernel;
    const char *wrong;

    registry = twin->registry;
    memset(workspace, 0, sizeof workspace);
    launch.twin = (struct twin_launch){
        .values = launch.params,
        .ragged = kernel->ragged,
        .epilogue = kernel->epilogue,
        .groups = s->groups,
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .smem = kernel->smem,
        .starts = s->starts,
        .lengths = s->lengths,
        .clusters = s->clusters,
        .seed = s->seed,
    };
    set_geometry(kernel, s);
    launch_parts(kernel, s);
    if (!launch.twin.microbatches)
        set_copies(kernel, &launch.twin);
    set_scales(kernel, s, QN_ROLE_A);
    set_scales(kernel, s, QN_ROLE_B);
    set_operand(kernel, TWIN_A, QN_PARAM_a_pointers, 0);
    set_operand(kernel, TWIN_B, QN_PARAM_b_pointer_map, s->apart);
    set_operand(kernel, TWIN_D, QN_PARAM_d_pointer_map, s->apart);
    set_operand(kernel, TWIN_P, -1, 0);
    set_c(kernel, s);
    set_follow(kernel, s);
    set_values(kernel, s);
    for (int i = 0; i < QN_MAPS; i++)
        set_map(kernel, i);
    wrong = twin->run(&launch.twin);
    memcpy(error, workspace, 4 * sizeof *error);
    if (!*wrong && error[0] && (int)workspace[4] != launch.liar)
        return "a part with valid sizes is reported";
    return wrong;
}
