//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The order of pairs (token, k) by expert, then token, then k: the second launch of a route, a
** stable counting sort.
**
**   index     [m, topk]              int32 or int64
**   counters  [chunks][groups + 1]   of the first launch, by as many CTAs
**   lengths   [groups]               rows of each expert
**   starts    [groups + 1]           where they begin, and the end
**   gather    [m * topk]             row -> token * topk + k; rows past the end are not written
**   inverse   [m, topk]              the row of each pair, or -1
**
** A CTA has a chunk, a warp an eighth of it, which it goes through in order, 32 pairs at a time.
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads), WARPS = THREADS / 32 };

//$ include "route/pairs.c"

enum { EACH = MOST_GROUPS / THREADS }; /* groups of a thread, where groups are added up */

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

/* next[warp][group]: the pairs of a warp, then those of warps before it and of chunks before this
   one. starts[group]: those of all chunks. */
FN void add_up(struct room *s, const unsigned int *counters, int groups, int chunks, int chunk)
{
    for (int group = threadIdx.x; group < groups; group += THREADS) {
        int before = 0, total = 0;

        for (int i = 0; i < chunks; i++) {
            const int count = (int)__ldg(counters + i * (groups + 1) + group);

            before += i < chunk ? count : 0;
            total += count;
        }
        for (int warp = 0; warp < WARPS; warp++) {
            const int count = s->next[warp][group];

            s->next[warp][group] = before;
            before += count;
        }
        s->starts[group] = total;
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
FN void start_groups(struct room *s, int groups, int lane)
{
    const int warp = threadIdx.x / 32, first = threadIdx.x * EACH;
    int own = 0, start;

    for (int i = first; i < first + EACH; i++)
        own += i < groups ? s->starts[i] : 0;
    start = scan(own, lane);
    if (lane == 31)
        s->sums[warp] = start;
    start -= own;
    __syncthreads();
    for (int i = 0; i < warp; i++)
        start += s->sums[i];
    for (int i = first; i < first + EACH && i < groups; i++) {
        const int total = s->starts[i];

        s->starts[i] = start;
        start += total;
        if (i == groups - 1)
            s->starts[groups] = start;
    }
}

//$ include "route/report.c"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    __shared__ struct room s;
    const struct route r = { index, sizes_bytes, m * topk, first_expert, groups, experts };
    const int chunk = blockIdx.x, chunks = count_chunks(r.pairs, gridDim.x);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int begin = warp_begin(&r, chunks, chunk, warp);
    const int end = warp_begin(&r, chunks, chunk, warp + 1);

    //$ include "common/wait.body.cu"
    if (chunk >= chunks)
        return;
    for (int i = threadIdx.x; i < WARPS * MOST_GROUPS; i += THREADS)
        s.next[i / MOST_GROUPS][i % MOST_GROUPS] = 0;
    __syncthreads();
    for (int i = begin + lane; i < end; i += 32) {
        const int group = group_of(&r, i);

        if (group >= 0)
            atomicAdd(&s.next[warp][group], 1);
    }
    __syncthreads();
    add_up(&s, counters, groups, chunks, chunk);
    __syncthreads();
    start_groups(&s, groups, lane);
    __syncthreads();
    for (int i = begin; i < end; i += 32) {
        const int pair = i + lane, group = pair < end ? group_of(&r, pair) : NO_ROW;
        const unsigned int alike = __match_any_sync(~0u, group);
        const int before = __popc(alike & ((1u << lane) - 1));
        int row = NO_ROW;

        if (group >= 0)
            row = s.starts[group] + s.next[warp][group] + before;
        __syncwarp();
        if (group >= 0 && before == 0)
            s.next[warp][group] += __popc(alike);
        __syncwarp();
        if (gather && row >= 0)
            gather[row] = pair;
        if (inverse && pair < end)
            inverse[pair] = row;
    }
    if (chunk > 0)
        return;
    for (int i = threadIdx.x; i <= groups; i += THREADS) {
        if (lengths && i < groups)
            lengths[i] = s.starts[i + 1] - s.starts[i];
        if (starts)
            starts[i] = s.starts[i];
    }
    if (threadIdx.x == 0)
        report(&r, counters, chunks, error);
}
