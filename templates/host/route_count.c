//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Rows of each local expert in chunks of pairs (token, k), on the host: the first step of a route.
**
**   counters  [chunks][groups + 1]   rows of each group; then the first pair that names no expert
*/
//$ include "route/pairs.c"

void $(name)(void *const *params, int worker, int workers)
{
    //$ include "host/params.c"
    const struct route r = { index, sizes_bytes, m * topk, first_expert, groups, experts };
    const int chunks = count_chunks(r.pairs, workers);
    unsigned int *const counts = counters + (long long)worker * (groups + 1);

    if (worker >= chunks)
        return;
    for (int i = 0; i <= groups; i++)
        counts[i] = i < groups ? 0 : ~0u;
    for (int i = chunk_begin(r.pairs, chunks, worker);
         i < chunk_begin(r.pairs, chunks, worker + 1); i++) {
        const int group = group_of(&r, i);

        if (group >= 0)
            counts[group]++;
        else if (group == BAD_INDEX && counts[groups] == ~0u)
            counts[groups] = (unsigned int)i;
    }
}
