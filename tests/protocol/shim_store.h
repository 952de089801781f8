/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the shim that moves data out: slabs, filled by lanes and read by
   the copy engine. */
/* A slab that this warp or, where those are shared, its warpgroup owns, or part of it. */
static struct sim_slab *sim_slab_at(unsigned int address)
{
    const unsigned int part = (address - SIM_FIRST_SLAB) / SIM_PART_BYTES;
    const int thread = sim.current % THREADS;
    const int owner = SIM_PARTS == 1 ? thread / 32 - 4 : thread / 128 - 1;

    if (address < SIM_FIRST_SLAB || (address - SIM_FIRST_SLAB) % SIM_PART_BYTES ||
        part >= SIM_SLABS)
        sim_fail("no slab at this address", address, 0);
    if ((int)part / (SIM_PARTS * SLABS) != owner)
        sim_fail("another warp's slab", part, 0);
    return &sim_cta()->slab[part];
}

static void copy_engine_fence(void)
{
    struct sim_thread *t = &sim.thread[sim.current];

    while (t->fills > 0)
        t->filled[--t->fills]->fenced++;
    sim_fence_pairs();
}

/* For swapped operands a slab is 16 columns of one sum next to 16 of the next,
   turned. */
static void sim_label_turned(struct sim_slab *s, const float *sum)
{
    s->label = *sim_label_of(sum);
    s->label.row += (int)(sum - s->label.sum) / 4 * 8;
    if ((sum - s->label.sum) / 4 * 8 >= s->label.across)
        sim_fail("rows are stored that were not multiplied", s->label.row, s->label.across);
    for (int i = 1; i < SLAB_COLUMNS / 16; i++) {
        const struct sim_label *next = sim_label_of(sum + i * (ROWS / 2));

        if (next->row != sim_label_of(sum)->row || next->column != s->label.column + 16 * i ||
            next->b_group != s->label.b_group || next->real != s->label.real)
            sim_fail("a slab is made of sums that are not adjacent", next->column,
                     s->label.column);
    }
}

/* The order of the sums is that of wgmma.cu, or of alternating columns' results; `kept` is 1 where
   they are added to older sums. */
static void sim_fill(struct sim_slab *s, const float *sum, int lane, int kept, int alternating)
{
    struct sim_thread *t = &sim.thread[sim.current];
    const int warp = sim.current % THREADS / 32 % 4;

    if ((s - sim_cta()->slab) % SIM_PARTS != (SIM_PARTS > 1 ? warp : 0))
        sim_fail("a warp fills another one's part of a slab", warp, s - sim_cta()->slab);
    s->version++;
    if (t->fills < SLABS)
        t->filled[t->fills++] = s;
    if (SIM_VALUED)
        s->label.real = t->promoted / SIM_SUMS;
    else if (SIM_SWAPPED && lane == 0)
        sim_label_turned(s, sum);
    else if (lane == 0) {
        s->label = *sim_label_of(sum);
        s->label.row += warp * 16;
        s->label.column += (int)(sum - s->label.sum) / 4 * 8;
    }
    for (int i = 0; i < SLAB_COLUMNS / 2 && SIM_SWAPPED && sim_has_values(); i++)
        s->value[i % 8 / 4 * 8 + lane % 4 * 2 + i % 2][i / 8 * 16 + i / 2 % 2 * 8 + lane / 4] =
            sum[i / 8 * (ROWS / 2) + i % 8];
    for (int i = 0; i < SLAB_COLUMNS / 2 && !SIM_SWAPPED && sim_has_values(); i++) {
        const int row = alternating ? i % 2 * 8 : i / 2 % 2 * 8;
        const int column = alternating ? i / 2 * 4 + lane % 4 : i / 4 * 8 + lane % 4 * 2 + i % 2;
        float *to = &s->value[lane / 4 + row][column];
        *to = kept ? *to + sum[i] : sum[i];
    }
}

static void fill_slab(unsigned int slab, const float *sum, int lane)
{
    sim_fill(sim_slab_at(slab), sum, lane, 0, 0);
}

/* Results of neighbouring columns: rows alternate, and a lane has every fourth column. */
static void fill_results(unsigned int slab, const float *result, int lane)
{
    sim_fill(sim_slab_at(slab), result, lane, 0, 1);
}

static void add_to_slab(unsigned int slab, const float *sum, int lane)
{
    struct sim_slab *s = sim_slab_at(slab);

    if (s->c != SIM_C_IS_THERE)
        sim_fail("a slab is added to before C is there", s->c, lane);
    sim_fill(s, sum, lane, 1, 0);
}

/* The copy engine has read sums: they must be those that belong to the position. In twin.h. */
static void sim_store_read(const struct sim_slab *slab, const struct sim_place *place, int role,
                           int added);

/* Slab by slab, each part of it. */
static void sim_read_slab(const struct sim_store *store)
{
    const struct sim_slab *s = sim_slab_at(store->from);

    for (int i = 0; i < SIM_PARTS && !store->again; i++) {
        struct sim_place p = store->place;

        p.row += 16 * i;
        p.rows = sim_clip(store->place.rows, 16 * i, 16);
        if (s[i].version != store->version)
            sim_fail("a slab is filled again before it is stored", p.row, 0);
        sim_store_read(&s[i], &p, store->role, store->add);
    }
}

static void store_wait(int pending)
{
    struct sim_warp *w = sim_warp();

    sim_pause();
    while (w->stores > pending) {
        sim_read_slab(&w->store[0]);
        memmove(&w->store[0], &w->store[1], sizeof w->store - sizeof w->store[0]);
        w->stores--;
    }
}

#define store_wait_done() store_wait(0)

/* A slab on its way: the copy engine reads it late, at the wait that this thread makes for it. */
static void sim_store(const tensor_map *map, unsigned int from, int rank, int x, int y, int z,
                      int w, int add)
{
    struct sim_warp *warp = sim_warp();
    const struct sim_place place = sim_locate(map, rank, x, y, z, w);
    struct sim_slab *slab = sim_slab_at(from);
    const unsigned int version = slab->version;

    if ((map->role != TWIN_D && map->role != TWIN_P) || map->box[0] != SLAB_COLUMNS ||
        map->box[1] != SLAB_ROWS)
        sim_fail("not a box of D", map->box[0], map->box[1]);
    if ((from - SIM_FIRST_SLAB) % SLAB_BYTES)
        sim_fail("a slab is stored from its middle", from, 0);
    for (int i = 0; i < SIM_PARTS; i++) {
        if (slab[i].version % 32 || slab[i].version != version)
            sim_fail("a slab is stored before all lanes have filled it", slab[i].version, version);
        if (slab[i].fenced != version)
            sim_fail("a slab is stored that the copy engine may not see", version,
                     slab[i].fenced);
    }
    slab->c = SIM_NO_C;
    if (warp->stores > SLABS)
        sim_fail("more stores in flight than slabs", warp->stores, 0);
    warp->store[warp->stores++] = (struct sim_store){ from, version, place, map->role, add,
                                                     sim_misfits() &&
                                                         sim.thread[sim.current].as == 1 };
}

#define store_box_2d(map, from, x, y) sim_store(map, from, 2, x, y, 0, 0, 0)
#define store_box_3d(map, from, x, y, z) sim_store(map, from, 3, x, y, z, 0, 0)
#define store_box_4d(map, from, x, y, z, w) sim_store(map, from, 4, x, y, z, w, 0)
#define add_box_2d(map, from, x, y) sim_store(map, from, 2, x, y, 0, 0, 1)
#define add_box_3d(map, from, x, y, z) sim_store(map, from, 3, x, y, z, 0, 1)
#define add_box_4d(map, from, x, y, z, w) sim_store(map, from, 4, x, y, z, w, 1)
