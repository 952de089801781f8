//$ -- SPDX-License-Identifier: Apache-2.0
//$ local turn, phase = " + sequence % 2 * 8", "sequence / 2 % 2"
//$ if accumulators == 1 then
//$ turn, phase = "", "sequence % 2"
/*
** Sums of one tile: the next one is multiplied once they are in registers. A barrier tells that
** they are full, another that they may be overwritten: a phase of each ends with every tile.
*/
//$ else
/*
** Sums of two tiles: one tile is stored while the next one is multiplied. The n-th tile of a CTA
** has half n % 2. A barrier of each half tells that its sums are full, another that they may be
** overwritten: a phase of each ends with every second tile.
*/
//$ end
//$ if scales == "native" then
enum {
    SUMS_WORDS = $(tensor_words), /* of a line: of sums, and of scales after them */
    LINE_SCALES = $(accumulators == 2 and "2 * " or "")SPOTS,
    SPOT_SCALES = LINE_SCALES + 4 * WORDS,
    SPOT_WORD = 4 * SPOT_TILES /* from a word of all spots to the next */
};
//$ else
enum { SUMS_WORDS = 2 * SPOTS }; /* of a line: a power of two */
//$ end

/* Take the memory, and write where it is to shared memory; give it back. By one warp. */
FN void sums_take(unsigned int to)
{
    asm volatile("tcgen05.alloc.cta_group::$(pair and 2 or 1).sync.aligned.shared::cta.b32"
                 " [%0], %1;\n"
                 "tcgen05.relinquish_alloc_permit.cta_group::$(pair and 2 or 1).sync.aligned;"
                 : : "r"(to), "n"(0 + SUMS_WORDS) : "memory");
}

FN void sums_give_back(unsigned int sums)
{
    asm volatile("tcgen05.dealloc.cta_group::$(pair and 2 or 1).sync.aligned.b32 %0, %1;"
                 : : "r"(sums), "n"(0 + SUMS_WORDS) : "memory");
}

//$ local step = pair and 32 or 16 -- that the tensor cores count them in
/* Words of each line that a tile needs: $(turned and "its rows" or "columns") of D. */
FN int spots_of(const struct tile *t)
{
//$ if turned and ragged == "m" then
    const int left = (int)t->length - t->row, rows = left < TILE_M ? left : TILE_M;

    return (rows + $(step - 1)) / $(step) * $(step);
//$ else
    (void)t;
    return SPOTS;
//$ end
}

/* The address of a tile's sums. */
FN unsigned int sums_of(unsigned int sums, unsigned int sequence)
{
//$ if accumulators == 2 then
    return sums + sequence % 2 * SPOTS;
//$ else
    (void)sequence;
    return sums;
//$ end
}

/* By the thread that multiplies: wait until the tile's half is free, and tell that it is full. */
FN void sums_wait_empty(const struct memory *s, unsigned int sequence)
{
    barrier_wait(s->sums_empty$(turn), $(phase) ^ 1);
    tensor_after_barrier();
}

FN void sums_post(const struct memory *s, unsigned int sequence)
{
//$ if accumulators == 1 then
    (void)sequence;
//$ end
    tensor_commit(s->sums_full$(turn));
}

/* By the warps that store: wait until the tile's half is full, and tell that it is free. */
FN void sums_wait_full(const struct memory *s, unsigned int sequence)
{
    barrier_wait(s->sums_full$(turn), $(phase));
    tensor_after_barrier();
}

FN void sums_release(const struct memory *s, unsigned int sequence, int lane)
{
    tensor_before_barrier();
    __syncwarp();
    if (lane == 0)
//$ if pair then
        barrier_arrive_at(s->sums_empty$(turn), 0);
//$ else
        barrier_arrive(s->sums_empty$(turn));
//$ end
}

//$ if turned then
/* The part of a tile's sums whose rows of D begin at `row` of the tile: 32 columns of ROWS rows, 16
   columns after 16 others. */
FN void load_sums(float sum[SUMS], unsigned int sums, int row, int warp)
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        tensor_load(sum + i * (ROWS / 2), sums + (warp % 4 * 32 + i * 16 << 16) + row);
    tensor_wait(sum, SUMS);
}
//$ elseif epilogue ~= "gradient" and epilogue ~= "gradient_copies" then
/* One half of a warp's 32 rows. */
FN void load_sums(float sum[SUMS], unsigned int sums, int half, int warp)
{
//$ if accumulators == 1 then
#pragma unroll
    for (int i = 0; i < SPOTS; i += 64)
        tensor_load(sum + i / 2, sums + (warp % 4 * 32 + half * 16 << 16) + i);
//$ else
    tensor_load(sum, sums + (warp % 4 * 32 + half * 16 << 16));
//$ end
    tensor_wait(sum, SUMS);
}
//$ end
