/* SPDX-License-Identifier: Apache-2.0 */
/* mutants.h: defects that are planted into templates, each a race, a hang or a
   wrong sum on the device. */
#pragma once

#define DENSE       "templates/sm90/gemm_dense.cu"
#define DEQUANT     "templates/sm90/gemm_dequant.cu"
#define SCALED      "templates/sm90/gemm_scaled.cu"
#define PTX         "templates/sm90/ptx.cu"
#define RING        "templates/sm90/ring.cu"
#define TILE_C      "templates/sm90/constants_tile.body.cu"
#define STORE_C     "templates/sm90/constants_store.body.cu"
#define SUMS        "templates/sm90/sums.body.cu"
#define LOOP        "templates/sm90/multiply.body.cu"
#define SCHED       "templates/sm90/scheduler.cu"
#define COPY        "templates/sm90/copy.cu"
#define WHOLE       "templates/sm90/promote_whole.cu"
#define PRODUCE     "templates/sm90/produce.body.cu"
#define LAYOUT      "templates/sm90/memory.cu"
#define MULTIPLY    "templates/sm90/multiply.cu"
#define SCALE       "templates/sm90/scale.cu"
#define STORE       "templates/sm90/store.cu"
#define BANDS       "templates/common/band.cu"
#define SIZES       "templates/common/scheduler_sizes.cu"
#define FETCH       "templates/sm90/fetch.cu"
#define QUEUE_CU    "templates/sm90/tile_queue.cu"
#define PROMOTE     "templates/sm90/promote.cu"
#define FACTORS     "templates/sm90/factors.cu"
#define BARRIERS    "templates/sm90/barriers.cu"
#define ACTIVATE    "templates/sm90/activate.cu"
#define FINISH      "templates/sm90/finish.cu"
#define DEQUANTIZER "templates/sm90/dequantizer.cu"
#define WORDS       "templates/sm90/scale_words.cu"
#define PLACES      "templates/common/scale_place.c"
#define SWAPPED     "templates/sm90/multiply_swapped.cu"
#define HALVES      "templates/sm90/dequantizer_swapped.cu"
#define TILES       "templates/sm90/narrow_tiles.cu"

struct mutant {
    const char *victim, *file, *from, *to;
};

static const struct mutant planted[] = {
    /* the ring */
    {M_PAIRS, MULTIPLY, "mma_wait(1);", "mma_wait(2);"},
    {M_PAIRS, MULTIPLY, "    mma_wait(0);", ""},
    {M_PAIRS, COPY, "barrier_wait(s->$(ring[1])empty + p->stage",
     "(void)(p->stage"},
    {M_PAIRS, MULTIPLY, "        mma_begin();", ""},
    {M_PAIRS, MULTIPLY, "b + step * B_STEP / 16,",
     "b + step * B_STEP / 16 + (threadIdx.x / 32 % 4 << 14),"},
    {M_PAIRS, COPY, "(1 << CTAS) - 1", "1"},
    {M_PAIRS, DENSE, "    cluster_sync(); /*", "    /*"},
    /* the tile queue */
    {M_TURNS, QUEUE_CU, "*sequence += TURNS", "*sequence += 1"},
    {M_TURNS, LOOP, "sequence = warpgroup - 1", "sequence = 0"},
    {K_TURNS, QUEUE_CU, "barrier_wait(s->read", "(void)(s->read"},
    {K_TURNS, QUEUE_CU, "    __syncwarp();", ""},
    {M_PAIRS, QUEUE_CU, "barrier_wait(s->posted", "(void)(s->posted"},
    {M_PAIRS, PRODUCE, "i < TURNS", "i < 0"},
    {K_TURNS, QUEUE_CU, "(u64)t->matrix >> 32", "0"},
    /* the scheduler */
    {K_ADD, SCHED, "w->next += w->stride;", "w->next++;"},
    {M_PAIRS, SCHED, "w->tiles_before += block_tiles;", ""},
    {M_PAIRS, SCHED, "pointers[t->group]", "pointers[w->base]"},
    {M_TURNS, SIZES, "w->length > w->total - w->start", "0"},
    {K_STORE, SIZES, "w->length > w->total - w->start", "0"},
    {K_STORE, RING, "? (int)t->length : 1", "? (int)t->length : 0"},
    {K_STORE, SCHED, "\"w->group < w->groups\"", "\"w->length > 0\""},
    {K_STORE, SCHED, "w->base + from", "w->base + lane"},
    {K_STORE, SCHED, "i < lane", "i <= lane"},
    {M_PAIRS, BANDS, "number - b.first * across", "number"},
    /* pairs of tiles, one above the other or abreast */
    {M_STACKS, SCHED, "rows % 2 * ((w->tile_columns + 1) / 2)", "0"},
    {M_STACKS, SCHED, "(w->tile_columns + 1) / 2", "w->tile_columns / 2"},
    {M_STACKS, SCHED, "number < last ? number : last", "number"},
    {M_STACKS, SCHED, "band.first + band.strips == strips", "1"},
    {M_STACKS, SCHED, "column + 1 < columns ? 2 * high : high", "2 * high"},
    {M_STACKS, SCHED, "rows > 1 ? band.strips : 0", "band.strips"},
    {M_STACKS, SCHED, "column + second", "column"},
    {M_STACKS_TURNS, SCHED, "(rows - 1) * TILE_M", "rows * TILE_M"},
    {M_STACKS_TURNS, COPY, "        if (t->beside) {", "        if (0) {"},
    {M_STACKS_TURNS, COPY, "        if (t->beside) {", "        if (1) {"},
    {M_STACKS_TURNS, RING, "lane < CTAS", "lane < 1"},
    /* coordinates */
    {M_PAIRS, COPY, "(int)(distance >> 35)", "0"},
    {M_TURNS, COPY, "i++, mn += $(next_row)", "i++"},
    {M_TURNS, STORE, "row + SLAB_ROWS <= rows", "1"},
    {K_STORE, COPY, "x + TILE_K <= (int)t->length", "x < (int)t->length"},
    {K_STORE, COPY, "(int)t->length + x", "(int)t->length"},
    {K_STORE, COPY, "(int)(t->start + t->length)", "(int)t->start + x"},
    {K_STORE, STORE_C, "mn = 16 * 128", "mn = 8 * 128"},
    {K_STORE, STORE, "    if (t->matrix)", "    if (0)"},
    {UNIFORM, COPY, "$(name), full, $(at), t->group",
     "$(name), full, $(at), 0"},
    {UNIFORM, STORE, "row, t->group);\n//$ end\n}", "row, 0);\n//$ end\n}"},
    /* the slabs, and their addends */
    {M_PAIRS, STORE, "store_wait(SLABS - 1)", "store_wait(SLABS - 0)"},
    {M_PAIRS, STORE, "slabs->slot * SLAB_BYTES", "0"},
    {K_ADD, PTX,
     "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group",
     "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group"},
    {K_READ, SCALE, "sum[i] += element_of(c, i)", "(void)sum"},
    {K_READ, STORE, "c[i % (AHEAD + 1)]", "c[(i + 1) % (AHEAD + 1)]"},
    /* C, fetched */
    {K_FETCH, FETCH, "    store_wait(0);", ""},
    {K_FETCH, FETCH, "                store_wait(1);", ""},
    {K_FETCH, FETCH, "store_wait(1)", "store_wait(2)"},
    {K_FETCH, FETCH, "slot / SLABS);", "1 ^ slot / SLABS);"},
    {K_FETCH, FETCH, "% (2 * SLABS)", "% SLABS"},
    {K_FETCH, FETCH, "        barrier_wait(", "        (void)("},
    {K_FETCH, FETCH, "        copy_engine_fence();", ""},
    {K_FETCH, FETCH, "        __syncwarp();", ""},
    {K_FETCH, FETCH, "slot - 1 + SLABS, maps", "slot + SLABS, maps"},
    {K_FETCH, FETCH, "maps, t, next, row", "maps, t, i, row"},
    {K_FETCH, FETCH, "    if (y >= rows)\n        return;", ""},
    {K_FETCH, FETCH, "expect(arrived, SLAB_BYTES)", "expect(arrived, 0)"},
    {K_FETCH, FETCH, "    if (t->matrix)", "    if (0)"},
    {K_FETCH, BARRIERS, "i < 8 * SLABS", "i < SLABS"},
    {K_FETCH_SIX, FETCH, "slabs->slot + i, maps", "i, maps"},
    {K_FETCH_SIX, FETCH, "i < SLABS &&", "i < SLABS - 1 &&"},
    {K_FETCH_SIX, FETCH, "i > 0 && next", "next"},
    {K_SCALE, LOOP, "t.row + part * ROWS", "t.row"},
    {K_SCALE, SCALE, "t->group * a->group_stride", "0"},
    {K_SCALE, SCALE, "alpha[t->group * a->step]", "alpha[0]"},
    {M_ALPHA, FACTORS, "f->alpha + t->group * f->step", "f->alpha"},
    {M_ALPHA, FACTORS, "sum[i] *= s->alpha", "sum[i] *= 1"},
    {M_SCALE, SCALE, "x < s->columns", "x <= s->columns"},
    {M_SCALE, SCALE, "y < rows", "y <= rows"},
    {M_SCALE, SCALE, "t->start * a->stride", "0"},
    {M_SCALE, SCALE, "if (s.beta == 0)", "if (0)"},
    {M_SCALE, SCALE, "a->beta[t->group * a->step] : 1", "1 : 0"},
    /* 8 bits, and copies that are aligned */
    {TENSOR_M, TILE_C, "32 // bytes", "16"},
    {ROW_K, SCHED, "if (w->length == 0)\n        w->start",
     "if (0)\n w->start"},
    {BLOCK_K, SIZES, "*before = __shfl_sync(~0u, end, 31);", ""},
    {TENSOR_K, SCHED, "(w->length + ALIGNED - 1) / ALIGNED * ALIGNED",
     "w->length"},
    {BLOCK_M_HALVES, SCALED, "\"0, part * COLUMNS\"", "\"0, 0\""},
    {BLOCK_M_HALVES, LOOP, "t.column += part * COLUMNS;", ""},
    /* parts */
    {ROW_M, PROMOTE, "            mma_wait(0);\n", ""},
    {ROW_M, PROMOTE, "step > 0);", "1);"},
    {ROW_M, PROMOTE, "step > 0);", "steps > 0);"},
    {ROW_M, PROMOTE, "        sum[i] = 0;", "        (void)sum;"},
    {ROW_M, PROMOTE, "to[3] += part", "to[3] = part"},
    {ROW_M, PROMOTE, "block * 64 * TILE_K +", ""},
    {ROW_M, PROMOTE,
     "            if (i == PIECES - 1)\n                release",
     "            if (i == 0)\n                release"},
    {BLOCK_K, PROMOTE, "factors ~= \"lines\" then\n            if (i",
     "true then\n            if (i"},
    {BLOCK_K, PROMOTE, "        __syncwarp();", ""},
    {BLOCK_M, PROMOTE, "barrier_wait(s->full + p->stage * 8, p->parity);\n//$",
     "//$"},
    {BLOCK_M, PROMOTE,
     "                    barrier_wait(s->full + p->stage * 8, p->parity);",
     ""},
    {BLOCK_M, PROMOTE, "if (steps > 1) {", "{"},
    /* their factors */
    {BLOCK_M, PROMOTE, "b_sf += steps > 1;", ""},
    {BLOCK_M, PROMOTE, "t->group * f->b_group_stride", "0"},
    {BLOCK_M, PROMOTE, "(t->start & 3)", "0"},
    {BLOCK_M, PROMOTE, "down = of_row[2 * block + 1];",
     "down = of_row[2 * block];"},
    {BLOCK_M_HALVES, WHOLE, "t->column < f->columns", "1"},
    {BLOCK_M, FACTORS, "i % 2 * 8) * 4", "i % 2 * 4) * 4"},
    {BLOCK_K, PROMOTE, "s->sf + now * SF_BYTES", "s->sf"},
    {BLOCK_K_ADD, PROMOTE, "TILE_M + first_column + 2 * j", "TILE_M + 2 * j"},
    {BLOCK_M, COPY, "& ~3", ""},
    {BLOCK_M_TALL, COPY, "first + i, block", "first, block"},
    {BLOCK_M_WHOLE, WHOLE, "2 ? second : first", "2 ? first : second"},
    {BLOCK_M_WHOLE, WHOLE, "t->group * f->b_group_stride", "0"},
    {BLOCK_M_WHOLE, WHOLE, "of[j / 2 % 2]", "of[j % 2]"},
    {ROW_M_WHOLE, WHOLE, "a + STAGE_BYTES / 16 : a_first", "a : a_first"},
    {BLOCK_M_TALL, COPY, "(to + i * 4, maps", "(to, maps"},
    {BLOCK_M, COPY, "STAGE_BYTES + SF_LOADED", "STAGE_BYTES"},
    {BLOCK_M, COPY, "full, t, x / TILE_K", "full, t, 0"},
    {BLOCK_M, COPY, "s->sf + p->stage * SF_BYTES", "s->sf"},
    {BLOCK_K, COPY, "    block += (int)t->start / TILE_K;", ""},
    {BLOCK_K, COPY, "maps->b_sf, full, t->column", "maps->b_sf, full, t->row"},
    {BLOCK_M, LAYOUT, "s.full = s.sf + STAGES * SF_BYTES", "s.full = s.sf"},
    {TENSOR_M_TURNS, FACTORS, "sum[i] * s->a * s->b", "sum[i] * s->a"},
    {TENSOR_M_TURNS, FACTORS, "f->b + t->group", "f->b + 0 * t->group"},
    {ROW_M, FACTORS, "\"t->start\"", "\"0\""},
    {ROW_M, FACTORS, "y < rows ? a[y] : 0;\n//$ end", "a[y];\n//$ end"},
    {ROW_M, FACTORS, "x < columns ? b[x + 1] : 0", "b[x + 1]"},
    /* merged products */
    {MERGED, SCHED, "    w->ends = w->ends_next;", ""},
    {MERGED, SCHED, "w->steps += (length + TILE_K - 1) / TILE_K * TILE_K",
     "w->steps += length"},
    {MERGED, SCHED, "t->group != w->at", "w->at < 0"},
    {MERGED, SCHED, "w->part_start, part)", "w->part_start, 0)"},
    {MERGED, COPY, "(end - RAGGED_ROW) * pitch", "end * pitch"},
    {MERGED, COPY, "(u64)t->start + t->length);", "(u64)t->start);"},
    {MERGED, PRODUCE, "maps.part = i;", "maps.part = 0;"},
    {MERGED, RING, "t->length == 0 ? 1", "0 ? 1"},
    {MERGED_FETCH, SCHED, "    unsigned int steps = 0;",
     "unsigned steps = 64;"},
    {MERGED_BLOCK, SCHED, "    w->aligned_ends = w->aligned_ends_next;", ""},
    {MERGED_BLOCK, COPY, "+ RAGGED_ROW - blocks", "+ RAGGED_ROW"},
    {MERGED_BLOCK, COPY, "part->b_sf_stride * 4", "part->a_sf_stride * 4"},
    {MERGED_BLOCK, COPY,
     "load_box_4d(to, maps->a_sf_tail, full, t->row, block, a.near",
     "load_box_4d(to, maps->a_sf_tail, full, t->row, block, b.near"},
    /* slabs that a warpgroup shares */
    {ROW_M, STORE, "        store_wait(0);\n    named_wait",
     "        (void)0;\n    named_wait"},
    {ROW_M, STORE, "    named_wait(barrier, 128);\n#pragma", "#pragma"},
    {ROW_M, STORE, "    named_wait(barrier, 128);\n    for", "    for"},
    {ROW_M, STORE, "    copy_engine_fence();\n    named", "    named"},
    {ROW_M, STORE, "barrier = threadIdx.x / 128 + 2", "barrier = 3"},
    {ROW_M, STORE, "SLAB_BYTES + warp * 16 * 128", "SLAB_BYTES"},
    {ROW_M, STORE, "i < SLABS; i += 4", "i < 1; i += 4"},
    {ROW_M, STORE, "    row -= warp * 16;\n", ""},
    {ROW_M, SUMS, "or \"(warpgroup - 1)\"", "or \"0\""},
    /* B's rows, and which sums belong together */
    {M_HALVES, COPY, "apart and \"half\" or", "apart and rows or"},
    {M_HALVES, COPY, "apart and \" / 2\" or \"\"", "\"\""},
    {M_HALVES, "templates/sm90/epilogue.body.cu", "n / 2", "n / 2 + 8"},
    {M_HALVES, ACTIVATE, "part[i + COLUMNS / 4]", "part[i + COLUMNS / 8]"},
    {M_HALVES_TURNS, ACTIVATE, "apart = COLUMNS / 4", "apart = PART"},
    {M_RUNS_SHORT, ACTIVATE, "i / run * 2 * run", "i / run * run"},
    {M_RUNS_SHORT, ACTIVATE, "$(interleave // 2)", "$(interleave)"},
    {M_RUNS, ACTIVATE, "slab * 2 * PART", "slab * PART"},
    /* positions */
    {M_RUNS, ACTIVATE, "first = 2 * x", "first = x"},
    {M_SINGLE, ACTIVATE, "            if (s->of->saved)", "            if (1)"},
    {M_BIAS, ACTIVATE, "column = x + i * 2", "column = x + i"},
    {M_BIAS, FINISH, "t->group * f->columns", "0 * f->columns"},
    {M_HALVES, FINISH, "f->probability + t->start", "f->probability"},
    {M_HALVES, ACTIVATE, "block * 2 + $(low)", "block * 2"},
    {M_HALVES, FINISH, "f->alpha + t->group * f->step", "f->alpha"},
    /* slabs */
    {M_HALVES, STORE, "store_wait(SLABS - 1)", "store_wait(SLABS - 0)"},
    {M_HALVES, STORE, "slabs->slot * SLAB_BYTES", "0"},
    /* the two rings */
    {CODES_M, DEQUANTIZER, "barrier_wait(s->packed_full",
     "(void)(s->packed_full"},
    {CODES_M, DEQUANTIZER, "barrier_wait(s->empty", "(void)(s->empty"},
    {CODES_M, DEQUANTIZER, "        copy_engine_fence();", "        //"},
    {CODES_M, DEQUANTIZER, "        __syncwarp();\n        release",
     "        release"},
    {CODES_M, DEQUANT, "s->packed_empty + stage", "s->packed_full + stage"},
    {CODES_M, COPY, "\"PACKED_BYTES\" or", "\"A_PACKED\" or"},
    {CODES_M, COPY, "\"A_PACKED\", \"PACKED", "\"B_PACKED + 8\", \"PACKED"},
    {CODES_M, BARRIERS, "barrier_init(s->packed_full + i * 8, 1)", "(void)0"},
    {CODES_M, BARRIERS, "s->packed_empty + i * 8, $(packed_readers)",
     "s->packed_empty + i * 8, 1"},
    {CODES_M, MULTIPLY, "mma_wait(1);", "mma_wait(2);"},
    {CODES_M_GLOBAL, MULTIPLY, "j * MMA_N * TILE_K", "0 * TILE_K"},
    /* rows and their codes */
    {CODES_M, DEQUANTIZER, "row / 2 % 4", "row % 4"},
    {CODES_M_GLOBAL, DEQUANTIZER, "row / 4 % 2", "row / 2 % 2"},
    {CODES_M_REGISTERS, DEQUANTIZER, "i ^ row % 8", "i ^ row % 4"},
    {CODES_M_GLOBAL, COPY, "\"x / 2\" or", "\"x\" or"},
    {CODES_M_SHORT, DEQUANTIZER, "            if (row < $(tile_rows))\n",
     "            if (row < 64)\n"},
    /* scales */
    {CODES_M, DEQUANTIZER, "    copy_wait(0);", "    //"},
    {CODES_M, DEQUANTIZER, "copy_wait(SF_AHEAD)", "copy_wait(SF_AHEAD + 2)"},
    {CODES_M_GLOBAL, DEQUANTIZER, "x = -SF_AHEAD * TILE_K",
     "x = -SF_AHEAD * TILE_K + TILE_K"},
    {CODES_M, DEQUANTIZER, "_WORD_K + 1,", "_WORD_K,"},
    {CODES_M, DEQUANTIZER, "$(place) + row, $(most)", "row, $(most)"},
    {CODES_M, DEQUANTIZER, "8 * $(name)_line[i].skip", "0"},
    {CODES_M, WORDS, ">> x / $(s.k) % 4 * 8", ""},
    {CODES_M, WORDS, "word % $(upper)_SLOTS", "word % 2"},
    {CODES_M, WORDS, "row < rows ? skip + blocks : 0", "skip + blocks"},
    {CODES_M, WORDS, "s->k + $(s.k - 1)", "s->k"},
    {CODES_M_GLOBAL, WORDS, "\" / \" .. rows", "\" / 8\""},
    {CODES_M, PLACES, "\"g->start\"", "\"0\""},
    {CODES_M, PLACES, "g->number * group_stride", "group_stride"},
    /* bases */
    {CODES_M_SWAPPED_EITHER, HALVES, "lows_of(s, t->sequence)",
     "lows_of(s, 0)"},
    {CODES_M_SWAPPED_EITHER, SWAPPED, "lows_of(s, rows.sequence)",
     "lows_of(s, 0)"},
    /* tiles that come again */
    {CODES_M_SWAPPED_EITHER, TILES, "sequence % MARKS, 1", "0, 1"},
};
