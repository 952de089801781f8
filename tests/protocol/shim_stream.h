/* SPDX-License-Identifier: Apache-2.0 */
/*
** The twin of templates/sm90/stream_cast.cu for the host: which pieces of the copies are made, and
** how often. That no row is copied before it is made shows in shim_copy.h, that each is made once
** in twin.h.
*/

static void sim_make(unsigned char *times)
{
    sim_pause();
    ++*times;
}

static void stream_rows(const struct stream *s, const struct tile *t, int lane)
{
    const unsigned int number = (unsigned int)t->column / TILE_N, chunk = number / PIECES;
    const int first = t->row + (int)(number % PIECES) * PIECE_ROWS;

    if (chunk >= SIM_CHUNKS || t->start + (unsigned int)t->length > SIM_ROWS)
        sim_fail("a piece that no launch of these has", chunk, t->start);
    for (int row = first; lane == 0 && row < first + PIECE_ROWS && row < (int)t->length; row++)
        sim_make(&sim.made[t->start + row][chunk]);
    flag_raise(s->words + FLAGS + (t->runs + t->row / BLOCK) * chunks_of(s->k) + chunk, lane);
}

static void stream_lines(const struct stream *s, const struct tile *t, int lane)
{
    const unsigned int piece = (unsigned int)t->column / TILE_N;
    const unsigned int run = t->runs + t->row / BLOCK;

    if (piece >= SIM_CHUNKS * PIECES || run >= SIM_RUNS)
        sim_fail("a piece that no launch of these has", piece, run);
    if (lane == 0)
        sim_make(&sim.lines[run][piece]);
    __syncwarp();
}
