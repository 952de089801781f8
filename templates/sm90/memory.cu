//$ -- SPDX-License-Identifier: Apache-2.0
//$ local of_blocks = factors == "squares" or factors == "lines"
//$ local held = dequantize == "rebased" or dequantize == "weights" -- in registers only
//$ local packs = dequantize ~= "none" and not held -- into a ring of their own
//$ local inline = quantize == "mainloop"
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local copies = epilogue == "copies" or epilogue == "gradient_copies"
/* Shared memory, as 32-bit addresses. */
struct memory {
    unsigned int ring; /* stages: A_BYTES of A, and after them B_BYTES of B */
    unsigned int slabs, full, empty;
//$ if packs then
    unsigned int packed; /* stages as they are copied, each an A and after it a B */
//$ end
//$ if dequantize ~= "none" then
    unsigned int words;  /* WORDS_BYTES of scales */
//$ end
//$ if packs then
    unsigned int packed_full, packed_empty;
//$ end
//$ if of_blocks then
    unsigned int sf; /* SF_BYTES of scales for each stage */
//$ end
//$ if inline then
    unsigned int values; /* VALUE_STAGES stages of A's */
    unsigned int values_full, values_empty;
//$ end
//$ if addend == "fetch" then
    unsigned int arrived; /* of $(back and "P" or "C"), a barrier for each slab */
//$ end
//$ if copies then
    unsigned int turned, maxima, columns; /* of the columnwise tensor: see sm90/copies.cu */
//$ end
    unsigned int posted, read, queue;
};

FN struct memory memory_layout(void)
{
    extern __shared__ unsigned char dynamic[];
    struct memory s;

    s.ring = (shared_address(dynamic) + 1023) & ~1023u; /* swizzling repeats every 1024 bytes */
    s.slabs = s.ring + STAGES * $(packs and "SPAN * " or "")STAGE_BYTES;
//$ if copies then
    s.turned = s.slabs + ALL_SLABS_BYTES;
    s.maxima = s.turned + TURNED_BYTES;
    s.columns = s.maxima + MAXIMA_BYTES;
    s.sf = s.columns + COLUMNS_BYTES;
//$ elseif inline then
    s.values = s.slabs + ALL_SLABS_BYTES;
    s.sf = s.values + VALUE_STAGES * VALUE_BYTES;
//$ elseif of_blocks then
    s.sf = s.slabs + ALL_SLABS_BYTES;
//$ end
//$ if inline then
    s.values_full = s.sf + STAGES * SF_BYTES;
    s.values_empty = s.values_full + VALUE_STAGES * 8;
    s.full = s.values_empty + VALUE_STAGES * 8;
//$ elseif of_blocks then
    s.full = s.sf + STAGES * SF_BYTES$(whole and " + 8 * AHEAD * SCALES_BYTES" or "");
//$ elseif held then
    s.words = s.slabs + ALL_SLABS_BYTES;
    s.full = s.words + WORDS_BYTES;
//$ elseif packs then
    s.packed = s.slabs + ALL_SLABS_BYTES;
    s.words = s.packed + PACKED_STAGES * SPAN * PACKED_BYTES;
    s.packed_full = s.words + WORDS_BYTES;
    s.packed_empty = s.packed_full + PACKED_STAGES * 8;
    s.full = s.packed_empty + PACKED_STAGES * 8;
//$ else
    s.full = s.slabs + ALL_SLABS_BYTES;
//$ end
    s.empty = s.full + STAGES * 8;
//$ if addend == "fetch" then
    s.arrived = s.empty + STAGES * 8;
    s.posted = s.arrived + 8 * SLABS * 8;
//$ else
    s.posted = s.empty + STAGES * 8;
//$ end
    s.read = s.posted + QUEUE * 8;
    s.queue = s.read + QUEUE * 8;
    return s;
}
