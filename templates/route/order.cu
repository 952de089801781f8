//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "route/pairs.c"

enum { OWN_GROUPS = MOST_GROUPS / THREADS }; /* of a thread, where groups are added up */
enum { COUNTERS = 16 };                      /* of a group, read together */

/* The next row of each group, for each warp; and groups' totals, then their starts. */
struct room {
    int next[WARPS][MOST_GROUPS], starts[MOST_GROUPS + 1], sums[WARPS];
};

/* The first pair of a warp; that of the warp after the last is the end of the chunk. */
FN int warp_begin(const struct route *r, int chunks, int chunk, int warp)
{
    const int begin = chunk_begin(r->pairs, chunks, chunk);
    const int most = (chunk_begin(r->pairs, chunks, 1) + WARPS - 1) / WARPS;
    const int each = (most + 31) / 32 * 32, end = chunk_begin(r->pairs, chunks, chunk + 1);

    return min(begin + warp * each, end);
}

/* next[warp][group]: the pairs of a warp. Called by all threads. */
FN void count_pairs(struct room *s, const struct route *r, int begin, int end)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    for (int group = lane; group < r->groups; group += 32)
        s->next[warp][group] = 0;
    __syncwarp();
    for (int i = begin + lane; i < end; i += 32 * TOGETHER) {
        int group[TOGETHER];

        groups_of(r, i, 32, end, group);
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
            if (group[j] >= 0)
                atomicAdd(&s->next[warp][group[j]], 1);
    }
    __syncthreads();
}

/* next[warp][group]: the pairs of warps before it and of chunks before this one. starts[group]:
   those of all chunks. Without counters this chunk is the only one. */
FN void add_up(struct room *s, const unsigned int *counters, int groups, int chunks, int chunk)
{
    for (int group = threadIdx.x; group < groups; group += THREADS) {
        int before = 0, total = 0;

        for (int i = 0; counters && i < chunks; i += COUNTERS) {
#pragma unroll
            for (int j = i; j < i + COUNTERS; j++) {
                const int count = j < chunks ? (int)__ldg(counters + j * (groups + 1) + group) : 0;

                before += j < chunk ? count : 0;
                total += count;
            }
        }
        for (int warp = 0; warp < WARPS; warp++) {
            const int count = s->next[warp][group];

            s->next[warp][group] = before;
            before += count;
        }
        s->starts[group] = counters ? total : before;
    }
}

/* Inclusive, over a warp. */
FN int scan(int value, int lane)
{
    for (int distance = 1; distance < 32; distance *= 2) {
        const int below = __shfl_up_sync(~0u, value, distance);

        value += lane >= distance ? below : 0;
    }
    return value;
}

/* Totals become starts. Called by all threads. */
FN void start_groups(struct room *s, int groups)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = threadIdx.x * OWN_GROUPS;
    int own = 0, start;

    for (int i = first; i < first + OWN_GROUPS; i++)
        own += i < groups ? s->starts[i] : 0;
    start = scan(own, lane);
    if (lane == 31)
        s->sums[warp] = start;
    start -= own;
    __syncthreads();
    for (int i = 0; i < warp; i++)
        start += s->sums[i];
    for (int i = first; i < first + OWN_GROUPS && i < groups; i++) {
        const int total = s->starts[i];

        s->starts[i] = start;
        start += total;
        if (i == groups - 1)
            s->starts[groups] = start;
    }
}

/* A warp's pairs in order, 32 at a time. */
FN void order_pairs(struct room *s, const struct route *r, int begin, int end, int *gather,
                    int *inverse)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    int group = begin + lane < end ? group_of(r, begin + lane) : NO_ROW;

    for (int i = begin; i < end; i += 32) {
        const int pair = i + lane;
        const int later = pair + 32 < end ? group_of(r, pair + 32) : NO_ROW; /* on its way */
        const unsigned int alike = __match_any_sync(~0u, group);
        const int before = __popc(alike & ((1u << lane) - 1));
        int row = NO_ROW;

        if (group >= 0)
            row = s->starts[group] + s->next[warp][group] + before;
        __syncwarp();
        if (group >= 0 && before == 0)
            s->next[warp][group] += __popc(alike);
        __syncwarp();
        if (gather && row >= 0)
            gather[row] = pair;
        if (inverse && pair < end)
            inverse[pair] = row;
        group = later;
    }
}

/* The order of a chunk's pairs. Called by all threads. */
FN void order_chunk(struct room *s, const struct route *r, const unsigned int *counters,
                    int chunks, int chunk, int *gather, int *inverse)
{
    const int warp = threadIdx.x / 32;
    const int begin = warp_begin(r, chunks, chunk, warp);
    const int end = warp_begin(r, chunks, chunk, warp + 1);

    count_pairs(s, r, begin, end);
    add_up(s, counters, r->groups, chunks, chunk);
    __syncthreads();
    start_groups(s, r->groups);
    __syncthreads();
    order_pairs(s, r, begin, end, gather, inverse);
}

/* For all threads of one CTA. */
FN void store_sizes(const struct room *s, int groups, int tokens, int *lengths, int *starts,
                    int *count)
{
    if (threadIdx.x == 0 && count)
        *count = tokens;
    for (int i = threadIdx.x; i <= groups; i += THREADS) {
        if (lengths && i < groups)
            lengths[i] = s->starts[i + 1] - s->starts[i];
        if (starts)
            starts[i] = s->starts[i];
    }
}

//$ include "route/report.c"
