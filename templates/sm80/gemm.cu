//$ -- SPDX-License-Identifier: Apache-2.0
//$ local many, of = { [true] = "groups, ", [false] = "" }, { m = "rows", n = "columns" }
/*
** d = alpha * a * b^T + beta * c for each group.
//$ if ragged == "none" then
** All groups have the same sizes.
//$ elseif ragged == "k" then
** The groups divide the steps of k among them. The product of an empty group is 0.
//$ else
** The groups divide the $(of[ragged]) of d among them. Those of no group are not written.
//$ end
**
**   a     [$(many[a.ragged == "none"])$(a.major == "k" and "m, k" or "k, m")]  $(a.type)
**   b     [$(many[b.ragged == "none"])$(b.major == "k" and "n, k" or "k, n")]  $(b.type)
**   d, c  [$(many[d.ragged == "none"])m, n]  $(d.type); c may be d, and is not read where beta is 0
**
** Needs nothing that came after sm_80, and no alignment: where rows do not start at multiples of 16
** bytes, elements are copied in smaller units.
**
** Persistent CTAs take the tiles of d. All threads copy a and b into a ring of STAGES stages,
** ahead of the products, in which all warps share the tile.
*/
enum {
    THREADS = $(threads),
    TILE_M = $(tile.m),
    TILE_N = $(tile.n),
    TILE_K = $(tile.k),
    WARP_M = $(warp[1]), /* rows of D that one warp sums */
    WARP_N = $(warp[2]),
    STAGES = $(stages),
    /* Bytes of a row in shared memory, and of a stage. */
    A_PITCH = $(a.major == "k" and tile.k or tile.m) * 2,
    B_PITCH = $(b.major == "k" and tile.k or tile.n) * 2,
    A_BYTES = TILE_M * TILE_K * 2,
    B_BYTES = TILE_N * TILE_K * 2,
    STAGE_BYTES = A_BYTES + B_BYTES
};

//$ include "sm80/ptx.cu"

//$ if ragged ~= "none" then
//$ include "common/sizes.c"

//$ include("common/check_sizes.cu", { rolled = false })

//$ end
//$ include "common/scheduler.cu"

//$ include "sm80/copy.cu"

//$ include "sm80/fragment.cu"

//$ include(d.bytes == 4 and "sm80/words_f32.cu" or "sm80/words_16bit.cu")

//$ include "sm80/store.cu"

/* The ring, and between two tiles the warps' slabs. */
FN unsigned char *shared_memory(void)
{
    extern __shared__ __align__(128) unsigned char dynamic[];
    return dynamic;
}

FN int next_stage(int stage)
{
    return stage + 1 < STAGES ? stage + 1 : 0;
}

/*
** sum += a * b over k steps of k, at least one, for the warp whose sums begin at `row`, `column` of
** the tile. Operands for the next 16 steps are read while the tensor cores work on these. A stage
** is filled again only after a barrier after its last reader; each thread commits one batch for
** each stage, filled or not, so that the number of pending batches tells which stage has landed.
*/
FN void multiply_tile(float sum[WARP_M / 16][WARP_N / 8][4], struct source *a,
                      struct source *b, int k, int row, int column)
{
    const unsigned int ring = shared_address(shared_memory());
    const int stages = k / TILE_K + (k % TILE_K > 0);
    struct fragments f[2];
    int filled = STAGES - 1, used = 0; /* stages of the ring */

#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < stages) {
            copy_a(a, ring + i * STAGE_BYTES);
            copy_b(b, ring + i * STAGE_BYTES + A_BYTES);
        }
        copy_commit();
    }
    copy_wait(STAGES - 2);
    __syncthreads();
    load_fragments(&f[0], ring, row, column, 0);
#pragma unroll 1
    for (int i = 0; i < stages; i++) {
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++) {
            if (step == TILE_K / 16 - 1) {
                copy_wait(STAGES - 2);
                __syncthreads();
                used = next_stage(used);
            }
            load_fragments(&f[(step + 1) % 2], ring + used * STAGE_BYTES, row, column,
                           (step + 1) % (TILE_K / 16) * 16);
            if (step == 0) {
                if (i + STAGES - 1 < stages) {
                    copy_a(a, ring + filled * STAGE_BYTES);
                    copy_b(b, ring + filled * STAGE_BYTES + A_BYTES);
                }
                copy_commit();
                filled = next_stage(filled);
            }
            multiply(sum, &f[step % 2]);
        }
    }
}

//$ include "sm80/matrix.cu"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int warp = threadIdx.x / 32$(ragged == "none" and "" or ", lane = threadIdx.x % 32");
    const int warp_row = warp % (TILE_M / WARP_M) * WARP_M;
    const int warp_column = warp / (TILE_M / WARP_M) * WARP_N;
    float *slab = (float *)shared_memory() + warp * 16 * SLAB_PITCH;
    struct scheduler w;
    struct tile t;

    //$ local total = "(unsigned int)" .. ragged
    //$ include("sm80/schedule.body.cu", { total = total, first = "blockIdx.x" })
//$ local by_lane = ragged == "none" and "" or ", lane"
    while (scheduler_next(&w, &t$(by_lane))) {
//$ local length = { m = "m", n = "n", k = "k", [ragged] = "(int)t.length" }
//$ local first = { m = "", n = "", [ragged] = "t.start + (long long)" }
        const int rows = $(length.m) - t.row, columns = $(length.n) - t.column, steps = $(length.k);
        /* The tile's first row and column in the buffers. */
        const long long row = $(first.m)t.row, column = $(first.n)t.column;
        float sum[WARP_M / 16][WARP_N / 8][4] = { { { 0 } } };
        struct source a_source, b_source;
        struct target target;
//$ for name, o in pairs { a = a, b = b } do
//$ if o.ragged == "none" then
        const element *$(name)_first =
            (const element *)matrix_of($(name), $(name)_pointers, 2 * $(name)_group_stride,
                                       t.group);
//$ else
        const element *$(name)_first = (const element *)$(name);
//$ end
//$ end

//$ for name, o in pairs { a = a, b = b } do
//$ local at = name == "a" and "row" or "column"
//$ local stride, pitch = name .. "_stride", name:upper() .. "_PITCH"
//$ local along_k = o.major == "k" and " + t.start" or " + t.start * " .. stride
//$ if ragged ~= "k" then along_k = "" end
//$ if o.major == "k" then
        source_begin(&$(name)_source, $(name)_first + $(at) * $(stride)$(along_k), $(stride),
                     $(at)s, steps, $(pitch));
//$ else
        source_begin(&$(name)_source, $(name)_first + $(at)$(along_k), $(stride),
                     steps, $(at)s, $(pitch));
//$ end
//$ end
        if (steps > 0)
            multiply_tile(sum, &a_source, &b_source, steps, warp_row, warp_column);
//$ if params.extra_k then
        //$ include "sm80/extra.body.cu"
//$ end
        //$ include("sm80/finish.body.cu", { row = "row", column = "column", columns = "columns" })
    }
//$ if ragged ~= "none" then
    if (blockIdx.x == gridDim.x - 1 && warp == 0) /* it has the fewest tiles */
        check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)$(ragged), error, lane);
//$ end
}
