/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles that are multiplied as f16 first. Which of them do not fit a hash of
   the tile says, so that all of its warps see the same, and the stores of
   their first round are not checked; others must be stored once. Scales are
   relative to another value for each tile and operand. */
static unsigned int sim_tile_hash(void)
{
    const unsigned int *tile = sim.thread[sim.current].tile; /* group, start, length, row */

    return (tile[0] * 7919 + tile[3]) * 2654435761u >> 16;
}

static int sim_misfits(void)
{
    return SIM_EITHER && sim_tile_hash() % 4 == 0;
}

static __attribute__((unused)) unsigned int __reduce_max_sync(unsigned int mask,
                                                              unsigned int value)
{
    const uint64_t *all = sim_gather(value);
    uint64_t most = 0;

    (void)mask;
    for (int i = 0; i < 32; i++)
        most = all[i] > most ? all[i] : most;
    return (unsigned int)most;
}

static __attribute__((unused)) int __any_sync(unsigned int mask, int set)
{
    return __ballot_sync(mask, set) != 0;
}

/* The reference of A's or B's scales. */
static unsigned int sim_base(int role)
{
    return 1 + sim_tile_hash() % 100 + (role == TWIN_A ? 100 : 0);
}

/* For the whole launch, if a launch before has checked. */
static unsigned int low_f16(unsigned int most) { return most; }

static unsigned int sampled_f16(unsigned int most)
{
    if (most > 255)
        sim_fail("not the largest of codes", most, 0);
    return sim_base(sim.current % THREADS / 128 == 3 ? TWIN_A : TWIN_B);
}

static float unit_f16(unsigned int low_a, unsigned int low_b)
{
    if (low_a != (SIM_EITHER ? sim_base(TWIN_A) : TWIN_BASE_A) ||
        low_b != (SIM_EITHER ? sim_base(TWIN_B) : TWIN_BASE_B))
        sim_fail("bases that are not these operands'", low_a, low_b);
    return 1;
}

static unsigned int twice_f16(unsigned int codes, unsigned int low)
{
    const int of_a = sim.thread[sim.current].hand[0].role == TWIN_A;

    if (low != (of_a ? TWIN_BASE_A : TWIN_BASE_B) * 0x10001)
        sim_fail("another operand's base", low, of_a);
    return codes & 255;
}

/* Factors are the scales themselves, and values that do not fit are far from the others. */
static unsigned int near_f16(unsigned int low) { return low * 0x01010101u; }
static unsigned int low_of_near(unsigned int near) { return near & 255; }
static unsigned int beyond_f16(unsigned int above)
{
    (void)above;
    return SIM_EITHER && sim_tile_hash() % 4 < 2;
}

static unsigned int four_f16(unsigned int above)
{
    const int of_a = sim.current % THREADS / 128 == 3;

    if (sim_misfits() && !of_a) /* of A not where no row is needed */
        sim_fail("scales that are far are taken for near", above, of_a);
    return above + near_f16(sim_base(of_a ? TWIN_A : TWIN_B));
}

static unsigned int far_f16(unsigned int codes, unsigned int low, unsigned int *over)
{
    const int of_a = sim.current % THREADS / 128 == 3;

    if (low != sim_base(of_a ? TWIN_A : TWIN_B))
        sim_fail("another tile's or operand's base", low, of_a);
    *over |= (unsigned int)sim_misfits();
    return codes;
}

/* Bytes and words next to the slots. */
static unsigned int *sim_marks(unsigned int address)
{
    const unsigned int slots = SIM_FIRST_BARRIER + 16 * SIM_BARRIERS_MADE;
    const unsigned int i = (address - SIM_FIRST_BARRIER) / 4;

    if (address < slots + QUEUE * SLOT_BYTES || i >= SIM_WORDS)
        sim_fail("neither a mark nor a base at this address", address, i);
    return &sim_cta()->word[i];
}

static __attribute__((unused)) void store_shared_byte(unsigned int to, unsigned int byte,
                                                      unsigned int wanted)
{
    unsigned int *word = sim_marks(to);

    if (!wanted)
        return;

    sim_pause();
    *word = (*word & ~(255u << to % 4 * 8)) | byte << to % 4 * 8;
    sim.moved++;
}

static __attribute__((unused)) void store_shared_word(unsigned int to, unsigned int word)
{
    *sim_marks(to) = word;
}
