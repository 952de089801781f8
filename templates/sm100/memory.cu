//$ -- SPDX-License-Identifier: Apache-2.0
//$ local back = epilogue == "gradient_copies"
//$ local copies = epilogue == "copies" or back
//$ local maxima = back or copies and a.scale.k == 128
/* Shared memory, as 32-bit addresses. */
struct memory {
    unsigned int ring; /* stages: A_BYTES of A, and after them B_BYTES of B */
    unsigned int slabs, full, empty;
//$ if pair then
    unsigned int both_full; /* full, in the first CTA of the pair: for the copies of both */
//$ end
//$ if addend == "fetch" then
    unsigned int arrived; /* of P, a barrier for each slab */
//$ end
    unsigned int posted, read, queue;
    unsigned int sums_full, sums_empty; /* two of each: see sm100/sums.cu */
    unsigned int sums; /* a word: where they are */
//$ if scales == "native" then
    unsigned int sf, sf_full; /* the scales of each stage, SF_BYTES; a barrier each */
//$ end
//$ if copies then
    unsigned int turned, columns; /* of the columnwise tensor: see sm90/copies.cu */
//$ if maxima then
//$ local where = back and "sm100/store_gradient_copies.cu" or "sm90/copies.cu"
    unsigned int maxima; /* of columns, of each warp: see $(where) */
//$ end
//$ end
};

FN struct memory memory_layout(void)
{
    extern __shared__ unsigned char dynamic[];
    struct memory s;

    s.ring = (shared_address(dynamic) + 1023) & ~1023u; /* swizzling repeats every 1024 bytes */
//$ if scales == "native" then
    s.sf = s.ring + STAGES * STAGE_BYTES;
//$ if accumulators == 1 then
    s.slabs = (s.sf + STAGES * SF_BYTES + 1023) & ~1023u; /* as swizzled as the ring */
//$ else
    s.slabs = s.sf + STAGES * SF_BYTES;
//$ end
//$ else
    s.slabs = s.ring + STAGES * STAGE_BYTES;
//$ end
//$ if copies then
    s.turned = s.slabs + ALL_SLABS_BYTES;
//$ if maxima then
    s.maxima = s.turned + TURNED_BYTES;
    s.columns = s.maxima + MAXIMA_BYTES;
//$ else
    s.columns = s.turned + TURNED_BYTES;
//$ end
    s.full = s.columns + COLUMNS_BYTES;
//$ else
    s.full = s.slabs + ALL_SLABS_BYTES;
//$ end
    s.empty = s.full + STAGES * 8;
//$ if pair then
    s.both_full = first_of_pair(s.full);
//$ end
//$ if addend == "fetch" then
    s.arrived = s.empty + STAGES * 8;
    s.posted = s.arrived + WARPS * SLABS * 8;
//$ else
    s.posted = s.empty + STAGES * 8;
//$ end
    s.read = s.posted + QUEUE * 8;
    s.sums_full = s.read + QUEUE * 8;
    s.sums_empty = s.sums_full + 2 * 8;
//$ if scales == "native" then
    s.sf_full = s.sums_empty + 2 * 8;
    s.queue = (s.sf_full + STAGES * 8 + 15) & ~15u; /* its slots are read 16 bytes at a time */
//$ else
    s.queue = (s.sums_empty + 2 * 8 + 15) & ~15u; /* its slots are read 16 bytes at a time */
//$ end
    s.sums = s.queue + QUEUE * SLOT_BYTES;
    return s;
}

/* How many arrivals end a phase of each barrier. By one thread. */
FN void barriers_make(const struct memory *s)
{
    for (int i = 0; i < STAGES; i++) {
//$ if gather ~= "none" and pair then
        /* The second CTA's tells that its rows of A are there, and the first one's has it told. */
        barrier_init(s->full + i * 8, GATHER_THREADS + (cluster_rank() == 0 ? 2 : 0));
//$ else
        barrier_init(s->full + i * 8, 1$(gather ~= "none" and " + GATHER_THREADS" or ""));
//$ end
        barrier_init(s->empty + i * 8, 1);
//$ if scales == "native" then
        barrier_init(s->sf_full + i * 8, CTAS * SCALERS);
//$ end
    }
    for (int i = 0; i < QUEUE; i++) {
        barrier_init(s->posted + i * 8, 1);
//$ local scalers = scales == "native" and " + SCALERS" or ""
//$ local more = scalers .. (gather ~= "none" and " + GATHER_THREADS / 32" or "")
        barrier_init(s->read + i * 8, 1 + WARPS$(more));
    }
    for (int i = 0; i < 2; i++) {
        barrier_init(s->sums_full + i * 8, 1);
        barrier_init(s->sums_empty + i * 8, CTAS * WARPS);
    }
//$ if addend == "fetch" then
    for (int i = 0; i < WARPS * SLABS; i++)
        barrier_init(s->arrived + i * 8, 1);
//$ end
    barrier_init_fence();
}
