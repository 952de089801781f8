/* SPDX-License-Identifier: Apache-2.0 */
/* Four words at a time in shared memory: slots of the tile queue, B's scales of the steps ahead,
   codes of packed stages. */
static int sim_is_packed(unsigned int address);
static void sim_load_codes(unsigned int from, unsigned int *word, int words);
static void sim_store_pairs(unsigned int to, const unsigned int word[4]);

/* The address of four of B's scales, or null. */
static unsigned int *sim_prefetched(unsigned int address)
{
    const unsigned int i = (address - SIM_FIRST_AHEAD) / 4;
    return address >= SIM_FIRST_AHEAD && i < SIM_AHEAD_BYTES / 4 ? &sim_cta()->ahead[i] : NULL;
}

/* Four words of a slot, which no barrier overlaps. */
static unsigned int *sim_words(unsigned int address)
{
    const unsigned int first = SIM_FIRST_BARRIER;
    const unsigned int i = (address - first) / 4;

    if (address < first || address % 16 || i + 4 > SIM_WORDS ||
        (int)address + 16 > SIM_SHARED + sim.launch->smem)
        sim_fail("no slot at this address", address, i);
    for (unsigned int j = i / 2; j < i / 2 + 2; j++)
        if (j < SIM_BARRIERS && sim_cta()->barrier[j].count)
            sim_fail("a slot where a barrier is", address, j);
    return &sim_cta()->word[i];
}

static void store_shared_x4(unsigned int to, unsigned int r0, unsigned int r1, unsigned int r2,
                            unsigned int r3)
{
    unsigned int *word;

    if (SIM_PACKED_BYTES && to >= SIM_STAGES && to < SIM_FIRST_SLAB) {
        sim_store_pairs(to, (unsigned int[]){ r0, r1, r2, r3 });
        return;
    }
    word = sim_prefetched(to) ? sim_prefetched(to) : sim_words(to);
    word[0] = r0;
    word[1] = r1;
    word[2] = r2;
    word[3] = r3;
    sim_pause(); /* a warp that reads without waiting sees half of a slot */
}

static void load_shared_x4(unsigned int from, unsigned int word[4])
{
    if (sim_is_packed(from)) {
        sim_load_codes(from, word, 4);
        return;
    }
    if (sim_prefetched(from)) {
        memcpy(word, sim_prefetched(from), 16);
        sim_pause();
        return;
    }
    memcpy(word, sim_words(from), 16);
    if ((from - SIM_FIRST_BARRIER - 16 * SIM_BARRIERS_MADE) % SLOT_BYTES == 0) {
        memcpy(sim.thread[sim.current].tile, word, 16);
        sim.thread[sim.current].noted = 1;
    } else if ((from - SIM_FIRST_BARRIER - 16 * SIM_BARRIERS_MADE) % SLOT_BYTES == 16) {
        sim.thread[sim.current].as = word[2];
    }
    sim.thread[sim.current].promoted = 0;
    sim_pause();
}
