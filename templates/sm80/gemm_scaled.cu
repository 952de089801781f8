//$ -- SPDX-License-Identifier: Apache-2.0
//$ local many = { [true] = "groups, ", [false] = "" }
//$ -- A scale's factor depends on the values that share it and on its storage.
//$ local function of_block(o) return o.scale and o.scale.span == "block" end
//$ local function dequantizes(o) return o.scale and o.scale.of_values end
//$ local function weighs(o) return of_block(o) and not o.scale.of_values end
//$ local function own(o) return o.scale and not of_block(o) and not o.scale.of_values end
//$ local function factors(o) return own(o) or o.scale and o.scale.global end
//$ local function stored(o) return o.bits == 6 and 8 or o.bits end -- bits; six have a byte, too
//$ local across = b.major == "mn" -- b's rows are steps of k
//$ local native = scales == "native" -- the tensor cores take codes and scales as they are
//$ local all = { { "a", a, "m" }, { "b", b, "n" } }
/*
** d = alpha * a * b^T + beta * c for each group, of quantized tensors.
**
**   a     [$(ragged == "k" and "m, tokens" or "m, k")]  $(a.type)
//$ local turned = across and "k, n" or ragged == "k" and "n, tokens" or "n, k"
**   b     [$(many[b.ragged == "none"])$(turned)]  $(b.type)
**   d, c  [$(many[d.ragged == "none"])m, n]  $(d.type); c may be d, and is not read where beta is 0
**
//$ for _, x in ipairs(all) do
//$   if not x[2].scale then
**   $(x[1])  holds plain values
//$   elseif native then
//$     local scale = x[2].scale
**   $(x[1])  has a scale in $(scale.type) for $(scale.k) values of k, which the product takes
//$   elseif dequantizes(x[2]) then
**   $(x[1])  is dequantized: value * scale, rounded to $(dequantized), is summed
//$   elseif weighs(x[2]) then
**   $(x[1])  has an fp32 scale for $(x[2].scale.k) values of k, a factor of their sum
//$   else
**   $(x[1])  has an fp32 scale for a $(x[2].scale.span), a factor of the whole sum
//$   end
//$ end
**
//$ if native then
** For sm_120a, whose tensor cores multiply codes with their scales and sum in fp32. Rows are copied
** 16 bytes at a time: a copy's rows start there.
//$ else
** For every GPU since sm_80: codes become $(dequantized) in registers, which holds each of them,
** and the tensor cores sum in fp32. Rows are copied 16 bytes at a time: a copy's rows start there.
//$ end
//$ if ragged == "k" then
** A group's tokens begin at a multiple of 128, after the groups before it, and are zeros up to the
** next, or their transform.
//$ end
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
    ALIGNED = 128, /* a group's tokens begin at multiples of it in columnwise tensors */
    /* Bytes of a row in a stage. With 16 more, 8 rows are in different banks. */
    A_ROW = TILE_K * $(stored(a)) / 8,
    B_ROW = $(across and "TILE_N" or "TILE_K") * $(stored(b)) / 8,
    A_PITCH = A_ROW + 16,
    B_PITCH = B_ROW + 16,
    A_BYTES = TILE_M * A_PITCH,
//$ if native then
    CODE_BYTES = A_BYTES + TILE_N * B_PITCH,
    STAGE_BYTES = CODE_BYTES + (TILE_M + TILE_N) * TILE_K / $(a.scale.k) /* with a byte a scale */
//$ else
    STAGE_BYTES = A_BYTES + $(across and "TILE_K" or "TILE_N") * B_PITCH
//$ end
};

//$ include "sm80/ptx.cu"

//$ once "cast/arith.c"
//$ for _, x in ipairs(all) do
//$   if x[2].scale then once("cast/from_" .. x[2].scale.type .. ".c") end
//$   if x[2].scale and x[2].scale.zeros then once("dequantize/zero_" .. x[2].type .. ".c") end
//$ end
//$ include "common/sizes.c"

//$ include("common/check_sizes.cu", { rolled = false })

//$ include "common/scheduler.cu"

//$ include "common/scales.c"

//$ include(d.bytes == 4 and "sm80/words_f32.cu" or "sm80/words_16bit.cu")

//$ include "sm80/store.cu"

//$ if not native then include "sm80/dequantize.cu" end

/* An operand as one tile of D needs it. */
struct source {
    const element *first; /* of the tile's first row, the first code of the group */
    long long stride;     /* bytes from one row to the next */
    int rows, bytes;      /* that are there from `first` on, and of each */
    const void *sf;
    struct scale_place scales;
    int row; /* of the tile's first row among the group's */
//$ if across then
    int steps; /* of b: its rows, which are steps of k */
//$ end
};

/* The ring, and between two tiles the warps' slabs. */
FN unsigned char *shared_memory(void)
{
    extern __shared__ __align__(128) unsigned char dynamic[];
    return dynamic;
}

/* One stage of an operand; missing elements become zeros. */
FN void copy_stage(const struct source *s, unsigned int to, int tile_rows, int row_bytes,
                   int done)
{
    const int chunks = row_bytes / 16;

#pragma unroll
    for (int i = 0; i < tile_rows * chunks / THREADS; i++) {
        const int number = i * THREADS + threadIdx.x;
        const int row = number / chunks, byte = number % chunks * 16;
//$ if native then
        const int left = row < s->rows && done + byte < s->bytes ? s->bytes - done - byte : 0;
        copy_async(to + row * (row_bytes + 16) + byte,
                   s->first + (left ? row * s->stride + done + byte : 0), left < 16 ? left : 16);
//$ else
        const int there = row < s->rows && done + byte < s->bytes;
        copy_async(to + row * (row_bytes + 16) + byte,
                   s->first + (there ? row * s->stride + done + byte : 0), there ? 16 : 0);
//$ end
    }
}

/* The same of $(dequantized), whose rows begin anywhere: 8 values together, or one by one. */
FN void copy_values(const struct source *s, unsigned int to, int tile_rows, int done)
{
    const int chunks = TILE_K / 8;
    const int together = s->stride % 16 == 0 && (unsigned long long)s->first % 16 == 0;

#pragma unroll 1
    for (int i = 0; i < tile_rows * chunks / THREADS; i++) {
        const int number = i * THREADS + threadIdx.x;
        const int row = number / chunks, byte = done + number % chunks * 16;
        const int left = row < s->rows && byte < s->bytes ? s->bytes - byte : 0;
        const int there = left < 16 ? left : 16;
        const element *from = s->first + (there ? row * s->stride + byte : 0);
        const unsigned int at = to + row * (TILE_K * 2 + 16) + byte - done;

        if (together)
            copy_async(at, from, there);
        else
#pragma unroll 1
            for (int j = 0; j < 16; j += 2)
                store_shared_half(at + j,
                                  j < there ? *(const unsigned short *)(from + j) : 0);
    }
}

/* The same of rows that are steps of k, from `step` on. */
FN void copy_across(const struct source *s, unsigned int to, int step)
{
    const int chunks = B_ROW / 16;

#pragma unroll
    for (int i = 0; i < TILE_K * chunks / THREADS; i++) {
        const int number = i * THREADS + threadIdx.x;
        const int row = number / chunks, byte = number % chunks * 16;
        const int there = step + row < s->steps && byte < s->bytes;
        copy_async(to + row * B_PITCH + byte,
                   s->first + (there ? (step + row) * s->stride + byte : 0), there ? 16 : 0);
    }
}

FN void copy_both(const struct source *a, const struct source *b, unsigned int to, int stage)
{
//$ for _, x in ipairs(all) do
//$   local up, lines = x[1]:upper(), x[1] == "a" and "TILE_M" or "TILE_N"
//$   local at = x[1] == "a" and "to" or "to + A_BYTES"
//$   if x[1] == "b" and across then
    copy_across(b, $(at), stage * TILE_K);
//$   elseif x[2].scale then
    copy_stage($(x[1]), $(at), $(lines), $(up)_ROW, stage * $(up)_ROW);
//$   else
    copy_values($(x[1]), $(at), $(lines), stage * $(up)_ROW);
//$   end
//$ end
}

//$ if native then
//$   include "sm80/native.cu"
//$ else
//$ local part = 0
//$ local function gcd(x, y) while y > 0 do x, y = y, x % y end return x end
//$ for _, x in ipairs(all) do
//$   if weighs(x[2]) then part = gcd(part, x[2].scale.k) end
//$ end
//$ for _, x in ipairs(all) do
//$   local name, o = x[1], x[2]
/* The factor of row `row` of the tile's $(name)$(weighs(o) and " for the block of `k`" or ""). */
FN float factor_$(name)(const struct source *s, int row, int k)
{
//$   if weighs(o) then
    return row < s->rows ? scale_$(name)(s->sf, &s->scales, s->row + row, k) : 0;
//$   else
    return 1;
//$   end
}

//$   if dequantizes(o) then
//$     local word = o.scale.zeros and "unsigned int" or "float"
/* The scale of 4 codes from `k` on in row `row` of the tile's $(name). */
FN $(word) block_$(name)(const struct source *s, int row, int k, int length)
{
    return row < s->rows && k < length ? scale_$(name)(s->sf, &s->scales, s->row + row, k) : 0;
}

//$   end
//$ end
/* sum += (factor of a * factor of b) * part over the blocks of `k`; part becomes 0. */
FN void promote(float sum[WARP_M / 16][WARP_N / 8][4], float part[WARP_M / 16][WARP_N / 8][4],
                const struct source *a, const struct source *b, int row, int column, int k)
{
    const int lane = threadIdx.x % 32;
    float down[WARP_M / 8];

    /* Addresses of scales are worked out anew: kept from step to step, they would be too many. */
    asm volatile("" : "+r"(row), "+r"(column));
#pragma unroll
    for (int i = 0; i < WARP_M / 8; i++)
        down[i] = factor_a(a, row + lane / 4 + 8 * i, k);
#pragma unroll
    for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const float across = factor_b(b, column + 8 * j + lane % 4 * 2 + c, k);
#pragma unroll
            for (int i = 0; i < WARP_M / 8; i++) {
                float *from = &part[i / 2][j][i % 2 * 2 + c], *to = &sum[i / 2][j][i % 2 * 2 + c];
                *to = __fadd_rn(*to, __fmul_rn(__fmul_rn(down[i], across), *from));
                *from = 0;
            }
        }
}

/*
** 16 steps of k of one stage. Each lane takes 4 neighbouring codes where the tensor core
** expects two and, 8 on, two more: the same ones of both operands, whose products are summed in
** any order.
*/
//$ local first, last = "", ""
//$ if dequantizes(a) or dequantizes(b) then
//$   first, last = "const struct source *a, const struct source *b, ", ", int k, int length"
//$ end
FN void multiply_step(float sum[WARP_M / 16][WARP_N / 8][4],
                      $(first)unsigned int stage,
                      int step, int row, int column$(last))
{
    const int lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    unsigned int x[WARP_M / 16][4];

//$ local tight = part > 0 or arch == "sm_100f" -- where ptxas would spill otherwise
//$ if tight and (dequantizes(a) or dequantizes(b)) then
    asm volatile("" : "+r"(row), "+r"(column)); /* as above */
//$ end
#pragma unroll
    for (int i = 0; i < WARP_M / 8; i++) {
        const int at = row + 8 * i + r;
        unsigned int pair[2];
//$ if dequantizes(a) then
        dequantize_scaled_a(pair, load_codes_a(stage + at * A_PITCH, step, q),
                            block_a(a, at, k + 4 * q, length));
//$ elseif a.scale then
        dequantize_a(pair, load_codes_a(stage + at * A_PITCH, step, q));
//$ else
        load_values(pair, stage + at * A_PITCH, step, q);
//$ end
        x[i / 2][i % 2] = pair[0];
        x[i / 2][2 + i % 2] = pair[1];
    }
//$ local each = across and b.scale.lines < 4 -- step of k has its own scales
//$ local whole = each and b.scale.span == "block" and b.scale.k % tile.n == 0
//$ local scale = each and (b.scale.zeros and "unsigned int" or "float") or ""
//$ if whole then
    /* A block has all columns of the tile. */
    $(scale) scale[4];

#pragma unroll
    for (int i = 0; i < 4; i++)
        scale[i] = block_b(b, 0, k + 4 * q + i, length);
//$ end
#pragma unroll
    for (int j = 0; j < WARP_N / 8; j++) {
        const int at = column + 8 * j + r;
        unsigned int y[2];
//$ if each then
//$   if not whole then
        $(scale) scale[4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            scale[i] = block_b(b, at, k + 4 * q + i, length);
//$   end
        dequantize_each_b(y, load_codes_b(stage + A_BYTES, at, step, q), scale);
//$ elseif across then
        dequantize_scaled_b(y, load_codes_b(stage + A_BYTES, at, step, q),
                            block_b(b, at, k + 4 * q, length));
//$ elseif dequantizes(b) then
        dequantize_scaled_b(y, load_codes_b(stage + A_BYTES + at * B_PITCH, step, q),
                            block_b(b, at, k + 4 * q, length));
//$ elseif b.scale then
        dequantize_b(y, load_codes_b(stage + A_BYTES + at * B_PITCH, step, q));
//$ else
        load_values(y, stage + A_BYTES + at * B_PITCH, step, q);
//$ end
#pragma unroll
        for (int i = 0; i < WARP_M / 16; i++)
            mma(sum[i][j], x[i], y);
    }
}

/* sum += a * b over `length` values of k, at least one; `row`, `column`: the warp's first sums. */
FN void multiply_tile(float sum[WARP_M / 16][WARP_N / 8][4], const struct source *a,
                      const struct source *b, int length, int row, int column)
{
    const unsigned int ring = shared_address(shared_memory());
    const int stages = length / TILE_K + (length % TILE_K > 0);
//$ if part > 0 then
    float part[WARP_M / 16][WARP_N / 8][4] = { { { 0 } } };
//$ end

#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < stages)
            copy_both(a, b, ring + i * STAGE_BYTES, i);
        copy_commit();
    }
#pragma unroll 1
    for (int i = 0; i < stages; i++) {
        const unsigned int stage = ring + i % STAGES * STAGE_BYTES;

        copy_wait(STAGES - 2);
        __syncthreads(); /* all have it, and nothing reads the one before any more */
        if (i + STAGES - 1 < stages)
            copy_both(a, b, ring + (i + STAGES - 1) % STAGES * STAGE_BYTES, i + STAGES - 1);
        copy_commit();
//$ local into = part > 0 and "part" or "sum"
#pragma unroll 1
        for (int step = 0; step < TILE_K / 16; step++) {
//$ if part > 0 or last ~= "" then
            const int k = i * TILE_K + 16 * step;
//$ end
//$ local first, last = first ~= "" and "a, b, " or "", last ~= "" and ", k, length" or ""
            multiply_step($(into), $(first)stage, step, row, column$(last));
//$ if part > 0 then
            if ((k + 16) % $(part) == 0 && k + 16 < length)
                promote(sum, part, a, b, row, column, k);
//$ end
        }
    }
//$ if part > 0 then
    promote(sum, part, a, b, row, column, length - 1);
//$ end
}

//$ end
//$ local scaled_a, scaled_b = factors(a), factors(b)
//$ if scaled_a or scaled_b then
/* The factors of whole sums. */
//$ local alls = (own(a) and "" or ", float a_all") .. (own(b) and "" or ", float b_all")
FN void finish_sums(float sum[WARP_M / 16][WARP_N / 8][4], const struct source *a,
                    const struct source *b, int row, int column$(alls))
{
    const int lane = threadIdx.x % 32;
    float down[WARP_M / 8];

#pragma unroll
    for (int i = 0; i < WARP_M / 8; i++) {
        const int at = row + lane / 4 + 8 * i;
//$ local rows = own(a) and "scale_a(a->sf, &a->scales, a->row + at, 0)" or "a_all"
        down[i] = at < a->rows ? $(rows) : 0;
    }
#pragma unroll
    for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int at = column + 8 * j + lane % 4 * 2 + c;
//$ local columns = own(b) and "scale_b(b->sf, &b->scales, b->row + at, 0)" or "b_all"
            const float across = at < b->rows ? $(columns) : 0;
#pragma unroll
            for (int i = 0; i < WARP_M / 8; i++) {
                float *to = &sum[i / 2][j][i % 2 * 2 + c];
                *to = __fmul_rn(__fmul_rn(down[i], across), *to);
            }
        }
}

//$ end
/* Runs of 128 rows or tokens in the groups before; called by all lanes of a warp. */
FN long long runs_before(const struct scheduler *w, int group, int lane)
{
    unsigned int sum = 0;

    for (int base = 0; base < group; base += 32)
        if (base + lane < group)
            sum += (cut_to_rows(group_length(w->first_dims, w->offsets, w->sizes_bytes,
                                             base + lane), w->total) + ALIGNED - 1) / ALIGNED;
    for (int distance = 16; distance; distance /= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

//$ include "sm80/matrix.cu"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp % (TILE_M / WARP_M) * WARP_M;
    const int warp_column = warp / (TILE_M / WARP_M) * WARP_N;
    float *slab = (float *)shared_memory() + warp * 16 * SLAB_PITCH;
    const unsigned int total = (unsigned int)$(ragged);
    struct scheduler w;
    struct tile t;

    //$ include("sm80/schedule.body.cu", { total = "total", first = "blockIdx.x" })
    while (scheduler_next(&w, &t, lane)) {
        const long long before = runs_before(&w, t.group, lane);
        const struct scale_group group = { t.group, t.start, t.length, before, k };
        /* Groups that overlap would not fit into the copies. */
        const long long all_runs = (total + (ALIGNED - 1ll) * groups) / ALIGNED;
//$ if ragged == "k" then
        const int rows = m - t.row, row = t.row;
        const int aligned = (int)round_up(t.length, ALIGNED);
        const int length = before + aligned / ALIGNED <= all_runs ? aligned : 0;
//$ else
        const int rows = (int)t.length - t.row;
        const long long row = t.start + (long long)t.row;
        const int length =
            before + round_up(t.length, ALIGNED) / ALIGNED <= all_runs ? k : 0;
//$ end
        float sum[WARP_M / 16][WARP_N / 8][4] = { { { 0 } } };
        struct target target;
//$ for _, x in ipairs(all) do
//$   local name, o, lines = x[1], x[2], x[3]
//$   local at = name == "a" and "row" or "t.column"
//$   local begin = ragged == "k" and " + before * ALIGNED" or ""
//$   local matrix = o.ragged == "none" and "t.group * " .. name .. "_group_stride + " or ""
//$   local turned = across and name == "b"
//$   local pitch = turned and "" or " * " .. name .. "_stride"
        const struct source $(name)_source = {
            (const element *)$(name) +
                ($(matrix)$(at)$(pitch)$(begin)) * $(stored(o)) / 8,
            $(name)_stride * $(stored(o)) / 8,
            $(name == "a" and "rows" or "n - t.column"),
//$   if turned then
            (int)((b_stride - t.column) * $(stored(o)) / 8),
//$   elseif ragged == "k" then
            length * $(stored(o)) / 8,
//$   elseif native then
            $(o.bits == 4 and "(int)((k + 1ll) / 2)" or "k"),
//$   elseif o.scale then
            (int)($(name)_stride * $(stored(o)) / 8),
//$   else
            k * $(o.bytes), /* the bytes after may be no values */
//$   end
            $(name)_sf,
//$   if o.scale then
            place_$(name)(&group, $(lines), $(name)_sf_stride, $(name)_sf_group_stride),
//$   else
            { 0, 0, 0, 0 },
//$   end
            $(name == "a" and "t.row" or "t.column")$(turned and "," or "")
//$   if turned then
            length
//$   end
        };
//$ end

        if (length > 0) {
//$ local values = native and (ragged == "k" and ", (int)t.length" or ", k") or ""
            multiply_tile(sum, &a_source, &b_source, length$(values), warp_row, warp_column);
//$ if scaled_a or scaled_b then
//$   local a_all = a.scale and a.scale.global and "a_global[t.group]" or "1"
//$   local b_all = b.scale and b.scale.global and "b_global[t.group]" or "1"
//$   local alls = (own(a) and "" or ", " .. a_all) .. (own(b) and "" or ", " .. b_all)
            finish_sums(sum, &a_source, &b_source, warp_row, warp_column$(alls));
//$ end
        }
        //$ local tile = { row = "(long long)row", column = "t.column", columns = "n - t.column" }
        //$ include("sm80/finish.body.cu", tile)
    }
    if (blockIdx.x == gridDim.x - 1 && warp == 0) /* it has the fewest tiles */
        check_sizes(first_dims, offsets, sizes_bytes, groups, total, error, lane);
}
