//$ -- SPDX-License-Identifier: Apache-2.0
/*
** sum += a * b for 64 rows, MMA_N columns and MMA_K steps of k. Both operands are in shared
** memory, in swizzled rows of 128 bytes. Thread t of the warpgroup holds, for each 8 columns j,
**   sum[4j + 0, 1]  row 16 (t / 32) + t % 32 / 4,      columns 8j + 2 (t % 4) + 0, 1
**   sum[4j + 2, 3]  the same 8 rows below.
** With `accumulate` 0 the old sum is not read.
*/
enum { ROWS_OF_8 = 1024 >> 4, SWIZZLE_128 = 1 << 30 }; /* high word of an operand */

//$ local columns = mma_n
//$ local count = columns // 2
//$ local function comma (i) return i < count and "," or "" end
//$ local transposed = { k = 0, mn = 1 }
//$ local number = a.type == "i8" and "int" or "float"
//$ local types = a.type == "i8" and "s32.s8.s8" or "f32." .. a.type .. "." .. b.type
//$ types = dequantize ~= "none" and "f32." .. wide .. "." .. wide or types
//$ local r = a.type == "i8" and "r" or "f"
//$ if turned then
/*
** Swapped: the 64 rows are B's, and they come from registers; the columns are A's rows, which are
** in shared memory. A thread holds D transposed.
*/
//$ end
//$ if dequantize == "registers" or turned then
//$ -- of swapped ones also products of fewer columns, and as f16
//$ local swapped = dequantize == "swapped" or dequantize == "weights"
//$ for _, columns in ipairs(swapped and few > 0 and { mma_n, few } or { mma_n }) do
//$ for _, type in ipairs(swapped and wide == "either" and { "bf16", "f16" } or { wide }) do
//$ local count = columns // 2
//$ local function comma (i) return i < count and "," or "" end
//$ local name = columns == mma_n and "mma" or "mma_few"
//$ name = name .. (type ~= wide and type == "f16" and "_f16" or "")
//$ local types = "f32." .. type .. "." .. type
//$ local tail = bytes == 2 and ", 0" or "" -- not transposed
//$ local two, on = bytes == 2 and "two" or "four", bytes == 2 and "8" or "16"
/* From registers: $(two) neighbours in k of a row; of the row 8 below; the same $(on) steps on. */
FN void $(name)(float *sum, unsigned int a0, unsigned int a1, unsigned int a2, unsigned int a3,
                unsigned int b, int accumulate)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 ".reg .b64 b;\n"
                 "mov.b64 b, {%$(count + 4), %$(count + 6)};\n"
                 "setp.ne.b32 p, %$(count + 5), 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n$(columns)k$(32 // bytes).$(types) {\n"
//$ for i = 0, count - 1, 4 do
                 "%$(i), %$(i + 1), %$(i + 2), %$(i + 3)$(comma(i + 4))\n"
//$ end
                 "}, {%$(count), %$(count + 1), %$(count + 2), %$(count + 3)}, b, p, 1, 1$(tail);\n"
                 "}"
                 :
//$ for i = 0, count - 1, 4 do
                 "+f"(sum[$(i)]), "+f"(sum[$(i + 1)]),
                 "+f"(sum[$(i + 2)]), "+f"(sum[$(i + 3)])$(comma(i + 4))
//$ end
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b), "r"(accumulate),
                   "n"(SWIZZLE_128 | ROWS_OF_8));
}

//$ end
//$ end
//$ else
FN void mma($(number) *sum, unsigned int a, unsigned int b, int accumulate)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 ".reg .b64 a, b;\n"
                 "mov.b64 a, {%$(count), %$(count + 3)};\n"
                 "mov.b64 b, {%$(count + 1), %$(count + 3)};\n"
                 "setp.ne.b32 p, %$(count + 2), 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n$(columns)k$(32 // bytes)"
                 ".$(types) {\n"
//$ for i = 0, count - 1, 4 do
                 "%$(i), %$(i + 1), %$(i + 2), %$(i + 3)$(comma(i + 4))\n"
//$ end
//$ if bytes == 2 then
                 "}, a, b, p, 1, 1, $(transposed[a.major]), "
                 "$(transposed[b.major]);\n"
//$ elseif a.type == "i8" then
                 "}, a, b, p;\n"
//$ else
                 "}, a, b, p, 1, 1;\n"
//$ end
                 "}"
                 :
//$ for i = 0, count - 1, 4 do
                 "+$(r)"(sum[$(i)]), "+$(r)"(sum[$(i + 1)]),
                 "+$(r)"(sum[$(i + 2)]), "+$(r)"(sum[$(i + 3)])$(comma(i + 4))
//$ end
                 : "r"(a), "r"(b), "r"(accumulate), "n"(SWIZZLE_128 | ROWS_OF_8));
}
//$ end

/*
** The description of a tile at a shared address for the tensor cores: this, and the high word
** above. k-major: a row of 128 bytes for each row of the tile. mn-major: chunks of 64 rows of the
** tile, each with a row of 128 bytes for each step of k. Addresses count 16 bytes, in 14 bits; the
** bits above them in a shared address tell the CTA of a cluster.
*/
FN unsigned int mma_operand(unsigned int address)
{
    return (address >> 4 & 0x3fff) | TILE_K * 128 >> 4 << 16;
}

/* `count` sums are ready: keeps the compiler from reading them before the wait above the call. */
FN void mma_finish($(number) *sum, int count)
{
    for (int i = 0; i < count; i++)
        asm volatile("" : "+$(r)"(sum[i]) : : "memory");
}
//$ if (dequantize == "swapped" or dequantize == "weights") and lowered > 0 then

/* The factor that the operands' values lack: a power of two, so nothing is rounded. */
FN void mma_raise(float *sum, int count)
{
    for (int i = 0; i < count; i++)
        sum[i] *= 0x1p$(lowered)f;
}
//$ end
