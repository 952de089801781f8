/*
** From the column copy, through a stage in shared memory: rows of 256 bytes, the pieces of which
** change places so that neighbouring threads meet different banks, as they write and as they read.
*/
enum {
    PIECES = 16,              /* of a row */
    FEATURES = PIECES * PIECE /* $(input.bits == 16 and "all" or "half") of a tile's */
};

/* Where word `word` of a row lies. */
FN unsigned *staged(uint4 *stage, int row, int word)
{
    return (unsigned *)(stage + row * PIECES + (word / 4 ^ row / 8 % 8)) + word % 4;
}

/* Two neighbouring features of eight rows. */
FN void turn(uint4 *stage, int row, int feature, const struct eight *x, const struct eight *y)
{
#pragma unroll
//$ if input.bits == 16 then
    for (int i = 0; i < 4; i++) {
        *staged(stage, row + 2 * i, feature / 2) = __byte_perm(x->word[i], y->word[i], 0x5410);
        *staged(stage, row + 2 * i + 1, feature / 2) = __byte_perm(x->word[i], y->word[i], 0x7632);
    }
//$ else
    for (int i = 0; i < 8; i++)
        *(uint2 *)staged(stage, row + i, feature) = make_uint2(x->word[i], y->word[i]);
//$ end
}

/* Eight rows' codes of a feature, and their scale. */
struct part {
    struct codes codes;
    sf_element sf;
};

FN struct part read_part(const struct copy *copy, const struct group *g, const struct shape *all,
                         int row, int feature)
{
//$ if of == "w" then
    const long long line = (long long)g->number * all->k + feature, at = line * copy->stride + row;
//$ else
    const long long at = feature * copy->stride + (long long)g->first * TILE_M + row;
//$ end
//$ if scale.span == "block" then
    const struct scales s = column_scales(g, all);
    const long long sf = scale_at(&s, feature / DOWN, row / ACROSS);
//$ elseif scale.span == "row" then
    const long long sf = (long long)g->number * all->k + feature;
//$ else
    const long long sf = $(scale.span == "group" and "g->number" or "0");
//$ end
    const struct part p = { read_codes(copy->data, at), copy->sf[sf] };

    return p;
}

//$ local global = scale.global and ", global" or ""
/*
** FEATURES from `begin` on into the stage: a warp takes 64 rows of eight of them at a time, all of
** them on their way at once.
*/
FN void fill_stage(uint4 *stage, const struct copy *copy, const struct result *out,
                   const struct group *g, const struct tile *t, const struct shape *all, int begin)
{
    enum { STEP = THREADS / 64 * 8, AT_ONCE = FEATURES / STEP };
    const int thread = thread_here(), row = thread / 32 % 2 * 64 + thread % 8 * 8;
    const int first = thread / 64 * 8 + thread / 8 % 4 * 2;
//$ if scale.global then
    const struct level global = level_of(copy->global, g->number);
//$ end

#pragma unroll 1
    for (int f = first; f < FEATURES; f += AT_ONCE * STEP) {
        struct part part[AT_ONCE][2];

#pragma unroll
        for (int i = 0; i < AT_ONCE * 2; i++) {
            const int feature = begin + f + i / 2 * STEP + i % 2;
            if (row < out->rows && feature < out->columns)
                part[i / 2][i % 2] = read_part(copy, g, all, t->row + row, t->column + feature);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const struct part *p = part[i];
            const struct eight x = scaled(&p[0].codes, p[0].sf$(global));
            const struct eight y = scaled(&p[1].codes, p[1].sf$(global));

            turn(stage, row, f + i * STEP, &x, &y);
        }
    }
}

FN void do_columns(uint4 *stage, const struct copy *copy, const struct result *out,
                   const struct group *g, const struct tile *t, const struct shape *all)
{
    const int thread = thread_here(), line = thread / PIECES, piece = thread % PIECES;

#pragma unroll
    for (int begin = 0; begin < TILE_N; begin += FEATURES) {
        const int f = begin + piece * PIECE;
        out_element *to = out->at + line * out->stride + f;

        fill_stage(stage, copy, out, g, t, all, begin);
        __syncthreads();
#pragma unroll 4
        for (int row = line; row < TILE_M; row += THREADS / PIECES) {
            if (row < out->rows)
                store_piece(to, *(const uint4 *)staged(stage, row, piece * 4), out->columns - f,
                            out->whole);
            to += THREADS / PIECES * out->stride;
        }
        if (begin + FEATURES < TILE_N)
            __syncthreads(); /* the stage is free again */
    }
}
