/* SPDX-License-Identifier: Apache-2.0 */
/*
** Codes and scales of blocks on their way through the warps that dequantize.
**
** A word of codes is a mark made of the operand, the row and the steps of k that it holds; a
** dequantized value is a mark of that one, its position in the word and the scale. So the contents
** of a stage of the ring tell whether each pair is there, with its own scale, where the tensor
** cores expect it. The arithmetic is tested by tests/numbers.
**
** A scale is a byte at a real address in memory. Words of them are copied into slots, each of which
** belongs to one thread, and land when that thread waits for them: as late as they may.
*/
enum {
    SIM_FIRST_PACKED = SIM_FIRST_SCALE,
    SIM_FIRST_SLOT = SIM_FIRST_PACKED + SIM_PACKED_BYTES
};

/* ---------------------------------------------------------- marks */

static unsigned int sim_mix(unsigned int x, unsigned int y)
{
    x = (x ^ y * 0x9e3779b9u) * 0x85ebca6bu;
    return x ^ x >> 13;
}

/* A word of codes from a row and a step of k of an operand's buffer, and its group, if any. */
static unsigned int sim_codes(int role, int group, int row, int k)
{
    const unsigned int mark = sim_mix(sim_mix((unsigned int)(2 * group + role), (unsigned int)row),
                                      (unsigned int)k);
    return mark ? mark : 1; /* zero: codes that are zeros */
}

static unsigned int sim_pair(unsigned int codes, int i, int scale)
{
    return codes ? sim_mix(codes, (unsigned int)(256 * i + scale)) : 0;
}

static void sim_dequantize(unsigned int *pair, int pairs, unsigned int codes, float factor, int nan)
{
    if (!codes && (int)factor == nan)
        sim_fail("zeros times a scale that may be unwritten", nan, 0);
    for (int i = 0; i < pairs; i++)
        pair[i] = sim_pair(codes, i, (int)factor);
}

/* The i-th of several words that change their order together: a mark made of all of them. */
static unsigned int sim_mixed(const unsigned int *word, int words, int i)
{
    unsigned int all = 0, any = 0;

    for (int j = 0; j < words; j++) {
        all = sim_mix(all, word[j]);
        any |= word[j];
    }
    return any ? sim_mix(all, (unsigned int)i) : 0;
}

static void sim_apart(unsigned int *word, int words)
{
    unsigned int before[4];

    memcpy(before, word, (size_t)words * sizeof *word);
    for (int i = 0; i < words; i++)
        word[i] = sim_mixed(before, words, i);
}

static void codes_apart(unsigned int word[2]) { sim_apart(word, 2); }
static void pairs_apart(unsigned int pair[4]) { sim_apart(pair, 4); }

/* The pieces of templates/dequantize; the type of the scales says which code is NaN. */
static float factor_e8m0(unsigned int code) { return (float)code; }
static float factor_e4m3(unsigned int code) { return (float)code; }
static unsigned int twice_e4m3_apart(unsigned int code) { return code; }
static void mma_raise(float *sum, int count) { (void)sum, (void)count; }
static unsigned int twice_e8m0(unsigned int codes) { return codes & 255; }
static unsigned int twice_e8m0_apart(unsigned int codes) { return codes & 255; }
static unsigned int beyond_e8m0_apart(unsigned int codes)
{
    unsigned int beyond = 0;

    for (int i = 0; i < 32; i += 8)
        beyond |= (codes >> i & 255) > 80 ? 128u << i : 0;
    return beyond;
}

/* As f16: of either, factors are the upper byte of each half. */
#define dequantize_e4m3_f16(pair, codes, twice) \
    sim_dequantize(pair, 2, codes, (twice) >> 8 * SIM_EITHER & 255, SIM_NAN_SCALE)

enum { MOST_E8M0 = 80, MOST_E8M0_APART = 80 }; /* less, so that some are more */
#define SIM_NAN_SCALE (sim.launch->nan_scale)
#define dequantize_e2m1(pair, codes, factor) sim_dequantize(pair, 4, codes, factor, SIM_NAN_SCALE)
#define dequantize_e2m1_apart(pair, codes, factor) sim_dequantize(pair, 4, codes, factor, \
    SIM_NAN_SCALE)
#define dequantize_e4m3(pair, codes, factor) sim_dequantize(pair, 2, codes, factor, SIM_NAN_SCALE)
#define dequantize_e5m2(pair, codes, factor) sim_dequantize(pair, 2, codes, factor, SIM_NAN_SCALE)
#define dequantize_e2m3(pair, codes, factor) sim_dequantize(pair, 2, codes, factor, SIM_NAN_SCALE)
#define dequantize_e2m1_twice(pair, codes, twice) sim_dequantize(pair, 4, codes, twice, \
    SIM_NAN_SCALE)
#define dequantize_e2m1_apart_twice dequantize_e2m1_twice
#define dequantize_e4m3_twice(pair, codes, twice) sim_dequantize(pair, 2, codes, twice, \
    SIM_NAN_SCALE)
#define dequantize_e5m2_twice dequantize_e4m3_twice
#define dequantize_e2m3_twice dequantize_e4m3_twice
#define dequantize_e3m2_twice dequantize_e4m3_twice
#define dequantize_e3m2(pair, codes, factor) sim_dequantize(pair, 2, codes, factor, SIM_NAN_SCALE)

static unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int shift)
{
    return (unsigned int)(((u64)hi << 32 | lo) >> (shift & 31));
}

static unsigned int permute(unsigned int x, unsigned int y, unsigned int digits)
{
    const u64 both = (u64)y << 32 | x;
    unsigned int result = 0;

    for (int i = 0; i < 4; i++)
        result |= (unsigned int)(both >> (digits >> 4 * i & 7) * 8 & 255) << 8 * i;
    return result;
}

/* ------------------------------------------------- packed stages */

/* A position in a packed stage. */
static struct sim_packed sim_packed_at(int cta, unsigned int address)
{
    const unsigned int at = address - SIM_FIRST_PACKED, in_stage = at % SIM_PACKED_STEP;
    const int role = in_stage < SIM_A_PACKED ? TWIN_A : TWIN_B;
    const int inside = (int)(role == TWIN_A ? in_stage : in_stage - SIM_A_PACKED);
    const int row_bytes = role == TWIN_A ? SIM_A_ROW : SIM_B_ROW;
    struct sim_packed p = { NULL, role, inside / row_bytes, inside % row_bytes };

    if (address < SIM_FIRST_PACKED || at >= SIM_PACKED_BYTES)
        sim_fail("no packed stage at this address", address, at);
    p.grain = &sim.cta[cta].packed[at / SIM_PACKED_STEP * ((TILE_M + TILE_N) / 8) +
                                   (role == TWIN_A ? 0 : TILE_M / 8) + p.row / 8];
    return p;
}

static int sim_is_packed(unsigned int address)
{
    return address >= SIM_FIRST_PACKED && address - SIM_FIRST_PACKED < SIM_PACKED_BYTES;
}

/* From now until it lands no thread may read the bytes it overwrites. */
static void sim_queue_packed(const struct sim_copy *c)
{
    const struct sim_packed p = sim_packed_at(c->cta, c->to);

    if (p.role != c->role || p.byte || p.row % 8 || c->rows % 8 ||
        c->bytes != c->rows * (c->role == TWIN_A ? SIM_A_ROW : SIM_B_ROW) ||
        p.row + c->rows > (c->role == TWIN_A ? TILE_M : TILE_N))
        sim_fail("a box that is no part of a packed stage", c->to, c->rows);
    for (int i = 0; i < c->rows / 8; i++)
        p.grain[i].valid = 0;
}

/* The swizzled position of 16 bytes of a row, or the row's of a swizzled one. */
static int sim_swizzled(int row, int chunk, int row_bytes)
{
    return row_bytes == 32 ? chunk ^ row / 4 % 2 : row_bytes == 64 ? chunk ^ row / 2 % 4
                                                                   : chunk ^ row % 8;
}

/* Codes of one row; it is this row that the thread now has in hand. */
static void sim_load_codes(unsigned int from, unsigned int *word, int words)
{
    struct sim_thread *t = &sim.thread[sim.current];
    const struct sim_packed p = sim_packed_at(sim.current / THREADS, from);
    const struct sim_place *place = &p.grain->place;
    const int row_bytes = p.role == TWIN_A ? SIM_A_ROW : SIM_B_ROW;
    const int each = p.role == TWIN_A ? SIM_A_EACH : SIM_B_EACH;
    const int chunk = sim_swizzled(p.row, p.byte / 16, row_bytes);

    if (!p.grain->valid)
        sim_fail("a packed stage is read before it is filled", p.row, p.role);
    if (from % (4 * (unsigned int)words))
        sim_fail("words at no multiple of their size", from, words);
    for (int i = 0; i < words; i++) {
        const int k = (chunk * 4 + p.byte % 16 / 4 + i) * each;
        const int real = p.row % 8 < place->rows && k < place->columns;
        word[i] = real ? sim_codes(p.role, place->group, place->row + p.row % 8, place->column + k)
                       : 0;
    }
    if (t->hand[0].role != p.role || t->hand[0].row != p.row)
        memmove(&t->hand[1], &t->hand[0], sizeof t->hand - sizeof t->hand[0]);
    t->hand[0] = p;
    t->hand[0].place = *place;
}

static void load_shared_codes(unsigned int from, unsigned int word[2])
{
    sim_load_codes(from, word, 2);
}

/* --------------------------------------------------------- scales */

/* The expected scale of a row in hand, for step `k` of the stage; 0 where
   nothing needs it. */
static int sim_right_scale(const struct sim_packed *p, int k)
{
    const struct twin_launch *l = sim.launch;
    const unsigned int *tile = sim.thread[sim.current].tile; /* group, start, length */
    const struct twin_blocks *b = &l->blocks[p->role];
    const int group = (int)tile[0], of_a = p->role == TWIN_A && l->ragged == QUERN_AXIS_M;
    const int row = p->place.row + p->row % 8 - (of_a ? (int)tile[1] : 0);
    const int x = p->place.column + k - (l->ragged == QUERN_AXIS_K ? (int)tile[1] : 0);
    const int rows = of_a ? (int)tile[2] : p->role == TWIN_A ? l->m : l->n;
    const int length = l->ragged == QUERN_AXIS_K ? ((int)tile[2] + 127) / 128 * 128 : l->k;

    return row < rows && x < length ? twin_scale_code(p->role, group, row / b->rows, x / b->k) : 0;
}

/* Words of scales: whose they are, and whether they have landed. If the warps that multiply
   dequantize A, or two lanes dequantize a row, all lanes of a warp share those of its
   rows. */
static struct sim_slot *sim_slot_at(unsigned int address)
{
    const int all = SIM_SWAPPED || sim.current % THREADS / 128 < 3; /* of a warp */
    const int owner = sim.current % THREADS / (all ? 32 : 1) + 1;
    const unsigned int i = (address - SIM_FIRST_SLOT) / 4;
    struct sim_slot *s;

    if (address < SIM_FIRST_SLOT || address % 4 || i >= SIM_WORDS_BYTES / 4)
        sim_fail("no slot of scales at this address", address, i);
    s = &sim_cta()->slot[i];
    if (s->owner && s->owner != owner)
        sim_fail("another thread's slot of scales", address, s->owner - 1);
    s->owner = owner;
    return s;
}

static void copy_word(unsigned int to, const void *from, int bytes)
{
    struct sim_thread *t = &sim.thread[sim.current];
    struct sim_slot *s = sim_slot_at(to);

    if ((uintptr_t)from % 4 || bytes < 0 || bytes > 4)
        sim_fail("a word at no multiple of four", (long long)(uintptr_t)from, bytes);
    if (t->words == SIM_WORDS_COPIED)
        sim_fail("more words of scales in flight than slots", t->words, 0);
    for (int i = 0; i < t->words; i++)
        if (t->word[i].slot == s)
            sim_fail("a slot of scales is filled again before it has landed", to, 0);
    s->valid = 0;
    t->word[t->words] = (struct sim_word){ s, 0, t->batch };
    memcpy(&t->word[t->words++].value, from, (size_t)bytes);
}

static void copy_commit(void) { sim.thread[sim.current].batch++; }

static void copy_wait(int most)
{
    struct sim_thread *t = &sim.thread[sim.current];
    int left = 0;

    for (int i = 0; i < t->words; i++)
        if (t->word[i].batch < t->batch - most) {
            t->word[i].slot->value = t->word[i].value;
            t->word[i].slot->valid = 1;
        } else {
            t->word[left++] = t->word[i];
        }
    t->words = left;
}

/* Or of codes. */
static unsigned int load_shared_word(unsigned int from)
{
    unsigned int codes;

    if (sim_is_packed(from)) {
        sim_load_codes(from, &codes, 1);
        return codes;
    }
    if (from >= SIM_FIRST_BARRIER)
        return *sim_marks(from / 4 * 4);
    if (!sim_slot_at(from)->valid)
        sim_fail("a scale is read before it has landed", from, 0);
    return sim_slot_at(from)->value;
}

/* ------------------------------------------------------- the ring */

/* The word with the codes of a row in hand from step `k` on. */
static unsigned int sim_right_codes(const struct sim_packed *p, int k)
{
    const struct sim_place *place = &p->place;

    if (p->row % 8 >= place->rows || k >= place->columns)
        return 0;
    return sim_codes(p->role, place->group, place->row + p->row % 8, place->column + k);
}

/* Pair `i` of it, as it must be. Eight codes change their order together. */
static unsigned int sim_right_pair(const struct sim_packed *p, int i)
{
    const int each = p->role == TWIN_A ? SIM_A_EACH : SIM_B_EACH, words = 8 / each;
    const int place = i % 4 / (each / 2);
    unsigned int word[4];

    for (int j = 0; j < words; j++)
        word[j] = sim_right_codes(p, i / 4 * 8 + j * each);
    if (SIM_APART)
        sim_apart(word, words > 1 ? words : 0);
    if (each == 2) /* as it was copied, but for the order */
        return word[place];
    return sim_pair(word[place], i % (each / 2), sim_right_scale(p, 2 * i));
}

/* 16 bytes of the row in hand, into its position in a stage. */
static void sim_store_pairs(unsigned int to, const unsigned int word[4])
{
    struct sim_thread *t = &sim.thread[sim.current];
    struct sim_grain *g = sim_grain_at(sim.current / THREADS, to);
    const unsigned int in_stage = (to - SIM_STAGES) % STAGE_BYTES;
    const int role = in_stage < A_BYTES ? TWIN_A : TWIN_B;
    const int row = (int)(role == TWIN_A ? in_stage : in_stage - A_BYTES) / 128;
    const int chunk = (int)(to % 128 / 16) ^ row % 8;

    if (role != t->hand[0].role || row != t->hand[0].row)
        sim_fail("a row is dequantized into another one's position", row, t->hand[0].row);
    if (g->filled == ~0ull || g->role != role)
        *g = (struct sim_grain){ .role = role };
    g->valid = 0;
    for (int i = 0; i < 4 && sim.launch->lengths; i++)
        if (word[i] != sim_right_pair(&t->hand[0], SIM_PERMUTED ? chunk + 8 * i : 4 * chunk + i))
            sim_fail("a wrong value, scale or place of it", 4 * chunk + i, row);
    g->place = t->hand[0].place;
    g->filled |= 1ull << (row % 8 * 8 + chunk);
    if (!t->touches || t->touch[t->touches - 1].grain != g) {
        if (t->touches == SIM_TOUCHES)
            sim_fail("more rows than a thread has, without a fence", t->touches, 0);
        t->touch[t->touches++] = (struct sim_touch){ g, 0 };
    }
    t->touch[t->touches - 1].filled |= 1ull << (row % 8 * 8 + chunk);
}

/* The tensor cores may see this thread's writes. */
static void sim_fence_pairs(void)
{
    struct sim_thread *t = &sim.thread[sim.current];

    while (t->touches > 0) {
        const struct sim_touch *touch = &t->touch[--t->touches];
        touch->grain->fenced |= touch->filled;
        touch->grain->valid = touch->grain->fenced == ~0ull;
    }
}

/* --------------------------------------------- A or B in registers */

/* A lane must give the values of its rows at the other lane's positions in this step. */
static void sim_check_pair(const struct sim_packed *p, unsigned int pair, int i)
{
    if (sim.launch->lengths && pair != sim_right_pair(p, 8 * (sim.current % 4) + i))
        sim_fail("a wrong value in registers, or at a wrong position", i, p->row);
}

/* The first row of a step in the hand: a thread may have read some of the next one. */
static int sim_in_hand(const struct sim_thread *t, unsigned int b)
{
    const struct sim_grain *g = sim_grain_at(sim.current / THREADS, b << 4);
    int i = 0;

    while (i < SIM_HELD / 32 && t->hand[i].place.column == g->place.column + TILE_K)
        i++;
    return i;
}

/* The first lane's rows say where the 64 begin. */
static void sim_mma_rows(float *sum, unsigned int a0, unsigned int a1, unsigned int a2,
                         unsigned int a3, unsigned int b, int accumulate, int columns, int as)
{
    struct sim_thread *t = &sim.thread[sim.current];
    const int i = t->products++ / (SIM_ACROSS / MMA_N) % (SIM_HELD / 64); /* of each 64 rows */
    const struct sim_packed *upper = &t->hand[sim_in_hand(t, b) + SIM_HELD / 32 - 1 - 2 * i];
    const struct sim_packed *lower = upper - 1;
    const int step = (int)(b % 8) / (B_STEP / 16), warp = sim.current % THREADS / 32 % 4;
    const int real = sim_clip(upper->place.columns, MMA_K * step, MMA_K);
    const int role = SIM_SWAPPED ? TWIN_B : TWIN_A;
    struct sim_part a = { upper->place.row - (SIM_SWAPPED ? 0 : warp * 16),
                          upper->place.column + MMA_K * step, real, upper->place.group };

    if (upper->role != role || lower->role != role || lower->row != upper->row + 8)
        sim_fail("rows that are not 8 apart", upper->row, lower->row);
    sim_check_pair(upper, a0, 2 * step);
    sim_check_pair(lower, a1, 2 * step);
    sim_check_pair(upper, a2, 2 * step + 1);
    sim_check_pair(lower, a3, 2 * step + 1);
    if (SIM_EITHER && (int)t->as != as)
        sim_fail("multiplied as another type than its values are", as, t->as);
    sim_issue(sum, 0, (u64)b, accumulate, &a, columns);
}

#define sim_mma_registers(...) sim_mma_rows(__VA_ARGS__, MMA_N, 2)
#define mma_f16(...) sim_mma_rows(__VA_ARGS__, MMA_N, 1)
#define mma_few(...) sim_mma_rows(__VA_ARGS__, FEW, 2)
#define mma_few_f16(...) sim_mma_rows(__VA_ARGS__, FEW, 1)

#define SIM_COUNTED(_1, _2, _3, _4, _5, _6, _7, name, ...) name
#define mma(...) \
    SIM_COUNTED(__VA_ARGS__, sim_mma_registers, _, _, sim_mma, _, _, _)(__VA_ARGS__)
