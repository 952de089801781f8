//$ -- SPDX-License-Identifier: Apache-2.0
/* How many arrivals end a phase of each. By one thread. */
//$ local inline = quantize == "mainloop"
//$ local gathers = gather ~= "none"
//$ local packs = dequantize ~= "none" and dequantize ~= "rebased" and dequantize ~= "weights"
//$ local makers = gathers and "1 + GATHER_THREADS" -- of a stage
//$ makers = makers or packs and 4 or inline and "1 + WARPS" or 1 -- of a stage
//$ local multiply = schedule == "cooperative" and 8 or 4
//$ multiply = dequantize == "weights" and threads // 32 - 4 or multiply
//$ local between = packs and 4 or (inline or gathers) and 3 or 0
FN void barriers_make(const struct memory *s)
{
    for (int i = 0; i < STAGES; i++) {
        barrier_init(s->full + i * 8, $(makers));
        barrier_init(s->empty + i * 8, $(multiply) * CTAS);
    }
//$ if packs then
    for (int i = 0; i < PACKED_STAGES; i++) {
        barrier_init(s->packed_full + i * 8, 1);
        barrier_init(s->packed_empty + i * 8, $(packed_readers));
    }
//$ elseif inline then
    for (int i = 0; i < VALUE_STAGES; i++) {
        barrier_init(s->values_full + i * 8, 1);
        barrier_init(s->values_empty + i * 8, WARPS);
    }
//$ end
    for (int i = 0; i < QUEUE; i++) {
        barrier_init(s->posted + i * 8, 1);
        barrier_init(s->read + i * 8, $(multiply + between));
    }
//$ if addend == "fetch" then
    for (int i = 0; i < 8 * SLABS; i++)
        barrier_init(s->arrived + i * 8, 1);
//$ end
    barrier_init_fence();
}
