/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_protocol_defects.h: defects of activations, of dequantizers and of what
** quantizes. Included by test_protocol.c alone.
*/
#ifndef QUERN_TEST_PROTOCOL_DEFECTS_H
#define QUERN_TEST_PROTOCOL_DEFECTS_H

#define DENSE    "templates/sm90/gemm_dense.cu"
#define DEQUANT  "templates/sm90/gemm_dequant.cu"
#define RING     "templates/sm90/ring.cu"
#define TILE_C   "templates/sm90/constants_tile.body.cu"
#define STORE_C  "templates/sm90/constants_store.body.cu"
#define SUMS     "templates/sm90/sums.body.cu"
#define LOOP     "templates/sm90/multiply.body.cu"
#define SCHED    "templates/sm90/scheduler.cu"
#define COPY     "templates/sm90/copy.cu"
#define WHOLE    "templates/sm90/promote_whole.cu"
#define PRODUCE  "templates/sm90/produce.body.cu"
#define LAYOUT   "templates/sm90/memory.cu"
#define MULTIPLY "templates/sm90/multiply.cu"
#define SCALE    "templates/sm90/scale.cu"
#define STORE    "templates/sm90/store.cu"
#define BANDS    "templates/common/band.cu"
#define SIZES    "templates/common/scheduler_sizes.cu"
#define FETCH    "templates/sm90/fetch.cu"
#define QUEUE_CU "templates/sm90/tile_queue.cu"
#define PROMOTE  "templates/sm90/promote.cu"
#define FACTORS  "templates/sm90/factors.cu"
#define BARRIERS "templates/sm90/barriers.cu"

/* Each would be a race, a hang or a wrong sum on the device. */
struct planted {
    const struct form *form;
    struct defect defect;
};

#define ACTIVATE "templates/sm90/activate.cu"
#define FINISH   "templates/sm90/finish.cu"

static const struct planted activation_defects[] = {
    /* B's rows, and which sums belong together */
    {&M_HALVES, {COPY, "apart and \"half\" or", "apart and rows or"}},
    {&M_HALVES, {COPY, "apart and \" / 2\" or \"\"", "\"\""}},
    {&M_HALVES, {"templates/sm90/epilogue.body.cu", "n / 2", "n / 2 + 8"}},
    {&M_HALVES, {ACTIVATE, "part[i + COLUMNS / 4]", "part[i + COLUMNS / 8]"}},
    {&M_HALVES_TURNS, {ACTIVATE, "apart = COLUMNS / 4", "apart = PART"}},
    {&M_RUNS_SHORT, {ACTIVATE, "i / run * 2 * run", "i / run * run"}},
    {&M_RUNS_SHORT, {ACTIVATE, "$(interleave // 2)", "$(interleave)"}},
    {&M_RUNS, {ACTIVATE, "slab * 2 * PART", "slab * PART"}},
    /* places */
    {&M_RUNS, {ACTIVATE, "first = 2 * x", "first = x"}},
    {&M_HALVES, {ACTIVATE, "    given.d = maps->p;\n", ""}},
    {&M_HALVES, {ACTIVATE, "    given.d_ragged = maps->p_ragged;\n", ""}},
    {&M_SINGLE,
     {ACTIVATE, "            if (s->of->saved)", "            if (1)"}},
    {&M_SINGLE, {ACTIVATE, "        if (y >= rows)", "        if (0)"}},
    {&M_BIAS, {ACTIVATE, "column = x + i * 2", "column = x + i"}},
    {&M_BIAS, {FINISH, "t->group * f->columns", "0 * f->columns"}},
    {&M_HALVES, {FINISH, "f->probability + t->start", "f->probability"}},
    {&M_HALVES, {ACTIVATE, "block * 2 + i / 2 % 2", "block * 2"}},
    {&M_HALVES, {FINISH, "f->alpha + t->group * f->step", "f->alpha"}},
    /* slabs */
    {&M_HALVES, {STORE, "store_wait(SLABS - 1)", "store_wait(SLABS)"}},
    {&M_HALVES, {STORE, "slabs->turn * SLAB_BYTES", "0"}},
    {&M_RUNS,
     {STORE, "    copy_engine_fence();\n    __syncwarp();",
      "    __syncwarp();"}},
    {&M_RUNS,
     {STORE, "    __syncwarp();\n    if (lane == 0)\n        store_slab",
      "    if (lane == 0)\n        store_slab"}},
};

#define DEQUANTIZER "templates/sm90/dequantizer.cu"
#define WORDS     "templates/sm90/scale_words.cu"
#define PLACES    "templates/common/scale_place.c"
#define REGISTERS "templates/sm90/multiply_registers.cu"
#define HALF      "templates/sm90/dequantize_half.cu"
#define SWAPPED   "templates/sm90/multiply_swapped.cu"
#define HALVES    "templates/sm90/dequantizer_swapped.cu"
#define NARROW    "templates/sm90/narrow.cu"
#define TILES     "templates/sm90/narrow_tiles.cu"

static const struct planted dequantizer_defects[] = {
    /* the two rings */
    {&CODES_M,
     {DEQUANTIZER, "barrier_wait(s->packed_full", "(void)(s->packed_full"}},
    {&CODES_M, {DEQUANTIZER, "barrier_wait(s->empty", "(void)(s->empty"}},
    {&CODES_M, {DEQUANTIZER, "        copy_engine_fence();", "        //"}},
    {&CODES_M,
     {DEQUANTIZER, "        __syncwarp();\n        release", "        release"}},
    {&CODES_M, {DEQUANT, "s->packed_empty + stage", "s->packed_full + stage"}},
    {&CODES_M, {COPY, "\"PACKED_BYTES\" or", "\"A_PACKED\" or"}},
    {&CODES_M, {COPY, "\"A_PACKED\", \"PACKED", "\"B_PACKED + 8\", \"PACKED"}},
    {&CODES_M, {BARRIERS, "barrier_init(s->packed_full + i * 8, 1)", "(void)0"}},
    {&CODES_M,
     {BARRIERS, "s->packed_empty + i * 8, $(packed_readers)",
      "s->packed_empty + i * 8, 1"}},
    {&CODES_M, {MULTIPLY, "mma_wait(1);", "mma_wait(2);"}},
    {&CODES_M_GLOBAL, {MULTIPLY, "j * MMA_N * TILE_K", "0 * TILE_K"}},
    /* rows and their codes */
    {&CODES_M, {DEQUANTIZER, "row / 2 % 4", "row % 4"}},
    {&CODES_M_GLOBAL, {DEQUANTIZER, "row / 4 % 2", "row / 2 % 2"}},
    {&CODES_M_REGISTERS, {DEQUANTIZER, "i ^ row % 8", "i ^ row % 4"}},
    {&CODES_M_GLOBAL, {COPY, "\"x / 2\" or", "\"x\" or"}},
    {&CODES_M_SHORT,
     {DEQUANTIZER, "            if (row < $(tile_rows))\n",
      "            if (row < 64)\n"}},
    /* scales */
    {&CODES_M, {DEQUANTIZER, "    copy_wait(0);", "    //"}},
    {&CODES_M, {DEQUANTIZER, "copy_wait(SF_AHEAD)", "copy_wait(SF_AHEAD + 2)"}},
    {&CODES_M_GLOBAL,
     {DEQUANTIZER, "x = -SF_AHEAD * TILE_K", "x = -SF_AHEAD * TILE_K + TILE_K"}},
    {&CODES_M, {DEQUANTIZER, "_WORD_K + 1,", "_WORD_K,"}},
    {&CODES_M, {DEQUANTIZER, "$(place) + row, $(most)", "row, $(most)"}},
    {&CODES_M, {DEQUANTIZER, "8 * $(name)_line[i].skip", "0"}},
    {&CODES_M, {WORDS, ">> x / $(s.k) % 4 * 8", ""}},
    {&CODES_M, {WORDS, "word % $(upper)_SLOTS", "word % 2"}},
    {&CODES_M, {WORDS, "row < rows ? skip + blocks : 0", "skip + blocks"}},
    {&CODES_M, {WORDS, "s->k + $(s.k - 1)", "s->k"}},
    {&CODES_M_GLOBAL, {WORDS, "\" / \" .. rows", "\" / 8\""}},
    {&CODES_M, {PLACES, "\"g->start\"", "\"0\""}},
    {&CODES_M, {PLACES, "g->number * group_stride", "group_stride"}},
    /* bases */
    {&CODES_M_REGISTERS_F16, {DEQUANTIZER, "scales->\" .. name ..", "scales->a\" .."}},
    {&CODES_M_REGISTERS_F16, {DEQUANTIZER, "low_f16(bases[1])", "low_f16(bases[0])"}},
    {&CODES_M_SWAPPED_EITHER,
     {HALVES, "lows_of(s, t->sequence)", "lows_of(s, 0)"}},
    {&CODES_M_SWAPPED_EITHER,
     {SWAPPED, "lows_of(s, rows.sequence)", "lows_of(s, 0)"}},
    {&CODES_M_SWAPPED_EITHER, {HALVES, "near = near_f16(low);", ""}},
    /* tiles that come again */
    {&CODES_M_SWAPPED_EITHER, {TILES, "sequence % MARKS, 1", "0, 1"}},
    {&CODES_M_SWAPPED_EITHER, {NARROW, "w->stride - 1", "w->stride"}},
    {&CODES_M_SWAPPED_EITHER, {NARROW, "        queue_wait(", "        (void)("}},
    {&CODES_M_SWAPPED_EITHER, {SWAPPED, "t->as == AS_BF16", "0"}},
    {&CODES_M_SWAPPED_EITHER,
     {SWAPPED, "            mma_wait(0);\n        }\n        packed_done(s, p, lane);",
      "            mma_wait(0);\n        }"}},
    {&CODES_M_SWAPPED_EITHER_MORE,
     {SWAPPED, "rows->narrow && rows->of_a", "rows->of_a"}},
    /* of few rows */
    {&CODES_M_SWAPPED_MORE, {HALVES, "eighth + lane / 2", "eighth + lane / 4"}},
    {&CODES_M_SWAPPED_MORE, {HALVES, "row / 16 * 8", "row / 16 * 4"}},
    {&CODES_M_SWAPPED_MORE, {HALVES, "x, lane / 16, beyond", "x, 0, beyond"}},
    {&CODES_M_SWAPPED_MORE,
     {SWAPPED, "rows->of_a <= FEW)\n        multiply_few$", "1)\n        multiply_few$"}},
    {&CODES_M_SWAPPED_TILES,
     {SCHED, "w->runs = __shfl_sync(~0u, w->runs, from);", ""}},
    /* A in registers */
    {&CODES_M_REGISTERS, {REGISTERS, "mma_wait(1);", ""}},
    {&CODES_M_REGISTERS,
     {REGISTERS, "        release_packed(", "        (void)("}},
    {&CODES_M_REGISTERS,
     {REGISTERS, "    if (x > 0)\n        release(",
      "    if (1)\n        release("}},
    {&CODES_M_REGISTERS,
     {REGISTERS, "        __syncwarp(); /* the", "        /* the"}},
    {&CODES_M_REGISTERS,
     {REGISTERS, "copy_wait(SF_AHEAD - 1)", "copy_wait(SF_AHEAD)"}},
    {&CODES_M_REGISTERS,
     {REGISTERS, "f->pair[i][1][2 * step],", "f->pair[i][0][2 * step],"}},
    {&CODES_M_REGISTERS, {REGISTERS, "lane % 4 * 16 / ", "lane % 2 * 16 / "}},
    {&CODES_M_REGISTERS, {REGISTERS, "(j * MMA_N * TILE_K", "(0 * TILE_K"}},
    {&CODES_M_REGISTERS,
     {REGISTERS, "barrier_wait(s->full", "(void)(s->full"}},
    {&CODES_M_REGISTERS,
     {DEQUANTIZER, "pair[i], pair[8 + i]", "pair[i], pair[9 + i]"}},
    {&CODES_K_REGISTERS, {REGISTERS, "lane % 4 ^ row", "lane % 2 ^ row"}},
    {&CODES_M_REGISTERS,
     {REGISTERS, "        barrier_wait(s->packed_full",
      "        (void)(s->packed_full"}},
    /* B in registers, D turned */
    {&CODES_M_SWAPPED, {HALF, "half * 8, word", "half * 4, word"}},
    {&CODES_M_SWAPPED, {HALF, "4 * half + i) ^ row % 8)", "4 * half + i))"}},
    {&CODES_M_SWAPPED, {HALF, "\" * 16 / \"", "\" * 8 / \""}},
    {&CODES_M_SWAPPED_GLOBAL, {HALF, "half * 4);", "0);"}},
    {&CODES_M_SWAPPED_MIXED, {HALF, "(2 * i + half)", "(2 * half + i)"}},
    {&CODES_M_SWAPPED_MIXED, {HALF, "        pairs_apart(", "        (void)("}},
    {&CODES_M_SWAPPED,
     {HALVES, "        __syncwarp(); /* the", "        /* the"}},
    {&CODES_M_SWAPPED, {SWAPPED, "mma_wait(1);", ""}},
    {&CODES_M_SWAPPED, {SWAPPED, "    release_packed(", "    (void)("}},
    {&CODES_M_SWAPPED,
     {SWAPPED, "    if (x > 0)\n        release(",
      "    if (1)\n        release("}},
    {&CODES_M_SWAPPED,
     {SWAPPED, "        __syncwarp(); /* the", "        /* the"}},
    {&CODES_M_SWAPPED,
     {SWAPPED, "copy_wait(SF_AHEAD - 1)", "copy_wait(SF_AHEAD)"}},
    {&CODES_M_SWAPPED, {SWAPPED, "or \"half == 0\"", "or \"x == 0\""}},
    {&CODES_M_SWAPPED, {SWAPPED, "or \"half * TILE_K\"", "or \"0\""}},
    {&CODES_M_SWAPPED_GLOBAL, {SWAPPED, "rows, x + half * TILE_K", "rows, x"}},
    {&CODES_M_SWAPPED, {SWAPPED, "ring + STAGE_BYTES", "ring"}},
    {&CODES_M_SWAPPED, {SWAPPED, "p->stage, x, 1);", "p->stage, x, 0);"}},
    {&CODES_M_SWAPPED_GLOBAL, {WORDS, "_WORD_K + i, row", "_WORD_K, row"}},
    {&CODES_M_SWAPPED, {COPY, "full, t, x + i * TILE_K, t->row", "full, t, x, t->row"}},
    {&CODES_M_SWAPPED, {COPY, "\"SPAN * PACKED_BYTES\"", "\"PACKED_BYTES\""}},
    {&CODES_M_SWAPPED, {HALVES, "stage + step * STAGE_BYTES, row, half,", "stage, row, half,"}},
    {&CODES_M_SWAPPED_GLOBAL, {HALVES, "x + step * TILE_K, row", "x, row"}},
    {&CODES_M_SWAPPED_GLOBAL, {SWAPPED, "lane / 16) * 16", "0) * 16"}},
    {&CODES_M_SWAPPED, {SWAPPED, "lane / 8) * 16", "lane / 16) * 16"}},
    {&CODES_M_SWAPPED_GLOBAL,
     {SWAPPED, "f->pair[2 * i + 1][2 * step],", "f->pair[2 * i][2 * step],"}},
    {&CODES_M_SWAPPED_GLOBAL,
     {SWAPPED, "sum + i * (ROWS / 2)", "sum + i * ROWS"}},
    {&CODES_M_SWAPPED,
     {SWAPPED, "        barrier_wait(s->packed_full",
      "        (void)(s->packed_full"}},
    {&CODES_M_SWAPPED, {SWAPPED, "t->column + warp_row", "t->column"}},
    {&CODES_M_SWAPPED, {DEQUANTIZER, "part * COLUMNS, n,", "0, n,"}},
    {&CODES_M_SWAPPED,
     {STORE, "threadIdx.x / 32 % 4 * SLAB_COLUMNS", "0"}},
    {&CODES_M_SWAPPED_GLOBAL, {STORE, "sum + i * (SLAB_ROWS / 2)", "sum"}},
    /* copied A, and tiles */
    {&CODES_M_MIXED,
     {MULTIPLY, "previous_packed = p->stage;\n        pipeline", "pipeline"}},
    {&CODES_M_TILES, {SCHED, "    scheduler_runs(w, lane);", "    w->runs = 0;"}},
    {&CODES_M_TILES, {WORDS, "i % 128 / 32 * 4", "i % 128 / 32"}},
    {&CODES_M_TILES, {WORDS, "and 512 or 4", "and 4 or 4"}},
    {&CODES_M_TILES, {QUEUE_CU, "t->runs = word[7]", "t->runs = 0"}},
    {&CODES_K, {WORDS, "t->start / ALIGNED", "0"}},
    {&CODES_K, {WORDS, "((int)t->length + ALIGNED - 1) / ALIGNED", "1"}},
    {&CODES_K, {PLACES, "p.column = g->first", "p.column = 0 * g->first"}},
    {&CODES_K, {COPY, "((int)t->start + x) / 2", "(int)t->start / 2 + x"}},
    {&CODES_K_SCALE,
     {FACTORS, "    if (t->length == 0)\n        return s;", ""}},
    {&CODES_M_GLOBAL, {FACTORS, "(s->a * s->b)", "s->a"}},
    {&CODES_M_GLOBAL, {FACTORS, "__ldg(f->b + t->group)", "__ldg(f->b)"}},
};

#define INLINE "templates/sm90/inline.cu"

static const struct planted quantizer_defects[] = {
    {&BLOCK_M_INLINE,
     {INLINE, "barrier_wait(s->numbers_full + p->stage * 8, p->parity);", ""}},
    {&BLOCK_M_INLINE,
     {INLINE, "barrier_wait(s->empty + q->stage * 8, q->parity ^ 1);", ""}},
    {&BLOCK_M_INLINE, {INLINE, "        copy_engine_fence();", "        "}},
    {&BLOCK_M_INLINE, {INLINE, "        __syncwarp();", "        "}},
    {&BLOCK_M_INLINE, {INLINE, "pipeline_next(p, NUMBER_STAGES);", ""}},
    {&BLOCK_M_INLINE, {BARRIERS, "inline and \"1 + WARPS\"", "inline and 1"}},
    {&BLOCK_M_INLINE,
     {BARRIERS, "s->numbers_empty + i * 8, WARPS",
      "s->numbers_empty + i * 8, 1"}},
    {&BLOCK_M_INLINE,
     {COPY, "barrier_wait(s->numbers_empty + q->stage * 8, q->parity ^ 1);",
      ""}},
    {&BLOCK_M_INLINE, {COPY, "x + TILE_K / 2, row", "x, row"}},
    {&BLOCK_M_INLINE_PAIRS, {COPY, "(CTAS - 1) * NUMBER_ROWS *", "0 *"}},
    {&BLOCK_M_INLINE_PAIRS,
     {COPY, "+ (int)cluster_rank() * NUMBER_ROWS", "+ 0"}},
    {&BLOCK_M_INLINE_PAIRS, {INLINE, "(int)cluster_rank() * NUMBER_ROWS", "0"}},
    {&BLOCK_M_INLINE_PAIRS,
     {INLINE, "s->full + q->stage * 8, made", "s->full, made"}},
    {&BLOCK_M_INLINE_PAIRS, {INLINE, "sf + unit * UNIT * 4", "sf"}},
    {&BLOCK_M_INLINE,
     {COPY, "(int)t->start + t->row$(mine)", "t->row$(mine)"}},
};

#endif
