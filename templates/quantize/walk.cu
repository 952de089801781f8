/* The walk over the tiles of all groups: strips of 128 rows, tile by tile along the features; bands
   of several strips would share nothing. */
struct tile {
    int group;
//$ if ragged ~= "none" then
    unsigned int start, length; /* of the group's rows */
//$ end
    int row, column; /* of the tile's first value, inside the group */
};

DEVICE void tile_place(struct tile *t, unsigned int number, unsigned int strips,
                       unsigned int across, unsigned int band)
{
    const unsigned int strip = number / across;

    t->row = (int)(strip * TILE_M);
    t->column = (int)((number - strip * across) * TILE_N);
}

//$ include(ragged == "none" and "common/walk_uniform.cu" or "common/walk_ragged.cu")
