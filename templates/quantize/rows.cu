//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Quantize $(of) for $(recipe), from $(input.type), where only the rowwise tensor is wanted: groups
** of rows.
**
**   row  [m, k]  $(element.type), a scale for each row
**
** Each warp has rows of its own in shared memory, where it finds a row's largest magnitude and then
** casts it, so that the input is read once. No warp waits for another.
*/
//$ include "quantize/head.cu"

//$ include "quantize/packed.cu"

//$ include "quantize/pairs.cu"

//$ include "quantize/reduce.cu"

//$ include "sm90/ptx_barrier.cu"

/* From a row's largest magnitude: the stored scale, and the values' factor. */
//$ rule "scale"

//$ local bytes = input.bits // 8
//$ local bits = element.bits == 4 and 4 or 8 -- in memory
enum {
    WARPS = THREADS / 32,
    ROOM = $(smem), /* bytes of all slots */
    MOST_SLOTS = 8, /* of a warp */
    LINES = 4,  /* rows that a warp takes from a tile at a time */
    EIGHT = 8,  /* values of a lane, side by side */
    SPAN = 256  /* values of a warp */
};

typedef $(input.bits == 16 and "unsigned short" or "unsigned int") in_element;

struct source {
    const in_element *in;
    long long stride;
    int k, aligned;    /* rows are whole pieces of 16 bytes */
    const int *gather; /* null, or the pair of each row, whose token is the row to read */
    int topk;
};

/* Each warp's slots: the copy engine's barriers, and the row that is in each, or -1. */
struct shared {
    __align__(8) unsigned long long landed[WARPS][MOST_SLOTS];
    int row[WARPS][MOST_SLOTS];
};

/* The progress of a warp. */
struct lines {
    struct scheduler scheduler;
    int row, end; /* of all rows; -1: there are no more */
    unsigned int number, stride; /* of LINES rows of a tile, over all groups */
};

/* Come to the warp's next row. By all of its lanes. */
FN void lines_step(struct lines *l, int lane)
{
    const int parts = TILE_M / LINES;

    if (l->row < 0 || ++l->row < l->end)
        return;
    do {
        const int first = (int)(l->number % parts) * LINES;
        struct tile t;
        int left;

        l->scheduler.next = l->number / parts;
        l->number += l->stride;
        if (!scheduler_next(&l->scheduler, &t, lane)) {
            l->row = -1;
            return;
        }
        left = (int)t.length - t.row - first;
        l->row = (int)t.start + t.row + first;
        l->end = l->row + (left < LINES ? left : LINES);
    } while (l->row >= l->end);
}

/* This warp's reads of shared memory come before the copy engine's writes there. */
FN void reads_done(void)
{
    copy_engine_fence();
    __syncwarp();
}

/* `bytes` from memory, all of them multiples of 16; the barrier is told when they land. */
FN void copy_line(unsigned int to, const void *from, unsigned int bytes, unsigned int barrier)
{
    barrier_expect(barrier, bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 : : "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

/* Row `row` into a slot; there is none if it is -1. By all lanes. */
FN void load_row(int row, const struct source *s, int *note, unsigned int landed,
                 in_element *slot, int lane)
{
    const int line = row >= 0 && s->gather ? s->gather[row] / s->topk : row;
    const in_element *const from = s->in + line * s->stride;

    if (lane == 0)
        *note = row;
    if (row >= 0 && s->aligned) {
        if (lane == 0)
            copy_line(shared_address(slot), from, s->k * $(bytes), landed);
    } else {
        for (int i = lane; row >= 0 && i < ceil_div(s->k, EIGHT) * EIGHT; i += 32)
            slot[i] = i < s->k ? from[i] : 0;
        __syncwarp();
        if (lane == 0)
            barrier_arrive(landed);
    }
    __syncwarp();
}

/* A lane's values, from a slot. */
FN void read_eight(packed v[4], const in_element *at)
{
//$ if input.bits == 16 then
    const uint4 word = *(const uint4 *)at;

    v[0] = word.x;
    v[1] = word.y;
    v[2] = word.z;
    v[3] = word.w;
//$ else
    const float4 *const from = (const float4 *)at;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float4 four = from[i];
        v[2 * i] = pack(four.x, four.y);
        v[2 * i + 1] = pack(four.z, four.w);
    }
//$ end
}

FN void no_values(packed v[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = pack(0, 0);
}

/* The largest magnitude of eight values. */
FN float largest_of_eight(const packed v[4])
{
    const magnitudes m = larger_pair(larger_pair(magnitudes_of(v[0]), magnitudes_of(v[1])),
                                     larger_pair(magnitudes_of(v[2]), magnitudes_of(v[3])));

    return larger(low_of(m), high_of(m));
}

/* Eight values times a factor, as codes. */
FN void store_eight(unsigned char *to, const packed v[4], float factor)
{
    unsigned codes[4];

#pragma unroll
    for (int i = 0; i < 4; i++)
        codes[i] = to_$(element.type)_x2(mul_rn(lo_of(v[i]), factor),
                                         mul_rn(hi_of(v[i]), factor)$(element.zero));
//$ if bits == 4 then
    *(unsigned *)to = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
//$ else
    *(uint2 *)to = make_uint2(codes[0] | codes[1] << 16, codes[2] | codes[3] << 16);
//$ end
}

//$ local sf_type = scale.type == "f32" and "float" or "unsigned int"
/* A row that is in shared memory: its scale, then its codes, zeros up to the copy's stride. */
FN void cast_line(const in_element *slot, int k, unsigned char *to, long long stride,
                  sf_element *row_sf, int lane)
{
    float most = 0, factor;
    $(sf_type) sf;
    packed v[4];

#pragma unroll 4
    for (int f = lane * EIGHT; f < k; f += SPAN) {
        read_eight(v, slot + f);
        most = larger(most, largest_of_eight(v));
    }
    factor = scale_of(reduce_lanes<32>(most), &sf);
    if (lane == 0)
        *row_sf = (sf_element)sf;
#pragma unroll 4
    for (int f = lane * EIGHT; f < stride; f += SPAN) {
        if (f < k)
            read_eight(v, slot + f);
        else
            no_values(v);
        store_eight(to + f$(bits == 4 and " / 2" or ""), v, factor);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    extern __shared__ uint4 memory[];
    __shared__ struct shared shared;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int slot_values = ceil_div(k, EIGHT) * EIGHT, fit = ROOM / $(bytes) / slot_values;
    const int warps = fit < WARPS ? fit : WARPS; /* that have room */
    const int slots = fit / warps < MOST_SLOTS ? fit / warps : MOST_SLOTS;
    in_element *const room = (in_element *)memory + warp * slots * slot_values;
    struct source source;
    struct lines l;
    struct scheduler w;
    const unsigned int landed = shared_address(shared.landed[warp]);
    int slot = 0, parity = 0;

    //$ include "common/enter.body.cu"
    if (warp >= warps)
        return;
    source.in = (const in_element *)in;
    source.stride = in_stride;
    source.k = k;
    source.gather = gather;
    source.topk = topk;
    source.aligned = (unsigned long long)in % 16 == 0 && in_stride % $(16 // bytes) == 0 &&
                     k % $(16 // bytes) == 0;
    //$ include "quantize/begin.body.cu"
    w.across = 1;
    l.scheduler = w;
    l.row = l.end = 0;
    l.number = (unsigned int)warp * gridDim.x + blockIdx.x;
    l.stride = gridDim.x * warps;
    if (lane < slots)
        barrier_init(landed + lane * 8, 1);
    barrier_init_fence();
    __syncwarp();
    for (int i = 0; i < slots; i++) {
        lines_step(&l, lane);
        load_row(l.row, &source, &shared.row[warp][i], landed + i * 8, room + i * slot_values,
                 lane);
    }
    for (;;) {
        in_element *const values = room + slot * slot_values;
        const long long line = shared.row[warp][slot];

        if (line < 0)
            break;
        barrier_wait(landed + slot * 8, parity);
        cast_line(values, k, row + line * row_stride$(bits == 4 and " / 2" or ""), row_stride,
                  (sf_element *)row_sf + line, lane);
        reads_done();
        lines_step(&l, lane);
        load_row(l.row, &source, &shared.row[warp][slot], landed + slot * 8, values, lane);
        slot = slot + 1 < slots ? slot + 1 : 0;
        parity ^= slot == 0;
    }
    //$ include "quantize/end.body.cu"
}
