/* A thread's place: rows 32 * part .. and features 64 * half + 2 * lane, + 1 of the tile. */
struct place {
    int warp, lane, part, half;
};

/*
** The calling thread's. What follows from it is worked out anew for each tile: kept from tile to
** tile, it would take registers that the values need.
*/
FN struct place place_here(void)
{
    int thread;

    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    const struct place p = { thread / 32, thread % 32, thread / 32 % 4, thread / 32 / 4 };
    return p;
}

/* Where its values begin in a tile's. */
FN int first_value(const struct place *p)
{
    return ROWS * p->part * LINE + 32 * p->half + p->lane;
}
