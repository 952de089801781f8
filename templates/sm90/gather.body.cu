//$ -- SPDX-License-Identifier: Apache-2.0
while (uniformly(warp > 0 && queue_read(&s, &sequence, &t, &p, lane))) {
//$ if schedule == "pingpong" then
    sequence -= TURNS - 1; /* these warps take every tile */
//$ end
    gather_tile(&g, &s, &p, &t, &maps, 0, warp, lane);
}
