//$ -- SPDX-License-Identifier: Apache-2.0
while (uniformly(queue_read(&s, &sequence, &t, &p, lane)))
    gather_tile(&g, &s, &p, &t, warp - 2, lane);
if (warp == 2 && blockIdx.x == 0)
    check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)m, error, lane);
