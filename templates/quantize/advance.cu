/*
** One warp walks for all; what it needs from tile to tile lies in shared memory, where it costs no
** registers.
*/
struct agenda {
    struct walk walk[32]; /* of each lane */
    struct tile tile;
    int first; /* tiles of 128 rows in the groups before the tile's */
    int more;  /* 0: there was no tile left */
};

/* The next tile; 0 if there is none. Called by all threads, when nobody looks at the last one. */
FN int advance(struct agenda *a, int warp, int lane)
{
    struct walk w;
    struct tile t;
    int more;

    if (warp > 0) {
        __syncthreads();
        return a->more;
    }
    w = a->walk[lane];
    more = walk_next(&w, &t, lane);
    a->walk[lane] = w;
    if (lane == 0) {
        a->more = more;
        a->tile = t;
//$ if of == "w" then
        a->first = 0;
//$ else
        a->first = (int)((w.next - w.stride) / w.across) - t.row / TILE_M;
//$ end
    }
    __syncthreads();
    return more;
}
