/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_protocol_defects.h: defects of activations, of expanders and of what
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

#define EXPANDER  "templates/sm90/expander.cu"
#define WORDS     "templates/sm90/scale_words.cu"
#define PLACES    "templates/common/scale_place.c"
#define REGISTERS "templates/sm90/multiply_registers.cu"
#define HALF      "templates/sm90/expand_half.cu"
#define SWAPPED   "templates/sm90/multiply_swapped.cu"
#define HALVES    "templates/sm90/expander_swapped.cu"
#define NARROW    "templates/sm90/narrow.cu"
#define TILES     "templates/sm90/narrow_tiles.cu"

static const struct planted expander_defects[] = {
    /* the two rings */
    {&EXPAND_M,
     {EXPANDER, "barrier_wait(s->packed_full", "(void)(s->packed_full"}},
    {&EXPAND_M, {EXPANDER, "barrier_wait(s->empty", "(void)(s->empty"}},
    {&EXPAND_M, {EXPANDER, "        copy_engine_fence();", "        //"}},
    {&EXPAND_M,
     {EXPANDER, "        __syncwarp();\n        release", "        release"}},
    {&EXPAND_M, {DEQUANT, "s->packed_empty + stage", "s->packed_full + stage"}},
    {&EXPAND_M, {COPY, "\"PACKED_BYTES\" or", "\"A_PACKED\" or"}},
    {&EXPAND_M, {COPY, "\"A_PACKED\", \"PACKED", "\"B_PACKED + 8\", \"PACKED"}},
    {&EXPAND_M, {BARRIERS, "barrier_init(s->packed_full + i * 8, 1)", "(void)0"}},
    {&EXPAND_M,
     {BARRIERS, "s->packed_empty + i * 8, $(packed_readers)",
      "s->packed_empty + i * 8, 1"}},
    {&EXPAND_M, {MULTIPLY, "mma_wait(1);", "mma_wait(2);"}},
    {&EXPAND_M_GLOBAL, {MULTIPLY, "j * MMA_N * TILE_K", "0 * TILE_K"}},
    /* rows and their codes */
    {&EXPAND_M, {EXPANDER, "row / 2 % 4", "row % 4"}},
    {&EXPAND_M_GLOBAL, {EXPANDER, "row / 4 % 2", "row / 2 % 2"}},
    {&EXPAND_M_REGISTERS, {EXPANDER, "i ^ row % 8", "i ^ row % 4"}},
    {&EXPAND_M_GLOBAL, {COPY, "\"x / 2\" or", "\"x\" or"}},
    {&EXPAND_M_SHORT,
     {EXPANDER, "            if (row < $(tile_rows))\n",
      "            if (row < 64)\n"}},
    /* scales */
    {&EXPAND_M, {EXPANDER, "    copy_wait(0);", "    //"}},
    {&EXPAND_M, {EXPANDER, "copy_wait(SF_AHEAD)", "copy_wait(SF_AHEAD + 2)"}},
    {&EXPAND_M_GLOBAL,
     {EXPANDER, "x = -SF_AHEAD * TILE_K", "x = -SF_AHEAD * TILE_K + TILE_K"}},
    {&EXPAND_M, {EXPANDER, "_WORD_K + 1,", "_WORD_K,"}},
    {&EXPAND_M, {EXPANDER, "$(place) + row, $(most)", "row, $(most)"}},
    {&EXPAND_M, {EXPANDER, "8 * $(name)_line[i].skip", "0"}},
    {&EXPAND_M, {WORDS, ">> x / $(s.k) % 4 * 8", ""}},
    {&EXPAND_M, {WORDS, "word % $(upper)_SLOTS", "word % 2"}},
    {&EXPAND_M, {WORDS, "row < rows ? skip + blocks : 0", "skip + blocks"}},
    {&EXPAND_M, {WORDS, "s->k + $(s.k - 1)", "s->k"}},
    {&EXPAND_M_GLOBAL, {WORDS, "\" / \" .. rows", "\" / 8\""}},
    {&EXPAND_M, {PLACES, "\"g->start\"", "\"0\""}},
    {&EXPAND_M, {PLACES, "g->number * group_stride", "group_stride"}},
    /* bases */
    {&EXPAND_M_REGISTERS_F16, {EXPANDER, "scales->\" .. name ..", "scales->a\" .."}},
    {&EXPAND_M_REGISTERS_F16, {DEQUANT, "low_f16(bases[1])", "low_f16(bases[0])"}},
    {&EXPAND_M_SWAPPED_EITHER,
     {HALVES, "lows_of(s, t->sequence)", "lows_of(s, 0)"}},
    {&EXPAND_M_SWAPPED_EITHER,
     {SWAPPED, "lows_of(s, rows.sequence)", "lows_of(s, 0)"}},
    {&EXPAND_M_SWAPPED_EITHER, {HALVES, "near = near_f16(low);", ""}},
    /* tiles that come again */
    {&EXPAND_M_SWAPPED_EITHER, {TILES, "sequence % MARKS, 1", "0, 1"}},
    {&EXPAND_M_SWAPPED_EITHER, {NARROW, "w->stride - 1", "w->stride"}},
    {&EXPAND_M_SWAPPED_EITHER, {NARROW, "        queue_wait(", "        (void)("}},
    {&EXPAND_M_SWAPPED_EITHER, {SWAPPED, "t->as == AS_BF16", "0"}},
    {&EXPAND_M_SWAPPED_EITHER,
     {SWAPPED, "            mma_wait(0);\n        }\n        packed_done(s, p, lane);",
      "            mma_wait(0);\n        }"}},
    {&EXPAND_M_SWAPPED_EITHER_MORE,
     {SWAPPED, "rows->narrow && rows->of_a", "rows->of_a"}},
    /* of few rows */
    {&EXPAND_M_SWAPPED_MORE, {HALVES, "eighth + lane / 2", "eighth + lane / 4"}},
    {&EXPAND_M_SWAPPED_MORE, {HALVES, "row / 16 * 8", "row / 16 * 4"}},
    {&EXPAND_M_SWAPPED_MORE, {HALVES, "x, lane / 16, beyond", "x, 0, beyond"}},
    {&EXPAND_M_SWAPPED_MORE,
     {SWAPPED, "rows->of_a <= FEW)\n        multiply_few$", "1)\n        multiply_few$"}},
    {&EXPAND_M_SWAPPED_TILES,
     {SCHED, "w->runs = __shfl_sync(~0u, w->runs, from);", ""}},
    /* A in registers */
    {&EXPAND_M_REGISTERS, {REGISTERS, "mma_wait(1);", ""}},
    {&EXPAND_M_REGISTERS,
     {REGISTERS, "        release_packed(", "        (void)("}},
    {&EXPAND_M_REGISTERS,
     {REGISTERS, "    if (x > 0)\n        release(",
      "    if (1)\n        release("}},
    {&EXPAND_M_REGISTERS,
     {REGISTERS, "        __syncwarp(); /* the", "        /* the"}},
    {&EXPAND_M_REGISTERS,
     {REGISTERS, "copy_wait(SF_AHEAD - 1)", "copy_wait(SF_AHEAD)"}},
    {&EXPAND_M_REGISTERS,
     {REGISTERS, "f->pair[i][1][2 * step],", "f->pair[i][0][2 * step],"}},
    {&EXPAND_M_REGISTERS, {REGISTERS, "lane % 4 * 16 / ", "lane % 2 * 16 / "}},
    {&EXPAND_M_REGISTERS, {REGISTERS, "(j * MMA_N * TILE_K", "(0 * TILE_K"}},
    {&EXPAND_M_REGISTERS,
     {REGISTERS, "barrier_wait(s->full", "(void)(s->full"}},
    {&EXPAND_M_REGISTERS,
     {EXPANDER, "pair[i], pair[8 + i]", "pair[i], pair[9 + i]"}},
    {&EXPAND_K_REGISTERS, {REGISTERS, "lane % 4 ^ row", "lane % 2 ^ row"}},
    {&EXPAND_M_REGISTERS,
     {REGISTERS, "        barrier_wait(s->packed_full",
      "        (void)(s->packed_full"}},
    /* B in registers, D turned */
    {&EXPAND_M_SWAPPED, {HALF, "half * 8, word", "half * 4, word"}},
    {&EXPAND_M_SWAPPED, {HALF, "4 * half + i) ^ row % 8)", "4 * half + i))"}},
    {&EXPAND_M_SWAPPED, {HALF, "\" * 16 / \"", "\" * 8 / \""}},
    {&EXPAND_M_SWAPPED_GLOBAL, {HALF, "half * 4);", "0);"}},
    {&EXPAND_M_SWAPPED_MIXED, {HALF, "(2 * i + half)", "(2 * half + i)"}},
    {&EXPAND_M_SWAPPED_MIXED, {HALF, "        pairs_apart(", "        (void)("}},
    {&EXPAND_M_SWAPPED,
     {HALVES, "        __syncwarp(); /* the", "        /* the"}},
    {&EXPAND_M_SWAPPED, {SWAPPED, "mma_wait(1);", ""}},
    {&EXPAND_M_SWAPPED, {SWAPPED, "    release_packed(", "    (void)("}},
    {&EXPAND_M_SWAPPED,
     {SWAPPED, "    if (x > 0)\n        release(",
      "    if (1)\n        release("}},
    {&EXPAND_M_SWAPPED,
     {SWAPPED, "        __syncwarp(); /* the", "        /* the"}},
    {&EXPAND_M_SWAPPED,
     {SWAPPED, "copy_wait(SF_AHEAD - 1)", "copy_wait(SF_AHEAD)"}},
    {&EXPAND_M_SWAPPED, {SWAPPED, "or \"half == 0\"", "or \"x == 0\""}},
    {&EXPAND_M_SWAPPED, {SWAPPED, "or \"half * TILE_K\"", "or \"0\""}},
    {&EXPAND_M_SWAPPED_GLOBAL, {SWAPPED, "rows, x + half * TILE_K", "rows, x"}},
    {&EXPAND_M_SWAPPED, {SWAPPED, "ring + STAGE_BYTES", "ring"}},
    {&EXPAND_M_SWAPPED, {SWAPPED, "p->stage, x, 1);", "p->stage, x, 0);"}},
    {&EXPAND_M_SWAPPED_GLOBAL, {WORDS, "_WORD_K + i, row", "_WORD_K, row"}},
    {&EXPAND_M_SWAPPED, {COPY, "full, t, x + i * TILE_K, t->row", "full, t, x, t->row"}},
    {&EXPAND_M_SWAPPED, {COPY, "\"SPAN * PACKED_BYTES\"", "\"PACKED_BYTES\""}},
    {&EXPAND_M_SWAPPED, {HALVES, "stage + step * STAGE_BYTES, row, half,", "stage, row, half,"}},
    {&EXPAND_M_SWAPPED_GLOBAL, {HALVES, "x + step * TILE_K, row", "x, row"}},
    {&EXPAND_M_SWAPPED_GLOBAL, {SWAPPED, "lane / 16) * 16", "0) * 16"}},
    {&EXPAND_M_SWAPPED, {SWAPPED, "lane / 8) * 16", "lane / 16) * 16"}},
    {&EXPAND_M_SWAPPED_GLOBAL,
     {SWAPPED, "f->pair[2 * i + 1][2 * step],", "f->pair[2 * i][2 * step],"}},
    {&EXPAND_M_SWAPPED_GLOBAL,
     {SWAPPED, "sum + i * (ROWS / 2)", "sum + i * ROWS"}},
    {&EXPAND_M_SWAPPED,
     {SWAPPED, "        barrier_wait(s->packed_full",
      "        (void)(s->packed_full"}},
    {&EXPAND_M_SWAPPED, {SWAPPED, "t->column + warp_row", "t->column"}},
    {&EXPAND_M_SWAPPED, {DEQUANT, "part * COLUMNS, n,", "0, n,"}},
    {&EXPAND_M_SWAPPED,
     {STORE, "threadIdx.x / 32 % 4 * SLAB_COLUMNS", "0"}},
    {&EXPAND_M_SWAPPED_GLOBAL, {STORE, "sum + i * (SLAB_ROWS / 2)", "sum"}},
    /* copied A, and tiles */
    {&EXPAND_M_MIXED,
     {MULTIPLY, "previous_packed = p->stage;\n        pipeline", "pipeline"}},
    {&EXPAND_M_TILES, {SCHED, "    scheduler_runs(w, lane);", "    w->runs = 0;"}},
    {&EXPAND_M_TILES, {WORDS, "i % 128 / 32 * 4", "i % 128 / 32"}},
    {&EXPAND_M_TILES, {WORDS, "and 512 or 4", "and 4 or 4"}},
    {&EXPAND_M_TILES, {QUEUE_CU, "t->runs = word[7]", "t->runs = 0"}},
    {&EXPAND_K, {WORDS, "t->start / ALIGNED", "0"}},
    {&EXPAND_K, {WORDS, "((int)t->length + ALIGNED - 1) / ALIGNED", "1"}},
    {&EXPAND_K, {PLACES, "p.column = g->first", "p.column = 0 * g->first"}},
    {&EXPAND_K, {COPY, "((int)t->start + x) / 2", "(int)t->start / 2 + x"}},
    {&EXPAND_K_SCALE,
     {FACTORS, "    if (t->length == 0)\n        return s;", ""}},
    {&EXPAND_M_GLOBAL, {FACTORS, "(s->a * s->b)", "s->a"}},
    {&EXPAND_M_GLOBAL, {FACTORS, "__ldg(f->b + t->group)", "__ldg(f->b)"}},
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
