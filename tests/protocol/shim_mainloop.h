/* SPDX-License-Identifier: Apache-2.0 */
/* The twin of templates/sm90/quantize_rows.cu for the host: which values become
   which codes and scales. A row's codes are in its part of a stage once both
   of its threads have fenced them. */

static float twin_scale_of(int role, int part, int group, int row, int k); /* in twin.h */

/* The block's scale next to the stage, as the tile that was announced has it.
   */
static void sim_put_scale(unsigned int sf, const struct sim_place *p, int row)
{
    const unsigned int *tile = sim.thread[sim.current].tile; /* group, start, length */
    const int inside = p->row + row % 8 - (int)tile[1];
    float scale = __builtin_nanf(""); /* of other groups' rows */

    if (inside >= 0 && inside < (int)tile[2])
        scale = twin_scale_of(TWIN_A, 0, (int)tile[0], inside, p->column);
    *sim_scale_at(sim.current / THREADS, sf + row * 4) = (struct sim_scale){ scale, 1 };
}

/* Half a row's codes, four chunks of it, into the stage. */
static void sim_put_codes(unsigned int to, struct sim_place p, int row, int half)
{
    struct sim_thread *t = &sim.thread[sim.current];
    struct sim_grain *g = sim_grain_at(sim.current / THREADS, to + row * 128);
    const uint64_t bits = 15ull << (row % 8 * 8 + 4 * half);

    if (g->filled == ~0ull || g->role != TWIN_A)
        *g = (struct sim_grain){ .role = TWIN_A };
    g->valid = 0;
    g->filled |= bits;
    g->place = p;
    if (t->touches == SIM_TOUCHES)
        sim_fail("more rows than a thread has, without a fence", t->touches, 0);
    t->touch[t->touches++] = (struct sim_touch){ g, bits };
}

/* The values of one thread's half of a row. */
static const struct sim_grain *sim_values(unsigned int values, int row, int half)
{
    const struct sim_grain *g;

    if (sim_draw(8) == 0)
        sim_pause();
    g = sim_values_at(sim.current / THREADS,
                      values + half * (SIM_VALUE_BYTES / 2) + row / 8 * SIM_GRAIN);
    if (!g->valid)
        sim_fail("values are read before they are there, or when they are gone", row, half);
    return g;
}

static void units_most(unsigned int most[MOST], unsigned int values, int unit, int lane)
{
    for (; unit < UNITS; unit += WARPS)
        sim_values(values, unit * UNIT + lane / 2, lane % 2);
    (void)most;
}

static void sim_quantize(unsigned int values, unsigned int to, unsigned int sf, int row, int half)
{
    struct sim_place p = sim_values(values, row, half)->place;

    if (sim.launch->lengths && p.columns != sim_clip(sim.launch->k, p.column, TILE_K / 2))
        sim_fail("a box of other values", p.column, p.columns);
    p.column -= half * TILE_K / 2;
    if (p.column % TILE_K)
        sim_fail("a block that begins inside another", p.column, half);
    p.columns = sim_clip(sim.launch->k, p.column, TILE_K);
    if (half == 0)
        sim_put_scale(sf, &p, row);
    sim_put_codes(to, p, row, half);
    if (sim_draw(8) == 0)
        sim_pause();
}

static void units_make(unsigned int values, unsigned int to, unsigned int sf, int unit,
                       const unsigned int most[MOST], int rows, int lane)
{
    (void)most;
    (void)rows; /* others may be made or not */
    for (; unit < UNITS; unit += WARPS)
        sim_quantize(values, to, sf, unit * UNIT + lane / 2, lane % 2);
}
