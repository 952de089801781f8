//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The order of pairs (token, k) by expert, then token, then k, on the host: the second step of a
** route, a stable counting sort.
**
**   counters  [chunks][groups + 1]   of the first step, by as many workers
**   gather    [m * topk]             rows past the end are not written
**   inverse   [m, topk]              the row of each pair, or -1
**   token_count  [1]                 m; or null
*/
//$ include "route/pairs.c"

//$ include "route/report.c"

void $(name)(void *const *params, int worker, int workers)
{
    //$ include "host/params.c"
    const struct route r = { index, sizes_bytes, m * topk, first_expert, groups, experts };
    const int chunks = count_chunks(r.pairs, workers);
    int next[MOST_GROUPS], end = 0;

    if (worker >= chunks)
        return;
    for (int group = 0; group < groups; group++) {
        const int start = end;

        next[group] = start;
        for (int i = 0; i < chunks; i++) {
            const int count = (int)counters[(long long)i * (groups + 1) + group];

            next[group] += i < worker ? count : 0;
            end += count;
        }
        if (worker == 0 && lengths)
            lengths[group] = end - start;
        if (worker == 0 && starts)
            starts[group] = start;
    }
    if (worker == 0 && starts)
        starts[groups] = end;
    if (worker == 0 && token_count)
        *token_count = m;
    for (int i = chunk_begin(r.pairs, chunks, worker);
         i < chunk_begin(r.pairs, chunks, worker + 1); i++) {
        const int group = group_of(&r, i), row = group >= 0 ? next[group]++ : NO_ROW;

        if (gather && row >= 0)
            gather[row] = i;
        if (inverse)
            inverse[i] = row;
    }
    for (int i = 0; worker == 0 && i < chunks; i++) {
        const unsigned int pair = counters[(long long)i * (groups + 1) + groups];

        if (pair != ~0u) {
            report(&r, pair, error);
            break;
        }
    }
}
