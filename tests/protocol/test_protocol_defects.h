/* SPDX-License-Identifier: Apache-2.0 */
/* test_protocol_defects.h: defects that are planted into templates. Included
   only by test_protocol.c. */
#pragma once

#define DEQUANT  "templates/sm90/gemm_dequant.cu"
#define SCHED    "templates/sm90/scheduler.cu"
#define COPY     "templates/sm90/copy.cu"
#define MULTIPLY "templates/sm90/multiply.cu"
#define STORE    "templates/sm90/store.cu"
#define BANDS    "templates/common/band.cu"
#define QUEUE_CU "templates/sm90/tile_queue.cu"
#define FACTORS  "templates/sm90/factors.cu"
#define BARRIERS "templates/sm90/barriers.cu"

/* Each would be a race, a hang or a wrong sum on the device. Those that the
   interpreter of PTX is known to see are planted there (tests/ptx/mutants.h);
   empty groups of K_ADD and rows past the end of M_SINGLE change no memory. */
struct planted {
    const struct form *form;
    struct defect defect;
};

static const struct planted defects[] = {
    /* the scheduler */
    {&K_ADD, {SCHED, "\"w->length > 0\"", "\"w->base + lane < w->groups\""}},
    {&M_TURNS, {BANDS, "band * size", "band"}},
    {&UNIFORM, {BANDS, "strips - b.first < size", "0"}},
    /* their factors */
    {&TENSOR_K, {FACTORS, "    if (t->length == 0)\n        return s;", ""}},
    {&ROW_K, {FACTORS, "t->length > 0 ? f->columns : 0", "f->columns"}},
    {&ROW_K, {FACTORS, "y < rows && columns > 0", "y < rows"}},
    /* merged products */
    {&MERGED,
     {SCHED, "if (lane == i) {\n            w->ends_next",
      "if (lane == 0) {\n            w->ends_next"}},
    {&MERGED, {"templates/sm90/merged.cu", "error[4] = (unsigned int)i;", ";"}},
    /* slabs that a warpgroup shares */
    {&ROW_M, {STORE, "i = warp; i < SLABS; i += 4", "i = 0; i < SLABS; i++"}},
    {&ROW_M, {STORE, " && row + i / ROW_SLABS * 64 < rows", ""}},
};

#define ACTIVATE "templates/sm90/activate.cu"

static const struct planted activation_defects[] = {
    {&M_ALTERNATING, {ACTIVATE, "part[2 * i + 1]", "part[2 * i]"}},
    {&M_ALTERNATING, {ACTIVATE, "pairs and \"i % 2\"", "pairs and \"i / 2\""}},
    {&M_ALTERNATING, {ACTIVATE, "pairs and \", 1\"", "pairs and \", 0\""}},
    /* positions */
    {&M_HALVES, {ACTIVATE, "    given.d = maps->p;\n", ""}},
    {&M_HALVES, {ACTIVATE, "    given.d_ragged = maps->p_ragged;\n", ""}},
    {&M_SINGLE, {ACTIVATE, "        if (y >= rows)", "        if (0)"}},
    /* slabs */
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

static const struct planted dequantizer_defects[] = {
    /* bases */
    {&CODES_M_REGISTERS_F16, {DEQUANTIZER, "scales->\" .. name ..", "scales->a\" .."}},
    {&CODES_M_REGISTERS_F16, {DEQUANT, "low_f16(bases[1])", "low_f16(bases[0])"}},
    {&CODES_M_SWAPPED_EITHER, {HALVES, "near = near_f16(low);", ""}},
    /* tiles that come again */
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
    {&CODES_M_SWAPPED, {SWAPPED, "by(\"raw\", \"x\")), 1);", "by(\"raw\", \"x\")), 0);"}},
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
    {&CODES_M_SWAPPED, {DEQUANT, "part * COLUMNS, n\"", "0, n\""}},
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

#define MAINLOOP "templates/sm90/quantize_mainloop.cu"

static const struct planted quantizer_defects[] = {
    {&BLOCK_M_MAINLOOP,
     {MAINLOOP, "barrier_wait(s->values_full + p->stage * 8, p->parity);", ""}},
    {&BLOCK_M_MAINLOOP,
     {MAINLOOP, "barrier_wait(s->empty + q->stage * 8, q->parity ^ 1);", ""}},
    {&BLOCK_M_MAINLOOP, {MAINLOOP, "        copy_engine_fence();", "        "}},
    {&BLOCK_M_MAINLOOP, {MAINLOOP, "        __syncwarp();", "        "}},
    {&BLOCK_M_MAINLOOP, {MAINLOOP, "pipeline_next(p, VALUE_STAGES);", ""}},
    {&BLOCK_M_MAINLOOP, {BARRIERS, "inline and \"1 + WARPS\"", "inline and 1"}},
    {&BLOCK_M_MAINLOOP,
     {BARRIERS, "s->values_empty + i * 8, WARPS",
      "s->values_empty + i * 8, 1"}},
    {&BLOCK_M_MAINLOOP,
     {COPY, "barrier_wait(s->values_empty + q->stage * 8, q->parity ^ 1);",
      ""}},
    {&BLOCK_M_MAINLOOP, {COPY, "x + TILE_K / 2, row", "x, row"}},
    {&BLOCK_M_MAINLOOP_PAIRS, {COPY, "(CTAS - 1) * VALUE_ROWS *", "0 *"}},
    {&BLOCK_M_MAINLOOP_PAIRS,
     {COPY, "+ (int)cluster_rank() * VALUE_ROWS", "+ 0"}},
    {&BLOCK_M_MAINLOOP_PAIRS, {MAINLOOP, "(int)cluster_rank() * VALUE_ROWS", "0"}},
    {&BLOCK_M_MAINLOOP_PAIRS,
     {MAINLOOP, "s->full + q->stage * 8, made", "s->full, made"}},
    {&BLOCK_M_MAINLOOP_PAIRS, {MAINLOOP, "sf + unit * UNIT * 4", "sf"}},
    {&BLOCK_M_MAINLOOP,
     {COPY, "(int)t->start + t->row$(mine)", "t->row$(mine)"}},
};
