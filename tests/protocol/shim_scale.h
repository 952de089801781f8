/* SPDX-License-Identifier: Apache-2.0 */
/*
** Scales, and sums that move on: those of two-level accumulation, and integers that become floats.
**
** A scale is a number, at a real address in memory and next to a stage. A part,
** which is the tensor cores' sum over one block of k, has a value by its row,
** its column and its block, all whole numbers: only the right parts with the
** right factors, each once, add up to the value expected. Integers are one
** part, over all of k.
*/

/* ------------------------------------------------- values of sums */

/* Do sums have values that tell more than their labels do? */
static int sim_has_values(void)
{
    return SIM_VALUED || sim.launch->epilogue != QN_STORE || sim.launch->scaling[TWIN_A].rows;
}

/* An operand's share in the value of a part whose first step and number of real ones are given. */
static float sim_share(int role, int group, int row, int k, int real)
{
    return (float)(1 + (role + 5 * (group + 1) + 3 * row + 2 * (k / TILE_K) + real) % 7);
}

/* The i-th element that this thread holds of such a sum, in the order of wgmma.cu. */
static float sim_value_of(const struct sim_label *l, int i)
{
    const int thread = sim.current % 128;
    const int row = l->row + thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    const int at = i / 4 * 8 + thread % 4 * 2 + i % 2, half = MMA_N / 2;
    const int column =
        l->column + (SIM_HALVES && at >= half ? at - half + sim.launch->n / 2 : at);

    if (l->real == 0)
        return 0;
    return sim_share(TWIN_A, l->a_group, row, l->k, l->real) *
           sim_share(TWIN_B, l->b_group, column, l->k, l->real);
}

/* From when a product is issued until it is waited for, its sums are nothing. */
static void sim_spoil(float *part)
{
    for (int i = 0; i < MMA_N / 2; i++)
        part[i] = __builtin_nanf("");
}

/* ------------------------------------------- scales next to a stage */

static struct sim_scale *sim_scale_at(int cta, unsigned int address)
{
    const unsigned int i = (address - SIM_FIRST_SCALE) / 4;

    if (address < SIM_FIRST_SCALE || address % 4 || i >= SIM_SCALES)
        sim_fail("no scale at this address", address, i);
    return &sim.cta[cta].scale[i];
}

/* From now until they land no thread may read the bytes they overwrite. */
static void sim_queue_scales(const struct sim_copy *c)
{
    const unsigned int at = c->to - SIM_FIRST_SCALE;

    if (c->to % 128)
        sim_fail("a box does not end up at a multiple of 128 bytes", c->to, c->role);
    sim_scale_at(c->cta, c->to);
    sim_scale_at(c->cta, c->to + (unsigned int)c->bytes - 4);
    if (at % SIM_SF_BYTES + c->bytes > SIM_SF_BYTES)
        sim_fail("scales of two stages overlap", at, c->bytes);
    for (int i = 0; i < c->bytes / 4; i++)
        sim_scale_at(c->cta, c->to)[i].valid = 0;
}

/* As they are in memory, zeros outside the map. */
static void sim_land_scales(const struct sim_copy *c)
{
    const struct sim_place *p = &c->place;
    const float *row = (const float *)c->address;
    struct sim_scale *to = sim_scale_at(c->cta, c->to);

    if (c->rows != 1)
        sim_fail("a box of scales of more than one block", c->rows, 0);
    for (int i = 0; i < c->bytes / 4; i++)
        to[i] = (struct sim_scale){
            p->rows && i < p->columns ? row[p->column + i] : 0, 1
        };
}

/* Read late, now and then: that is when an early release shows. */
static float load_shared(unsigned int from)
{
    if (sim_draw(8) == 0)
        sim_pause();
    if (!sim_scale_at(sim.current / THREADS, from)->valid)
        sim_fail("a scale is read before it is there, or when it is gone", from, 0);
    return sim_scale_at(sim.current / THREADS, from)->value;
}

static void load_shared_x2(unsigned int from, float *lo, float *hi)
{
    if (from % 8)
        sim_fail("two words at no multiple of their size", from, 0);
    *lo = load_shared(from);
    *hi = load_shared(from + 4);
}

/* ------------------------------------------------ scales in memory */

static float __ldg(const float *from) { return *from; }
static void prefetch(const void *address) { (void)address; }

/* ------------------------------------------------------ activations */

/* Whole numbers stay whole, and each operand tells. */
static float sim_activate(float a, float b) { return a + 2 * b; }
#define swiglu sim_activate
#define situ sim_activate
#define geglu sim_activate
#define reglu sim_activate
#define squared_relu sim_activate
#define clamped_swiglu(a, b, limit, slope, shift) \
    sim_activate(a, b + (limit != 3 || slope != 5 || shift != 7))
#define mul_rn __fmul_rn
