//$ -- SPDX-License-Identifier: Apache-2.0
/*
** From the columnwise tensor, through a stage in shared memory: rows of 256 bytes, the pieces of
** which change places so that neighbouring threads meet different banks, as they write and as they
** read.
*/
enum {
    PIECES = 16,              /* of a row */
    FEATURES = PIECES * PIECE /* $(input.bits == 16 and "all" or "half") of a tile's */
};

/* The address of word `word` of a row. */
FN unsigned *staged(uint4 *stage, int row, int word)
{
    return (unsigned *)(stage + row * PIECES + (word / 4 ^ row / 8 % 8)) + word % 4;
}

/* Two neighbouring features of eight rows, whose pieces change places alike. */
FN void transpose(uint4 *stage, int row, int feature, const struct eight *x, const struct eight *y)
{
    enum { ROW = PIECES * 4 }; /* words */
//$ local word = input.bits == 16 and "feature / 2" or "feature"
    unsigned *const to = staged(stage, row, $(word));

#pragma unroll
//$ if input.bits == 16 then
    for (int i = 0; i < 4; i++) {
        to[2 * i * ROW] = __byte_perm(x->word[i], y->word[i], 0x5410);
        to[(2 * i + 1) * ROW] = __byte_perm(x->word[i], y->word[i], 0x7632);
    }
//$ else
    for (int i = 0; i < 8; i++)
        *(uint2 *)(to + i * ROW) = make_uint2(x->word[i], y->word[i]);
//$ end
}

/* Eight rows' codes of a feature, and their scale. */
struct part {
    struct codes codes;
    sf_element sf;
};

//$ local first = "(long long)g->first * TILE_M"
//$ if of == "w" then first = "(long long)g->number * all->k * copy->stride" end
//$ local blocks = scale.span == "block"
//$ local stepped = blocks and scale.order == "rows" and (scale.rows == 1 or scale.rows == 16)
//$ local shape = "const struct shape *all, "
//$ if of ~= "w" and not stepped and scale.span ~= "row" then shape = "" end
/* The parts that a thread reads: those of its first feature, and the distance to others. */
struct parts {
    const unsigned char *codes;
    const sf_element *sf;
    long long step, sf_step; /* to the next feature's; its scales of as many features */
};

FN struct parts parts_at(const struct copy *copy, const struct group *g,
                         $(shape)int row, int feature)
{
    struct parts p;

    p.codes = codes_at(copy->data,
                       feature * copy->stride + $(first) + row);
    p.step = copy->stride;
    p.sf = copy->sf;
    p.sf_step = 0;
//$ if stepped then
    const struct scales s = column_scales(g, all);
    p.sf += scale_at(&s, feature / SF_LINES, row / ACROSS);
    p.sf_step = padded(s.columns, PAD_COLUMNS);
//$ elseif scale.span == "row" then
    p.sf += (long long)g->number * all->k + feature;
    p.sf_step = 1;
//$ elseif scale.span == "group" then
    p.sf += g->number;
//$ end
    return p;
}

/* `further` features on, an even number but for the neighbour's. */
//$ if blocks and not stepped then
FN struct part read_part(const struct parts *from, const struct copy *copy, const struct group *g,
                         const struct shape *all, int row, int feature, int further)
{
//$ else
FN struct part read_part(const struct parts *from, int further)
{
//$ end
    struct part p;

    p.codes = read_codes(codes_at(from->codes, further * from->step));
//$ if blocks and not stepped then
    const struct scales s = column_scales(g, all);
    p.sf = copy->sf[scale_at(&s, (feature + further) / SF_LINES, row / ACROSS)];
//$ else
    p.sf = from->sf[further / SF_LINES * from->sf_step];
//$ end
    return p;
}

//$ local global = scale.global and ", global" or ""
/*
** FEATURES from `begin` on into the stage: a warp takes 64 rows of eight of them at a time, and all
** loads of a thread are in flight at once.
*/
FN void fill_stage(uint4 *stage, const struct copy *copy, const struct result *out,
                   const struct group *g, const struct tile *t, const struct shape *all, int begin,
                   const int complete)
{
    enum { STEP = THREADS / 64 * 8, AT_ONCE = FEATURES / STEP };
    const int thread = thread_here(), row = thread / 32 % 2 * 64 + thread % 8 * 8;
    const int first = thread / 64 * 8 + thread / 8 % 4 * 2;
    const struct parts from =
        parts_at(copy, g, $(shape ~= "" and "all, " or "")t->row + row, t->column + begin + first);
    struct part part[AT_ONCE][2];
//$ if scale.global then
    const struct level global = level_of(copy->global, g->number);
//$ end

#pragma unroll
    for (int i = 0; i < AT_ONCE * 2; i++) {
        const int further = i / 2 * STEP + i % 2;
        if (complete || (row < out->rows && begin + first + further < out->columns))
//$ local place = ", copy, g, all, t->row + row, t->column + begin + first"
            part[i / 2][i % 2] =
                read_part(&from$(blocks and not stepped and place or ""), further);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const struct part *p = part[i];
        const struct eight x = scaled(&p[0].codes, p[0].sf$(global));
        const struct eight y = scaled(&p[1].codes, p[1].sf$(global));

        transpose(stage, row, first + i * STEP, &x, &y);
    }
}

FN void do_columns(uint4 *stage, const struct copy *copy, const struct result *out,
                   const struct group *g, const struct tile *t, const struct shape *all,
                   const int complete)
{
    const int thread = thread_here(), line = thread / PIECES, piece = thread % PIECES;

#pragma unroll
    for (int begin = 0; begin < TILE_N; begin += FEATURES) {
        const int f = begin + piece * PIECE;
        out_element *to = out->at + line * out->stride + f;

        fill_stage(stage, copy, out, g, t, all, begin, complete);
        __syncthreads();
#pragma unroll 4
        for (int row = line; row < TILE_M; row += THREADS / PIECES) {
            if (complete || row < out->rows)
                store_piece(to, *(const uint4 *)staged(stage, row, piece * 4),
                            complete ? PIECE : out->columns - f, complete || out->whole);
            to += THREADS / PIECES * out->stride;
        }
        if (begin + FEATURES < TILE_N)
            __syncthreads(); /* the stage is free again */
    }
}
