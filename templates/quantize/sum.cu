//$ -- SPDX-License-Identifier: Apache-2.0
/*
** dbias of $(of) in $(recipe): the sums of 32 rows each, which quantize leaves in the workspace,
** added up in ascending order. A group without rows gets zeros, or stays as it is where sums are
** added to dbias.
**
**   partials  [tiles * 4, k]  a group's begin with its first tile of 128 rows
**   dbias     [groups, k]
**
** A CTA takes 32 features of a group at a time. All of its warps load sums into shared memory, and
** one adds them up while the next are in flight.
*/
//$ include "quantize/head.cu"

enum {
    FEATURES = 32,        /* of a CTA at a time: a lane has one */
    WARPS = THREADS / 32,
    EACH = 16,            /* sums that a thread loads at once */
    BATCH = WARPS * EACH
};

/* A group's sums. */
struct parts {
    const float *from; /* the first one of feature 0 */
    int count;
};

/* Those of `group`; groups come in ascending order. Called by all lanes of a warp. */
FN struct parts find_parts(struct scheduler *w, int group, const struct shape *all,
                           const float *partials, int lane)
{
    struct parts p;
    const int most = most_tiles(all);
    int first, length, left;

    while (group >= w->base + 32) {
        w->strips_before += __shfl_sync(~0u, w->strips_end, 31);
        w->base += 32;
        scheduler_read(w, lane);
    }
    first = (int)__shfl_sync(~0u, w->strips_end - strips_of(w->length), group - w->base);
    first += (int)w->strips_before;
    length = (int)__shfl_sync(~0u, w->length, group - w->base);
    /* For groups that overlap, whose tiles may even be too many to be counted. */
    left = first >= 0 && first < most ? (most - first) * (TILE_M / ROWS) : 0;
    p.from = partials + (long long)first * (TILE_M / ROWS) * all->k;
    p.count = ceil_div(length, ROWS);
    p.count = p.count < left ? p.count : left;
    return p;
}

/* A thread's sums of a batch: every WARPS-th from `from` on, of `left` that there are. */
FN void load(float some[EACH], const float *from, int left, int k)
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        some[i] = i * WARPS < left ? *from : 0;
        from += (long long)WARPS * k;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    __shared__ float batch[BATCH][FEATURES];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
    const unsigned int across = (unsigned int)ceil_div(k, FEATURES);
    struct scheduler w;

    //$ include "common/enter.body.cu"
    //$ include "quantize/begin.body.cu"
    const unsigned int tasks = (unsigned int)groups * across;
    for (unsigned int task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int group = (int)(task / across);
        const int feature = (int)(task - group * across) * FEATURES + lane;
        const struct parts p = find_parts(&w, group, &all, partials, lane);
        const float *from = p.from + (long long)warp * k + feature;
        float some[EACH], sum = -0.0f; /* to which -0 may be added */

        load(some, from, feature < k ? p.count - warp : 0, k);
        for (int begin = 0; begin < p.count; begin += BATCH) {
            const int count = p.count - begin < BATCH ? p.count - begin : BATCH;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                batch[i * WARPS + warp][lane] = some[i];
            __syncthreads();
            from += (long long)BATCH * k;
            if (begin + BATCH < p.count)
                load(some, from, feature < k ? p.count - warp - begin - BATCH : 0, k);
            if (warp == 0) {
#pragma unroll 16
                for (int i = 0; i < count; i++)
                    sum = add_rn(sum, batch[i][lane]);
            }
            __syncthreads();
        }
        if (warp == 0 && feature < k) {
            float *const to = &dbias[(long long)group * k + feature];
            if (!dbias_add)
                *to = p.count > 0 ? sum : 0;
            else if (p.count > 0)
                *to = add_rn(*to, sum);
        }
    }
}
