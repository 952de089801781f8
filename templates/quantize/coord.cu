//$ -- SPDX-License-Identifier: Apache-2.0
/* A thread's coordinates: rows 32 * part .. and features 64 * half + 2 * lane, + 1 of the tile. */
struct coord {
    int warp, lane, part, half;
};

/*
** The calling thread's. The code below from it is worked out anew for each tile: kept from tile to
** tile, it would take registers that the values need.
*/
FN struct coord coord_here(void)
{
    unsigned int thread; /* which division and remainder cost a shift and a mask of */

    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    const struct coord p = { (int)(thread / 32), (int)(thread % 32), (int)(thread / 32 % 4),
                             (int)(thread / 128) };
    return p;
}

/* The offset of its values in a tile's. */
FN int first_value(const struct coord *p)
{
    return ROWS * p->part * LINE + 32 * p->half + p->lane;
}
