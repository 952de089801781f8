//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The tile scheduler, over the tiles of all groups. Tiles at work at a time cover an area about as
** high as wide, so that rows of the input and lines of the columnwise tensor both come in long
** pieces.
*/
struct tile {
    int group;
//$ if ragged ~= "none" then
    unsigned int start, length; /* of the group's rows */
//$ end
    int row, column;     /* of the tile's first value, inside the group */
};

//$ include "common/band.cu"

FN void tile_place(struct tile *t, unsigned int number, unsigned int strips,
                   unsigned int across, unsigned int usual)
{
    const struct band band = band_of(number, strips, across, usual);
    const unsigned int position = band.number / band.strips;

    t->row = (int)((band.first + band.number - position * band.strips) * TILE_M);
    t->column = (int)(position * TILE_N);
}

//$ include(ragged == "none" and "common/scheduler_uniform.cu" or "common/scheduler_ragged.cu")
