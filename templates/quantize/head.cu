//$ -- SPDX-License-Identifier: Apache-2.0
//$ local across = scale and scale.k > 0 and scale.k or 128
//$ local down = scale and scale.rows > 0 and scale.rows or 1
#define FN __device__ __forceinline__
enum {
    THREADS = $(threads),
    TILE_M = 128, /* rows of a tile: each of 4 warps has 32 of them, and a thread all 32 */
    BAND = $(band),   /* strips of tiles that are visited together */
    TILE_N = 128, /* features: each of 2 warps has 64 of them, and a thread 2 */
    ROWS = 32$(scale and "," or " ")    /* of a thread */
//$ if scale then
    ACROSS = $(across), /* values of a line that share a scale */
    DOWN = $(down),     /* lines that share it */
    SF_LINES = $(scale.lines) /* that share a stored one */
//$ end
};

//$ once "cast/arith.c"
//$ if op == "requantize" then
//$ -- codes become others
//$ elseif input.type == "copy" or op == "dequantize" then
//$   once("cast/from_" .. element.type .. ".c")
//$   once("cast/from_" .. scale.type .. ".c")
//$ else
//$   once("cast/from_" .. input.type .. ".c")
//$ end
//$ if op == "dequantize" or (input.bits == 16 and (form ~= "plain" or op == "bias")) then
//$   once("cast/to_" .. input.type .. ".c")
//$ end
//$ if op == "quantize" then
//$   once("cast/to_" .. element.type .. ".c")
//$   if scale and scale.stochastic then
//$     once("cast/to_" .. element.type .. "_stochastic.c")
//$     once "cast/random.c"
//$   end
//$   if scale and scale.type == "e4m3" then
//$     once "cast/from_e4m3.c"
//$     once "cast/to_e4m3.c"
//$   end
//$ end
//$ if op ~= "dequantize" and op ~= "requantize" and scale and scale.hadamard then
//$   once "cast/hadamard.c"
//$ end
//$ if form ~= "plain" then
//$   once "cast/activation.c"
//$ end
//$ if of ~= "w" then
//$ include "common/sizes.c"

//$   if op ~= "amax" and op ~= "sum" and op ~= "sum_rows" and op ~= "epilogue" then
//$     -- another launch does
//$ include("common/check_sizes.cu", { rolled = false })

//$   end
//$ end
//$ include "common/scheduler.cu"

//$ if scale then
//$ include "quantize/storage.c"

//$ end
//$ include "quantize/shape.c"

//$ if scale then
typedef $(scale.code) sf_element;
//$ end
