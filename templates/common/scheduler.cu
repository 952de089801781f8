//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The tile scheduler. Each warp has its own, and every CTA or cluster visits
** tiles `next`, `next + stride`, ... in the one order that all agree on. Nothing is shared and
** nothing is written, so sizes may change between launches.
**
** Order: group by group; inside a group, bands of strips, one tile of each strip after the
** other. Tiles at work at a time so cover an area about as high as wide: products share rows of A
** and columns of B in L2, casts read and write long pieces of rows and columns. A strip is a
//$ if ragged == "n" then
** column of tiles: each group has as many rows, but not as many columns.
//$ else
** row of tiles: each group has as many columns.
//$ end
*/
struct tile {
    int group;
//$ if ragged ~= "none" then
    unsigned int start, length; /* of the group, on the ragged axis */
//$ end
    int row, column; /* of the tile's first element, inside the group */
};

//$ include "common/band.cu"

/* The place of a tile in its group, from its number there and the group's strips. */
FN void tile_place(struct tile *t, unsigned int number, unsigned int strips,
                   unsigned int across, unsigned int usual)
{
    const struct band band = band_of(number, strips, across, usual);
    const unsigned int position = band.number / band.strips;
    const unsigned int strip = band.first + band.number - position * band.strips;

//$ if ragged == "n" then
    t->row = (int)(position * TILE_M);
    t->column = (int)(strip * TILE_N);
//$ else
    t->row = (int)(strip * TILE_M);
    t->column = (int)(position * TILE_N);
//$ end
}

//$ if ragged == "none" then
//$ include "common/scheduler_uniform.cu"
//$ else
//$ include "common/scheduler_ragged.cu"

//$ include "common/scheduler_next.cu"
//$ end
