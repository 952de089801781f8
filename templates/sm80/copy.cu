//$ -- SPDX-License-Identifier: Apache-2.0
/*
** From global memory to shared memory. An operand is rows of contiguous elements: of steps of k if
** it is k-major, else of its other axis. A stage holds some of its rows in chunks of 8 elements.
** Chunks of a row change places so that 8 rows of a column of chunks, which ldmatrix reads at once,
** are in different banks. Elements outside the operand are never read; zeros replace them.
*/
enum { CHUNK = 8, CHUNK_BYTES = 16 };

/* The address of chunk `chunk` of row `row`, in rows of `pitch` bytes. */
FN unsigned int place(int row, int chunk, int pitch)
{
    return row * pitch + (chunk ^ (pitch == 64 ? row / 2 % 4 : row % 8)) * CHUNK_BYTES;
}

/* One thread's share of the copies of an operand for one tile of D. */
struct source {
    const element *next; /* its first chunk in the next stage */
    long long stride;
    int rows, columns; /* of the operand, left from `next` on */
    int unit;          /* bytes whose multiples all chunks start at: 16, 4 or 2 */
};

FN void source_begin(struct source *s, const element *first, long long stride, int rows,
                     int columns, int pitch)
{
    const int row = threadIdx.x / (pitch / CHUNK_BYTES);
    const int column = threadIdx.x % (pitch / CHUNK_BYTES) * CHUNK;
    const unsigned int odd = (unsigned int)((size_t)first | (size_t)stride * sizeof *first);

    s->next = first + row * stride + column;
    s->stride = stride;
    s->rows = rows - row;
    s->columns = columns - column;
    s->unit = odd % 16 == 0 ? 16 : odd % 4 == 0 ? 4 : 2;
}

/*
** The same as copy_async for 8 elements, of which `count` are there, if they do not start at a
** multiple of 16 bytes: 4 bytes at a time, or, without overlap with the products, one by one.
*/
FN void copy_chunk_slowly(unsigned int to, const element *from, int count, int unit)
{
    if (unit == 4) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int left = count - 2 * i;
            copy_async_4(to + 4 * i, from + 2 * i, left <= 0 ? 0 : left == 1 ? 2 : 4);
        }
    } else {
        unsigned int word[4] = { 0 };
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            if (i < count)
                word[i / 2] |= (unsigned int)load_element(from + i) << i % 2 * 16;
        store_shared_x4(to, word);
    }
}

/*
** This thread's chunks of one stage of `bytes` bytes: one column of them, so that the number of
** elements that are left is the same in all.
*/
FN void copy_stage(const struct source *s, unsigned int to, int pitch, int bytes)
{
    const int pass_rows = THREADS * CHUNK_BYTES / pitch, pass_bytes = THREADS * CHUNK_BYTES;
    const int count = s->columns < 0 ? 0 : s->columns < CHUNK ? s->columns : CHUNK;
    const element *from = s->next;

    to += place(threadIdx.x / (pitch / CHUNK_BYTES), threadIdx.x % (pitch / CHUNK_BYTES), pitch);
    if (s->unit == 16) {
#pragma unroll
        for (int i = 0; i < bytes / pass_bytes; i++, from += pass_rows * s->stride)
            copy_async(to + i * pass_bytes, from, i * pass_rows < s->rows ? 2 * count : 0);
    } else {
#pragma unroll 1
        for (int i = 0; i < bytes / pass_bytes; i++, from += pass_rows * s->stride)
            copy_chunk_slowly(to + i * pass_bytes, from, i * pass_rows < s->rows ? count : 0,
                              s->unit);
    }
}
//$ for name, o in pairs { a = a, b = b } do

/* $(name:upper())'s part of a stage; the next one is TILE_K steps of k after it. */
FN void copy_$(name)(struct source *s, unsigned int to)
{
    copy_stage(s, to, $(name:upper())_PITCH, $(name:upper())_BYTES);
//$ if o.major == "k" then
    s->next += TILE_K;
    s->columns -= TILE_K;
//$ else
    s->next += TILE_K * s->stride;
    s->rows -= TILE_K;
//$ end
}
//$ end
