//$ -- SPDX-License-Identifier: Apache-2.0
/*
** More steps of k, of operands of their own: [rows, extra_k], whose rows are those of A, and a
** matrix of B's form for each group. They follow those of A and B in the ring, in stages of their
** own, and the sums go on.
*/

/* Steps of k in the stages of a tile; those after the end of either are zeros. */
FN int with_extra(int k, int extra_k)
{
    return (k + TILE_K - 1) / TILE_K * TILE_K + extra_k;
}

//$ if pair then
/* Fill stages with those of one tile of D: each CTA half of the rows of A, and its columns of B. By
   one thread of each. */
//$ else
/* Fill stages with those of one tile of D. Each CTA of a cluster loads its own. By one thread. */
//$ end
FN void load_extra(const struct memory *s, struct pipeline *p, const struct tile *t,
                   const struct maps *maps, int extra_k)
{
//$ if pair then
    const int row = (int)t->start + t->row + (int)cluster_rank() * (spots_of(t) / 2);

//$ end
#pragma unroll 1
    for (int x = 0; x < extra_k; x += TILE_K) {
        const unsigned int full = s->$(pair and "both_" or "")full + p->stage * 8;
        const unsigned int stage = s->ring + p->stage * STAGE_BYTES;

        barrier_wait(s->empty + p->stage * 8, p->parity ^ 1);
//$ if pair then
        if (cluster_rank() == 0)
            barrier_expect(s->full + p->stage * 8, CTAS * STAGE_BYTES);
//$ else
        barrier_expect(full, STAGE_BYTES);
//$ end
//$ for name, o in pairs { a = a, b = b } do
//$ local rows = o.major == "mn" and 64 or (name == "a" and a_box or b_box)[2]
//$ local boxes = (name == "a" and tile.m // (pair and 2 or 1) or tile.n) // rows
//$ local to, mn = "stage", "(int)t->start + t->row"
//$ if pair then mn = "row" end
//$ if name == "b" then to, mn = "stage + A_BYTES", "t->column" end
//$ if boxes > 1 then
#pragma unroll
        for (int i = 0; i < $(boxes); i++) {
            const unsigned int to = $(to) + i * $(rows) * TILE_K * $(o.bytes);
            const int mn = $(mn) + i * $(rows);

//$ to, mn = "to", "mn"
//$ end
//$ local pad = boxes > 1 and "    " or ""
//$ local call = (name == "a" and "load_box_2d" or "load_box_3d") .. (pair and "_pair" or "")
//$ local at = o.major == "k" and "x, " .. mn or mn .. ", x"
        $(pad)$(call)($(to), maps->extra_$(name), full, $(at)$(name == "a" and "" or ", t->group"));
//$ if boxes > 1 then
        }
//$ end
//$ end
        pipeline_next(p, STAGES);
    }
}
