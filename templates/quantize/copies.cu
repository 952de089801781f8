//$ -- SPDX-License-Identifier: Apache-2.0
//$ local bits = element.bits == 4 and 4 or 8 -- in memory
//$ local wide = scale.k
//$ local by_row = scale.span == "row" or (scale.span == "block" and scale.rows == 1)
//$ local lanes = scale.span == "block" and wide // 2 < 32 and wide // 2 or 32
/* One quantized tensor, and the state of its scales. */
struct copy {
    unsigned char *data; /* null: not wanted */
    long long stride;    /* values from one line to the next */
    sf_element *sf;
    float *global;
    const unsigned int *amax; /* the largest magnitudes of scales that span more than a tile */
//$ if scale.stochastic then
    const unsigned long long *random; /* seed and offset */
//$ elseif scale.delayed then
    const float *given; /* factor, and the scale stored with it */
//$ end
};

enum {
    PARTS = ACROSS < ROWS ? ROWS / ACROSS : 1, /* blocks of rows that a thread has a part in */
    LANES = $(lanes),                          /* that share a row's block */
    PITCH = ROWS + 4                           /* spreads the blocks of a warp over the banks */
};

struct shared {
//$ if scale.span == "row" or (by_row and wide == 128) then
    float line_factor[2][TILE_M]; /* of rows, of features */
//$ elseif by_row then
    float row_factor[8][32 / LANES][PITCH]; /* of each warp's blocks */
//$ end
//$ if scale.words then
    __align__(16) sf_element sf[2][TILE_M][128 / ACROSS]; /* of rows, of features */
//$ end
//$ if scale.stochastic then
    uint4 random[8][ROWS][4]; /* of each warp's rows: a byte for each value */
//$ end
//$ if scale.span == "block" and wide > 32 then
    float row_most[2][TILE_M];    /* of 64 features each */
    float column_most[4][TILE_N]; /* of 32 rows each */
//$ elseif scale.as then
    float row_most[2][TILE_M]; /* of 64 features each */
//$ end
};

//$ if scale.span == "block" then
//$ include "quantize/store_sf.c"

//$ end
//$ if scale.hadamard then
/*
** Store two codes if `wanted`, without a branch. The address of the first row is kept as it is: for
** each store it would be worked out anew.
*/
//$ local type, short = bits == 4 and "u8" or "u16", bits == 4 and "r" or "h"
FN void store_codes(unsigned char *to, unsigned codes, int wanted)
{
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p st.global.$(type) [%0], %1; }"
                 : : "l"(to), "$(short)"($(bits == 4 and "codes" or "(unsigned short)codes")),
                     "r"(wanted) : "memory");
}

FN unsigned char *kept(unsigned char *address)
{
    asm volatile("" : "+l"(address));
    return address;
}

//$ end
//$ local whole = of == "w" and "const struct shape *all, " or ""
/* The offset of feature `feature` of the tile in a thread's first row of the rowwise tensor, in
   values. */
FN long long row_at(const struct copy *copy, const struct coord *p, const struct group *g,
                    const struct tile *t, $(whole)int feature)
{
//$ local first = of == "w" and "(long long)g->number * all->m" or "(long long)g->start"
    return ($(first) + t->row + ROWS * p->part) * copy->stride +
           t->column + feature;
}

/* The offset of the tile's first value in the columnwise tensor, in values. */
FN long long column_at(const struct copy *copy, const struct group *g,
                       $(whole)const struct tile *t)
{
//$ if of == "w" then
    return ((long long)g->number * all->k + t->column) * copy->stride + t->row;
//$ else
    return t->column * copy->stride + (long long)g->first * TILE_M + t->row;
//$ end
}

enum { WORDS = 16 * $(bits) / 32 }; /* of 16 values */

/* Two values of a columnwise tensor's line into the words that a thread gathers of 16. */
FN void gather(unsigned words[WORDS], int r, unsigned codes)
{
    const int at = r % $(32 // bits) * $(bits), word = r % 16 / $(32 // bits);

    words[word] = at ? words[word] | codes << at : codes;
}

/*
** Until a line of the columnwise tensor is stored, its parts are where the values were that they
** come from: those of 16 rows in the place of these, or, if they have 4 bits, of 32 rows in the
** place of the first 16. Which chunk of 16 bytes a line gets there spreads them over the banks,
** both when they are written for neighbouring features and when they are read for a line.
*/
FN unsigned char *staged_part(packed *tile, int line, int part, int second_half)
{
    const int lane = line % 64 / 2, second = line % 2;
//$ if bits == 4 then
    const int row = ROWS * part + lane / 8 + 4 * second, chunk = (lane ^ part ^ 4 * second) % 8;
    const int byte = chunk * 16 + second_half * 8;
//$ else
    const int row = ROWS * part + 16 * second_half + lane / 8 + 4 * second;
    const int byte = (lane ^ (part * 2 + second_half)) % 8 * 16;
//$ end

    return (unsigned char *)(tile + row * LINE + line / 64 * 32) + byte;
}

/*
** The codes of 16 rows of the thread's features, from row `first` of the thread's on. All lanes
** of a warp have read these rows.
*/
FN void stage_rows(packed *tile, const struct coord *p, int first, const unsigned words[2][WORDS])
{
#pragma unroll
    for (int second = 0; second < 2; second++) {
        const unsigned *const w = words[second];
        unsigned char *const to =
            staged_part(tile, 64 * p->half + 2 * p->lane + second, p->part, first / 16);
//$ if bits == 4 then
        *(uint2 *)to = make_uint2(w[0], w[1]);
//$ else
        *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
//$ end
    }
}

enum {
    ROW_BYTES = 64 * $(bits) / 8,   /* of a row, that a warp makes */
    ROW_PIECES = ROW_BYTES / 16 /* that lanes store */
};

/*
** Until they are stored, rows of the rowwise tensor are there too, in the space that 16 rows of the
** columnwise tensor leave: row r of the 16 from `first` on.
*/
FN unsigned char *staged_row(packed *tile, const struct coord *p, int first, int r)
{
    const int row = ROWS * p->part + first + 8 + r * ROW_BYTES / 128;

    return (unsigned char *)(tile + row * LINE + 32 * p->half) + r * ROW_BYTES % 128;
}

/* These 16 rows, or as many as are to be `stored`, from `to` on: the lane's piece of the first. */
FN void store_rows(packed *tile, const struct coord *p, int first, unsigned char *to,
                   long long step, int stored)
{
    enum { LINES = 32 / ROW_PIECES }; /* at a time */
    const int line = p->lane / ROW_PIECES, piece = p->lane % ROW_PIECES;

    to += line * step;
#pragma unroll
    for (int i = 0; i < 16; i += LINES) {
        const uint4 codes = *(const uint4 *)(staged_row(tile, p, first, i + line) + piece * 16);
        if (i + line < stored)
            *(uint4 *)to = codes;
        to += LINES * step;
    }
}

/* The columnwise tensor's lines, $(16 * bits) bytes of each. */
FN void store_stage(packed *tile, const struct copy *copy, const struct group *g,
                    const struct tile *t, const struct shape *all)
{
    enum { CHUNKS = TILE_M * $(bits) / 128, LINES = THREADS / CHUNKS }; /* of a line; at a time */
    const int first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const long long step = LINES * copy->stride * $(bits) / 8;
//$ local whole = of == "w" and "all, " or ""
    const long long begin = column_at(copy, g, $(whole)t) + first * copy->stride; /* in values */
    unsigned char *at = copy->data + begin * $(bits) / 8 + chunk * 16;
    int left = all->k - t->column - first; /* features from this one on */

//$ if of == "w" then
    if (t->row + chunk * $(128 // bits) >= copy->stride)
        left = 0;
//$ end
//$ local where = bits == 4 and "chunk, 0" or "chunk / 2, chunk % 2"
    const unsigned char *const parts = staged_part(tile, first, $(where));
#pragma unroll
    for (int i = 0; i < TILE_N / LINES; i++) {
        const long part = staged_part(tile, i * LINES, 0, 0) - (unsigned char *)tile;
        const uint4 codes = *(const uint4 *)(parts + part);
        if (i * LINES < left)
            *(uint4 *)at = codes;
        at += step;
    }
}
