/* SPDX-License-Identifier: Apache-2.0 */
/*
** The part of the shim that moves data in: tensor maps, copies into the stages, and products.
** Coordinates are turned into addresses as the copy engine does it, modulo 2^64,
** with the maps that the runtime builds; a box's contents then follow from its address. Nothing
** is there but C.
**
** Labels: a stage knows in grains of 8 rows of 128 bytes which rows and columns of which operand
** and group it holds, and how many of them are real and not the zeros outside a map. A sum knows
** over which k, rows and columns it went. A slab knows the sum that filled it.
*/

/* ------------------------------------------------------------- maps */

/* The number of `most` elements from `at` on that are inside `size`. */
static int sim_clip(int64_t size, int64_t at, int most)
{
    return at >= size ? 0 : size - at < most ? (int)(size - at) : most;
}

/* The row that an address of a ragged operand is in; the map does not bound it.
   */
static int sim_ragged_row(const struct twin_operand *o, u64 address, int rows)
{
    const u64 offset = address - o->base;
    const int64_t row = (int64_t)(offset / o->pitch);

    if (offset % o->pitch || row + rows > o->rows || row > o->rows)
        sim_fail("a ragged map reaches outside the buffer", (long long)offset, rows);
    return (int)row;
}

/* The same of merged products: in which part, and where there. */
static int sim_tail_row(int role, const struct twin_operand *o, u64 address, int rows)
{
    for (int i = 0; i < sim.launch->microbatches; i++) {
        const struct twin_part *part = &sim.launch->part[i];
        const u64 offset = address - part->base[role];
        const int64_t row = (int64_t)(offset / o->pitch);

        if (offset % o->pitch == 0 && row + rows <= part->rows)
            return i * TWIN_APART + (int)row;
    }
    if (rows)
        sim_fail("a tail map reaches outside the buffers", (long long)address, rows);
    return 0;
}

/* The group whose matrix begins at an address. */
static int sim_pointer_group(const struct twin_operand *o, u64 address)
{
    for (int g = 0; o->pointers && g < sim.launch->groups; g++)
        if (o->pointers[g] == address)
            return g;
    sim_fail("no matrix is at this address", (long long)address, 0);
    return -1;
}

static int sim_of_scales(const tensor_map *map)
{
    return map->kind == TWIN_SCALES || map->kind == TWIN_SF_TAIL;
}

/* Bytes of the map's operand. */
static int sim_element(const tensor_map *map)
{
    return sim_of_scales(map)            ? 4
           : map->kind == TWIN_NUMBERS ? 2
                                         : sim.launch->operand[map->role].bytes;
}

/* The copy engine's reading of coordinates. */
static struct sim_place sim_locate(const tensor_map *map, int rank, int x, int y, int z, int w)
{
    const struct twin_operand *o = &sim.launch->operand[map->role];
    const u64 outer = map->base + (u64)z * map->strides[2] + (u64)w * map->strides[3];
    struct sim_place p = { -1, y, x, 0, 0 };

    if (map->rank != rank)
        sim_fail("a map of another rank, or none", map->rank, rank);
    if (x < 0 || y < 0 || z < 0 || w < 0)
        sim_fail("a coordinate is negative", x < 0 ? x : y < 0 ? y : z, w);
    if ((rank > 2 && (u64)z >= map->dims[2]) || (rank > 3 && (u64)w >= map->dims[3]))
        sim_fail("an outer coordinate leaves the map", z, w);
    if ((int64_t)x * sim_element(map) % 16)
        sim_fail("a box that does not start at a multiple of 16 bytes", x, y);
    p.columns = sim_clip((int64_t)map->dims[0], x, map->box[0]);
    p.rows = sim_clip((int64_t)map->dims[1], y, map->box[1]);
    if (map->kind == TWIN_RAGGED)
        p.row = sim_ragged_row(o, outer + (u64)y * map->strides[1], p.rows);
    else if (map->kind == TWIN_POINTER)
        p.group = sim_pointer_group(o, outer);
    else if (map->kind == TWIN_TAIL)
        p.row = sim_tail_row(map->role, o, outer + (u64)y * map->strides[1], p.rows);
    else if (rank == 3)
        p.group = z;
    if (!sim_of_scales(map)) { /* two values of 4 bits are a byte to the copy engine */
        p.column *= o->values;
        p.columns *= o->values;
    }
    if (o->k_major)
        p.column += map->part * TWIN_APART;
    else
        p.row += map->part * TWIN_APART;
    return p;
}

/* ----------------------------------------------------------- copies */

static struct sim_grain *sim_grain_at(int cta, unsigned int address)
{
    if (address < SIM_STAGES || (address - SIM_STAGES) / SIM_GRAIN >= SIM_GRAINS)
        sim_fail("no stage at this address", address, 0);
    return &sim.cta[cta].grain[(address - SIM_STAGES) / SIM_GRAIN];
}

static float twin_c(int group, int row, int column); /* in twin.h */
static struct sim_packed sim_packed_at(int cta, unsigned int address);
static int sim_is_packed(unsigned int address);
static void sim_queue_packed(const struct sim_copy *copy);

/* C comes into a slab as it is in memory, zeros outside. */
static void sim_land_c(const struct sim_copy *c)
{
    struct sim_slab *s = &sim.cta[c->cta].slab[(c->to - SIM_FIRST_SLAB) / SLAB_BYTES];
    const struct sim_place *p = &c->place;

    for (int i = 0; i < 16; i++)
        for (int j = 0; j < SLAB_COLUMNS; j++)
            s->value[i][j] = i < p->rows && j < p->columns
                                 ? twin_c(p->group, p->row + i, p->column + j) : 0;
    s->c = SIM_C_IS_THERE;
}

static struct sim_grain *sim_values_at(int cta, unsigned int address)
{
    const unsigned int at = address - SIM_FIRST_NUMBER;

    if (address < SIM_FIRST_NUMBER || at / SIM_GRAIN >= SIM_VALUES)
        sim_fail("no stage of values at this address", address, at);
    return &sim.cta[cta].number[at / SIM_GRAIN];
}

static void sim_land_operand(const struct sim_copy *c)
{
    struct sim_grain *grain = c->values ? sim_values_at(c->cta, c->to)
                              : SIM_PACKED_BYTES ? sim_packed_at(c->cta, c->to).grain
                                                 : sim_grain_at(c->cta, c->to);

    for (int i = 0; i < c->rows; i += 8, grain++) {
        *grain = (struct sim_grain){ 1, c->role, c->place, 0, 0 };
        grain->place.row += i;
        grain->place.rows = sim_clip(c->place.rows, i, 8);
    }
}

/* The codes or scales that another CTA has made, as they are now. */
static void sim_land_given(const struct sim_copy *c)
{
    if (c->to >= SIM_FIRST_SLAB)
        for (int i = 0; i < c->bytes; i += 4)
            *sim_scale_at(c->cta, c->to + i) = *sim_scale_at(c->source, c->to + i);
    else
        for (int i = 0; i < c->bytes; i += SIM_GRAIN)
            *sim_grain_at(c->cta, c->to + i) = *sim_grain_at(c->source, c->to + i);
}

static void sim_land(const struct sim_copy *c)
{
    struct sim_barrier *barrier = sim_barrier_of(c->cta, c->barrier);

    if (c->source >= 0)
        sim_land_given(c);
    else if (c->scales)
        sim_land_scales(c);
    else if (c->role == TWIN_D)
        sim_land_c(c);
    else
        sim_land_operand(c);
    barrier->bytes -= c->bytes;
    sim_barrier_settle(barrier);
}

/* Let a copy land, any one: nothing orders them. */
static void sim_deliver(void)
{
    const int i = (int)sim_draw((unsigned int)sim.copies);
    const struct sim_copy c = sim.copy[i];

    sim.copy[i] = sim.copy[--sim.copies];
    sim_land(&c);
}

static struct sim_slab *sim_slab_at(unsigned int address);

/* C may come into a slab of the warp's own once no thread fills it and no store reads it. */
static void sim_queue_c(const struct sim_copy *c)
{
    struct sim_slab *s = sim_slab_at(c->to);
    const struct sim_warp *w = sim_warp();

    if (sim.launch->epilogue != QN_ADD || c->bytes != SLAB_BYTES)
        sim_fail("a box of D is loaded that is no slab", c->rows, c->bytes);
    if (s->c != SIM_NO_C || s->version % 32)
        sim_fail("a slab is fetched into while it is in use", s->c, s->version % 32);
    for (int i = 0; i < w->stores; i++)
        if (w->store[i].from == c->to)
            sim_fail("a slab is fetched into before it is stored", w->store[i].place.row, 0);
    s->c = SIM_C_ON_ITS_WAY;
}

/* From now until it lands no thread may read the bytes it overwrites. */
static void sim_queue_operand(const struct sim_copy *copy)
{
    const struct sim_copy c = *copy;
    const unsigned int in_stage = (c.to - SIM_STAGES) % STAGE_BYTES;

    if (SIM_PACKED_BYTES) {
        sim_queue_packed(copy);
        return;
    }
    if (c.values) {
        if (c.to % SIM_GRAIN || c.bytes != c.rows * 128 || 256 * c.rows != SIM_VALUE_BYTES)
            sim_fail("a box that is not half a stage of values", c.to, c.rows);
        for (int i = 0; i < c.rows / 8; i++)
            sim_values_at(c.cta, c.to + i * SIM_GRAIN)->valid = 0;
        return;
    }
    if (c.to % SIM_GRAIN || c.rows % 8 || c.bytes != c.rows * 128)
        sim_fail("a box that does not fill whole rows of a stage", c.to, c.rows);
    if (in_stage + c.bytes > STAGE_BYTES)
        sim_fail("a box in no stage", c.to, c.role);
    sim_grain_at(c.cta, c.to + c.bytes - SIM_GRAIN);
    for (int i = 0; i < c.rows / 8; i++)
        sim_grain_at(c.cta, c.to)[i].valid = 0;
}

static void sim_copy_queue(struct sim_copy c)
{
    if (sim.copies == SIM_COPIES)
        sim_fail("more copies in flight than stages", sim.copies, 0);
    if (c.scales)
        sim_queue_scales(&c);
    else if (c.role == TWIN_D)
        sim_queue_c(&c);
    else
        sim_queue_operand(&c);
    sim.copy[sim.copies++] = c;
    sim.moved++;
}

/* A box goes to the same place in each of `ctas`, and its bytes count on the barrier there. */
static void sim_load(unsigned int to, const tensor_map *map, unsigned int barrier, int rank, int x,
                     int y, int z, int w, unsigned int ctas)
{
    const int scales = sim_of_scales(map);
    struct sim_copy c = {
        .role = map->role, .rows = map->box[1], .to = to, .barrier = barrier,
        .bytes = map->box[0] * map->box[1] * sim_element(map),
        .values = map->kind == TWIN_NUMBERS, .source = -1,
        .place = sim_locate(map, rank, x, y, z, w), .scales = scales ? map : NULL,
        .address = map->base + (u64)y * map->strides[1] + (u64)z * map->strides[2] +
                   (u64)w * map->strides[3],
    };

    if (!ctas || ctas >> CTAS)
        sim_fail("no such CTA in the cluster", ctas, CTAS);
    for (c.cta = 0; c.cta < CTAS; c.cta++)
        if (ctas >> c.cta & 1)
            sim_copy_queue(c);
}

/* Codes and scales are there, and fenced, when a CTA gives them; the bytes under them are invalid
   from now on. */
static void copy_box_to(unsigned int from, unsigned int bytes, unsigned int barrier,
                        unsigned int rank)
{
    const struct sim_copy c = { .cta = (int)rank, .role = TWIN_A, .bytes = (int)bytes, .to = from,
                                .barrier = barrier, .source = sim.current / THREADS };
    const int codes = from < SIM_FIRST_SLAB;

    if (rank >= CTAS || c.cta == c.source || sim.copies == SIM_COPIES || from % 16 || bytes % 16)
        sim_fail("a gift to no other CTA, or of no whole 16 bytes", rank, bytes);
    for (unsigned int i = 0; i < bytes; i += codes ? SIM_GRAIN : 4) {
        if (codes ? !sim_grain_at(c.source, from + i)->valid
                  : !sim_scale_at(c.source, from + i)->valid)
            sim_fail("codes that were not made are given to another CTA", from, i);
        if (codes)
            sim_grain_at(c.cta, from + i)->valid = 0;
        else
            sim_scale_at(c.cta, from + i)->valid = 0;
    }
    sim.copy[sim.copies++] = c;
    sim.moved++;
}

static unsigned int sim_self(void) { return 1u << sim.current / THREADS; }

#define load_box_2d(to, map, full, x, y) sim_load(to, map, full, 2, x, y, 0, 0, sim_self())
#define load_box_3d(to, map, full, x, y, z) sim_load(to, map, full, 3, x, y, z, 0, sim_self())
#define load_box_4d(to, map, full, x, y, z, w) sim_load(to, map, full, 4, x, y, z, w, sim_self())
#define load_box_2d_multicast(to, map, full, x, y, ctas) \
    sim_load(to, map, full, 2, x, y, 0, 0, ctas)
#define load_box_3d_multicast(to, map, full, x, y, z, ctas) \
    sim_load(to, map, full, 3, x, y, z, 0, ctas)
#define load_box_4d_multicast(to, map, full, x, y, z, w, ctas) \
    sim_load(to, map, full, 4, x, y, z, w, ctas)

/* --------------------------------------------------------- products */

static void mma_begin(void) {}

static u64 mma_operand(unsigned int address) { return address >> 4; }

/* The first lane issues for the warp; the others must issue the same. */
static void sim_issue(void *sum, u64 a, u64 b, int accumulate, const struct sim_part *part,
                      int columns)
{
    struct sim_thread *t = &sim.thread[sim.current];
    struct sim_warp *w = sim_warp();
    struct sim_batch *batch = &w->batch[w->batches];

    if (SIM_PROMOTE && !accumulate)
        sim_spoil(sum);
    t->issued = t->issued + (u64)columns * 8192 + a * 4096 + b * 2 + (accumulate != 0);
    t->issued *= 6364136223846793005u;
    if (sim.current % 32)
        return;
    if (w->batches == SIM_BATCHES || batch->count == SIM_PRODUCTS)
        sim_fail("too many products in flight", w->batches, 0);
    batch->product[batch->count++] =
        (struct sim_product){ sum, (unsigned int)a << 4, (unsigned int)b << 4, accumulate,
                              part ? *part : (struct sim_part){ 0, 0, 0, 0 }, columns };
}

static void sim_mma(void *sum, u64 a, u64 b, int accumulate)
{
    sim_issue(sum, a, b, accumulate, NULL, MMA_N);
}

static void mma_commit(void)
{
    sim.thread[sim.current].in_flight++;
    sim.thread[sim.current].products = 0;
    if (sim.current % 32 == 0)
        sim_warp()->batches++;
}

/* A grain must hold the values of its position in the operand. */
static void sim_expect(const struct sim_grain *g, int role, int row, int column, int group)
{
    if (!g->valid || g->role != role)
        sim_fail("a stage is read before it is filled", g->valid, role);
    if (g->place.row != row || g->place.column != column || g->place.group != group)
        sim_fail("a tile is put together wrongly", g->place.row - row, g->place.column - column);
}

/* k-major: a grain is 8 rows of the operand, with all of the stage's k. */
static struct sim_part sim_read_k_major(const struct sim_grain *g, int role, int step, int rows)
{
    const struct sim_place p = g->place;

    for (int i = 0; i < rows / 8; i++) {
        const int apart = SIM_HALVES && role == TWIN_B && i >= rows / 16
                              ? sim.launch->n / 2 - rows / 2 : 0;

        sim_expect(&g[i], role, p.row + 8 * i + apart, p.column, p.group);
        if (g[i].place.columns != p.columns)
            sim_fail("a tile of uneven k", p.columns, g[i].place.columns);
    }
    return (struct sim_part){ p.row, p.column + MMA_K * step,
                              sim_clip(p.columns, MMA_K * step, MMA_K), p.group };
}

/* mn-major: a grain is 8 steps of k, with 64 rows of the operand. */
static struct sim_part sim_read_mn_major(const struct sim_grain *g, int role, int rows)
{
    const struct sim_place p = g->place;
    const int chunk = TILE_K * 128 / SIM_GRAIN;

    for (int i = 0; i < rows / 64; i++)
        for (int half = 0; half < 2; half++) {
            const struct sim_grain *at = &g[i * chunk + half];
            sim_expect(at, role, p.row + 8 * half, p.column + 64 * i, p.group);
            if (at->place.rows != g[half].place.rows)
                sim_fail("a tile of uneven k", g[half].place.rows, at->place.rows);
        }
    return (struct sim_part){ p.column, p.row, p.rows + g[1].place.rows, p.group };
}

static struct sim_part sim_read(int role, unsigned int address, int rows)
{
    const int cta = sim.current / THREADS;
    const struct sim_grain *g = sim_is_packed(address) ? sim_packed_at(cta, address).grain
                                                       : sim_grain_at(cta, address);

    if (!sim.launch->operand[role].k_major)
        return sim_read_mn_major(g, role, rows);
    return sim_read_k_major(g, role, (int)(address % 128) / (role == TWIN_A ? A_STEP : B_STEP),
                            rows);
}

/* The first lane's record of a sum. */
static struct sim_label *sim_label_of(const float *sum)
{
    struct sim_warp *w = sim_warp();

    for (int i = 0; i < w->labels; i++)
        if (sum >= w->label[i].sum && sum < w->label[i].sum + MMA_N / 2)
            return &w->label[i];
    if (w->labels == SIM_SUMS)
        sim_fail("more sums than the tile has", w->labels, 0);
    w->label[w->labels].sum = sum;
    return &w->label[w->labels++];
}

/* The group whose tokens of one part begin at k, which is numbered as above; its length. */
static int sim_group_at(int k, int *length)
{
    const struct twin_part *part = &sim.launch->part[k / TWIN_APART];

    for (int g = 0; g < sim.launch->groups; g++)
        if (part->lengths[g] && part->starts[g] == k % TWIN_APART) {
            *length = part->lengths[g];
            return g;
        }
    sim_fail("no group begins at this k", k / TWIN_APART, k % TWIN_APART);
    return 0;
}

/* The sum goes on in another part: it has been over all of its group's tokens in the one before,
   and the group has none in those between. */
static void sim_go_on(struct sim_label *l, int k)
{
    int length, next, group, from = l->k / TWIN_APART + 1;

    if (sim.launch->lengths) {
        group = sim_group_at(l->k, &length);
        if (l->real != length)
            sim_fail("a part's k is left before its end", l->real, length);
        if (sim_group_at(k, &next) != group)
            sim_fail("a sum goes on with another group", k % TWIN_APART, group);
        for (; from < k / TWIN_APART; from++)
            if (sim.launch->part[from].lengths[group])
                sim_fail("a part is left out", from, group);
        if (from != k / TWIN_APART)
            sim_fail("parts out of order", from, k / TWIN_APART);
    }
    l->before += l->real;
    l->k = k;
    l->steps = l->real = 0;
}

/* Add a product to its sum's label. A and B must end at the same k: zeros times
   what is past the end of a group would let a NaN through. */
static void sim_multiply(const struct sim_product *p)
{
    /* the operand in registers, if any */
    const int beside = SIM_SWAPPED ? TWIN_A : TWIN_B;
    const struct sim_part rows = p->a ? sim_read(TWIN_A, p->a, 64) : p->from_registers;
    const struct sim_part columns = sim_read(beside, p->b, p->columns);
    const struct sim_part a = SIM_SWAPPED ? columns : rows, b = SIM_SWAPPED ? rows : columns;
    struct sim_label *l = sim_label_of(p->sum);

    if (p->a && !sim_is_packed(p->a) && !sim_is_packed(p->b) &&
        (p->a - SIM_STAGES) / STAGE_BYTES != (p->b - SIM_STAGES) / STAGE_BYTES)
        sim_fail("operands of different stages", p->a, p->b);
    if (a.k != b.k || a.real != b.real)
        sim_fail("A and B of different k", a.k - b.k, a.real - b.real);
    if (!p->accumulate)
        *l = (struct sim_label){ .sum = l->sum, .k = a.k, .row = a.mn, .a_group = a.group,
                                 .column = b.mn, .b_group = b.group, .first = a.k,
                                 .across = p->columns };
    if (sim.launch->part && a.k / TWIN_APART != l->k / TWIN_APART)
        sim_go_on(l, a.k);
    if (a.k != l->k + l->steps)
        sim_fail("k out of step", a.k, l->k + l->steps);
    if (l->across != p->columns)
        sim_fail("a sum of another number of columns", l->across, p->columns);
    if (l->row != a.mn || l->a_group != a.group || l->column != b.mn || l->b_group != b.group)
        sim_fail("one sum over two tiles", a.mn, b.mn);
    if (a.real && l->real != l->steps)
        sim_fail("a sum goes on after the end of k", l->real, l->steps);
    l->real += a.real;
    l->steps += MMA_K;
}

static void mma_wait(int pending)
{
    struct sim_thread *t = &sim.thread[sim.current];
    struct sim_warp *w = sim_warp();
    unsigned int turn;
    const uint64_t *issued;

    sim_pause(); /* let early actions of others happen first */
    turn = w->generation & 1;
    if (sim.current % 32 == 0) {
        while (w->batches > pending) {
            for (int i = 0; i < w->batch[0].count; i++)
                sim_multiply(&w->batch[0].product[i]);
            memmove(&w->batch[0], &w->batch[1], sizeof w->batch - sizeof w->batch[0]);
            w->batch[SIM_BATCHES - 1].count = 0;
            w->batches--;
        }
        memcpy(w->made[turn], w->label, sizeof w->label);
    }
    /* .sync.aligned: the warp goes on as one */
    issued = sim_gather(t->issued);
    if (issued[0] != issued[sim.current % 32])
        sim_fail("lanes of a warp multiply different things", sim.current % 32, 0);
    memcpy(t->made, w->made[turn], sizeof t->made);
    t->in_flight = t->in_flight < pending ? t->in_flight : pending;
}

/* A whole sum is 1, so that the epilogue's addends can be told, and 0 over no k. Sums that
   move on have values of their own. */
static float sim_made(const struct sim_thread *t, int i)
{
    return SIM_VALUED ? sim_value_of(&t->made[i / (MMA_N / 2)], i % (MMA_N / 2))
                      : t->made[0].real + t->made[0].before > 0;
}

static void sim_finish(void *sum, int count, int integers)
{
    struct sim_thread *t = &sim.thread[sim.current];
    const struct sim_label *l = t->made;

    if (t->in_flight)
        sim_fail("a sum is used while it is made", t->in_flight, 0);
    if (SIM_PROMOTE && l->steps != SIM_PROMOTE)
        sim_fail("a part over another number of steps", l->k, l->steps);
    for (int i = 0; i < count; i += MMA_N / 2)
        t->promoted += l[i / (MMA_N / 2)].real;
    for (int i = 0; i < count; i++)
        if (integers)
            ((int *)sum)[i] = (int)sim_made(t, i);
        else
            ((float *)sum)[i] = sim_made(t, i);
}
#define mma_finish(sum, count) sim_finish(sum, count, _Generic((sum), int *: 1, default: 0))

static float __int2float_rn(int value) { return (float)value; }
static float __uint_as_float(unsigned int word)
{
    float f;
    memcpy(&f, &word, sizeof f);
    return f;
}
static unsigned int __float_as_uint(float f)
{
    unsigned int word;
    memcpy(&word, &f, sizeof word);
    return word;
}
static float __fmaf_rn(float a, float b, float c) { return a * b + c; } /* exact here */
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
