/* SPDX-License-Identifier: Apache-2.0 */
/*
** victims.h: kernels into which defects are planted. M and K say which axis is
** ragged, NONE that none is. TURNS: a warpgroup has tiles of its own. PAIRS:
** two CTAs share rows of A. STACKS: they share columns of B, but in a group's
** odd last row of tiles, rows of A. ABOVE: they share columns of B in any row.
** HALVES of a scaled kernel: a tile's columns are shared out, not its rows; of
** an activation: its operands are halves. RUNS: they are interleaved. TALL:
** rows' scales come in two boxes. GLOBAL: a second level of scales. SHORT: half
** of the threads have a row of A. SWAPPED: rows of B as the tensor cores' rows.
** ACROSS: rows of packed weights are steps of k. B_: for Blackwell.
*/
#pragma once

#define B_M       "bf16_fprop_tn_m_bf16_sm100f_tile128x128x64"
#define B_M_SCALE "bf16_dgrad_nn_m_bf16_scale_sm100f_tile128x128x64"
#define B_M_PAIR  "bf16_fprop_tn_m_bf16_sm100f_tile256x128x64_cluster1x2"
#define B_M_ABOVE                                                              \
    "bf16_fprop_tn_m_bf16_activate_sm100f_swiglu_interleave0_gather_a_"        \
    "tile128x256x64_cluster2x1"
#define B_M_MX_ABOVE                                                           \
    "mxfp8_dgrad_tn_m_bf16_gradient_copies_sm100f_swiglu_interleave0_"         \
    "tile128x128x128_cluster2x1"
#define B_M_GRADIENT                                                           \
    "bf16_dgrad_nn_m_bf16_gradient_sm100f_swiglu_interleave0_tile128x256x64"
#define B_M_COPIES                                                             \
    "mxfp8_fprop_tn_m_bf16_copies_sm100f_swiglu_interleave0_tile128x128x128"
#define B_M_DY_COPIES                                                          \
    "mxfp8_dgrad_tn_m_bf16_gradient_copies_sm100f_swiglu_interleave0_"         \
    "tile128x128x128"
#define B_M_HALF_COPIES                                                        \
    "mxfp4_fprop_tn_m_bf16_copies_sm100f_swiglu_interleave0_tile128x128x256"
#define B_M_DY_BLOCKS                                                          \
    "fp8_block_dgrad_tn_m_bf16_gradient_copies_sm100f_geglu_interleave8_"      \
    "tile128x128x128"
#define B_M_ROW_GRADIENT                                                       \
    "fp8_row_dgrad_tn_m_bf16_gradient_sm100f_gelu_interleave0_tile128x256x128"
#define B_M_BLOCKS                                                             \
    "fp8_block_fprop_tn_m_bf16_copies_sm100f_swiglu_interleave0_"              \
    "tile128x256x128"
#define B_M_BLOCK      "fp8_block_fprop_tn_m_bf16_sm100f_tile128x128x128"
#define B_M_GATHER     "bf16_fprop_tn_m_bf16_sm100f_gather_a_tile128x128x64"
#define B_M_ROW_GATHER "fp8_row_fprop_tn_m_bf16_sm100f_gather_a_tile128x128x128"
#define B_M_BLOCK_GATHER                                                       \
    "fp8_block_fprop_tn_m_bf16_sm100f_gather_a_tile128x128x128"
#define B_M_BLOCKS_GATHER                                                      \
    "fp8_block_fprop_tn_m_bf16_copies_sm100f_swiglu_interleave0_gather_a_"     \
    "tile128x256x128_cluster2x1"
#define B_M_LORA "fp16_dgrad_nn_m_f32_sm100f_lora_tile128x128x64"
#define B_M_LORA_PAIR                                                          \
    "bf16_fprop_tn_m_bf16_sm100f_lora_tile256x128x64_cluster1x2"
#define B_M_MX_PAIR "mxfp8_fprop_tn_m_bf16_sm100f_tile192x128x128_cluster1x2"
#define B_K_NV_PAIR "nvfp4_wgrad_tn_k_f32_add_sm100f_tile192x128x256_cluster1x2"
#define B_K_PAIR    "bf16_wgrad_nt_k_f32_add_sm100f_tile256x128x64_cluster1x2"
#define B_K         "bf16_wgrad_nt_k_f32_add_sm100f_tile128x128x64"

/* rows of D anywhere */
#define SCATTER                                                                \
    "fp8_block_fprop_tn_m_bf16_sm90a_scatter_d_cooperative_"                   \
    "tile128x256x128_cluster1x1"
#define SCATTER_SYNC                                                           \
    "fp8_row_fprop_tn_m_bf16_scale_sm90a_tile64x128x64_scatter_d"

/* few tokens and packed weights */
#define FEW "w4a16_mxfp4_fprop_tn_m_bf16_scale_sm90a_tile32x128x128_few"
#define FEW_ACTIVATE                                                           \
    "w4a16_mxfp4_fprop_tn_m_bf16_activate_sm90a_tile32x128x128_few"

#define FEW_LONG "w4a16_mxfp4_fprop_tn_m_bf16_scale_sm90a_tile16x128x256_few"
#define FEW_ZEROS                                                              \
    "w4a16_int4_zeros_fprop_tn_m_bf16_scale_sm90a_tile16x64x256_few"

/* and many of both */
#define WEIGHTS_FOUR                                                           \
    "w4a16_int4_fprop_tn_m_bf16_activate_sm90a_swiglu_interleave0_"            \
    "cooperative_tile64x256x64_cluster1x1_weights"
#define WEIGHTS_RUNS                                                           \
    "w4a16_mxfp4_fprop_tn_m_bf16_activate_sm90a_clamped_swiglu_interleave1_"   \
    "cooperative_tile256x128x64_cluster1x1"
#define WEIGHTS_HALVES                                                         \
    "w4a16_mxfp4_fprop_tn_m_bf16_activate_sm90a_geglu_interleave0_"            \
    "cooperative_tile256x128x64_cluster1x1"
#define WEIGHTS_BIAS                                                           \
    "w4a16_int4_fprop_tn_m_bf16_activate_sm90a_none_interleave0_"              \
    "cooperative_tile256x128x64_cluster1x1"

#define M_TURNS "bf16_dgrad_nn_m_bf16_sm90a_pingpong_tile128x128x64_cluster1x1"
#define M_PAIRS                                                                \
    "bf16_dgrad_tn_m_f32_sm90a_"                                               \
    "cooperative_tile128x128x64_cluster1x2"
#define M_STACKS                                                               \
    "bf16_dgrad_tn_m_bf16_sm90a_"                                              \
    "cooperative_tile128x128x64_cluster2x1"
#define M_STACKS_TURNS                                                         \
    "bf16_dgrad_nn_m_f32_sm90a_"                                               \
    "pingpong_tile128x128x64_cluster2x1"
#define M_ALPHA                                                                \
    "bf16_dgrad_tn_m_bf16_alpha_sm90a_"                                        \
    "pingpong_tile128x192x64_cluster1x1"
#define M_SCALE                                                                \
    "bf16_dgrad_tn_m_bf16_scale_sm90a_"                                        \
    "cooperative_tile128x128x64_cluster1x1"
#define M_HALVES                                                               \
    "bf16_fprop_tn_m_bf16_activate_sm90a_"                                     \
    "clamped_swiglu_interleave0_cooperative_tile128x128x64_cluster1x1"
#define M_HALVES_TURNS                                                         \
    "bf16_fprop_tn_m_f32_activate_sm90a_"                                      \
    "swiglu_interleave0_pingpong_tile64x256x64_cluster1x1"
#define M_RUNS                                                                 \
    "bf16_fprop_tn_m_f32_activate_sm90a_"                                      \
    "geglu_interleave32_cooperative_tile128x128x64_cluster1x1"
#define M_RUNS_SHORT                                                           \
    "bf16_fprop_tn_m_bf16_activate_sm90a_"                                     \
    "swiglu_interleave8_pingpong_tile128x128x64_cluster1x1"
#define M_SINGLE                                                               \
    "bf16_fprop_tn_m_bf16_activate_sm90a_"                                     \
    "squared_relu_interleave0_cooperative_tile128x256x64_cluster1x1"
#define M_BIAS                                                                 \
    "bf16_fprop_tn_m_bf16_activate_sm90a_"                                     \
    "none_interleave0_pingpong_tile128x128x64_cluster1x1"
#define K_STORE                                                                \
    "bf16_wgrad_nt_k_bf16_sm90a_"                                              \
    "cooperative_tile128x128x64_cluster1x1"
#define K_TURNS "bf16_wgrad_nt_k_f32_sm90a_pingpong_tile128x128x64_cluster1x1"
#define K_ADD                                                                  \
    "bf16_wgrad_nt_k_f32_add_sm90a_"                                           \
    "cooperative_tile128x128x64_cluster1x2"
#define K_READ                                                                 \
    "bf16_wgrad_nt_k_bf16_add_sm90a_"                                          \
    "pingpong_tile128x128x64_cluster1x1"
#define K_FETCH                                                                \
    "bf16_wgrad_nt_k_f32_add_sm90a_"                                           \
    "pingpong_tile128x128x64_cluster1x1_fetch"
#define K_FETCH_SIX                                                            \
    "bf16_wgrad_nt_k_f32_add_sm90a_"                                           \
    "cooperative_tile128x192x64_cluster1x1_fetch"
#define K_SCALE                                                                \
    "bf16_wgrad_nt_k_f32_scale_sm90a_"                                         \
    "cooperative_tile128x128x64_cluster1x1"
#define UNIFORM                                                                \
    "bf16_dgrad_tn_none_bf16_scale_sm90a_"                                     \
    "cooperative_tile128x128x64_cluster1x1"
#define TENSOR_M                                                               \
    "fp8_tensor_dgrad_tn_m_bf16_sm90a_"                                        \
    "cooperative_tile128x192x128_cluster1x1"
#define TENSOR_M_TURNS                                                         \
    "fp8_tensor_dgrad_tn_m_f32_sm90a_"                                         \
    "pingpong_tile128x128x128_cluster1x1"
#define ROW_M                                                                  \
    "fp8_row_dgrad_tn_m_bf16_sm90a_"                                           \
    "cooperative_tile256x128x128_cluster1x1"
#define BLOCK_M                                                                \
    "fp8_block_dgrad_tn_m_f32_sm90a_"                                          \
    "cooperative_tile128x128x128_cluster1x1"
#define BLOCK_M_TALL                                                           \
    "fp8_block_dgrad_tn_m_bf16_sm90a_"                                         \
    "cooperative_tile256x128x128_cluster1x1"
#define BLOCK_M_HALVES                                                         \
    "fp8_block_dgrad_tn_m_bf16_sm90a_"                                         \
    "cooperative_tile64x256x128_cluster1x1"
#define BLOCK_M_WHOLE                                                          \
    "fp8_block_dgrad_tn_m_bf16_sm90a_"                                         \
    "cooperative_tile128x192x128_cluster1x1"
#define ROW_M_WHOLE                                                            \
    "fp8_row_dgrad_tn_m_bf16_sm90a_"                                           \
    "cooperative_tile128x192x128_cluster1x1"
#define TENSOR_K                                                               \
    "fp8_tensor_wgrad_tn_k_bf16_sm90a_"                                        \
    "pingpong_tile128x128x128_cluster1x1"
#define ROW_K                                                                  \
    "fp8_row_wgrad_tn_k_bf16_sm90a_"                                           \
    "cooperative_tile128x256x128_cluster1x1"
#define BLOCK_K                                                                \
    "fp8_block_wgrad_tn_k_bf16_sm90a_"                                         \
    "cooperative_tile128x128x128_cluster1x1"
#define BLOCK_K_ADD                                                            \
    "fp8_block_wgrad_tn_k_f32_add_sm90a_"                                      \
    "cooperative_tile128x256x128_cluster1x1"
#define CODES_M                                                                \
    "mxfp8_dgrad_tn_m_bf16_sm90a_"                                             \
    "cooperative_tile128x128x64_cluster1x1_shared"
#define CODES_M_GLOBAL                                                         \
    "nvfp4_dgrad_tn_m_f32_sm90a_"                                              \
    "cooperative_tile128x256x64_cluster1x1_shared"
#define CODES_M_SHORT                                                          \
    "mxfp4_dgrad_tn_m_bf16_sm90a_"                                             \
    "cooperative_tile64x256x64_cluster1x1_shared"
#define CODES_M_REGISTERS                                                      \
    "nvfp4_dgrad_tn_m_bf16_sm90a_"                                             \
    "cooperative_tile128x256x64_cluster1x1_registers"
#define CODES_M_SWAPPED_EITHER                                                 \
    "mxfp8_dgrad_tn_m_f32_sm90a_"                                              \
    "cooperative_tile64x256x64_cluster1x1_swapped_either"
#define LORA_ACROSS                                                            \
    "w4a16_mxfp4_dgrad_nn_m_bf16_sm90a_"                                       \
    "lora_cooperative_tile256x128x64_cluster1x1"
#define LORA_SWAPPED                                                           \
    "w4a16_nvfp4_fprop_tn_m_bf16_sm90a_"                                       \
    "lora_cooperative_tile32x256x64_cluster1x1_swapped"
#define MERGED                                                                 \
    "bf16_wgrad_nt_k_bf16_sm90a_"                                              \
    "cooperative_tile128x128x64_cluster1x1_microbatches8"
#define MERGED_FETCH                                                           \
    "bf16_wgrad_nt_k_f32_add_sm90a_"                                           \
    "pingpong_tile128x128x64_cluster1x1_fetch_microbatches8"
#define MERGED_BLOCK                                                           \
    "fp8_block_wgrad_tn_k_bf16_sm90a_"                                         \
    "cooperative_tile128x128x128_cluster1x1_microbatches8"
#define M_ALTERNATING                                                          \
    "bf16_fprop_tn_m_bf16_activate_sm90a_"                                     \
    "reglu_interleave1_cooperative_tile128x128x64_cluster1x1"
#define CODES_M_REGISTERS_F16                                                  \
    "mxfp8_dgrad_tn_m_bf16_sm90a_"                                             \
    "cooperative_tile128x256x64_cluster1x1_registers_f16"
#define CODES_M_SWAPPED_EITHER_MORE                                            \
    "mxfp8_dgrad_tn_m_bf16_sm90a_"                                             \
    "cooperative_tile96x256x64_cluster1x1_swapped_either"
#define CODES_M_SWAPPED_MORE                                                   \
    "nvfp4_dgrad_tn_m_f32_sm90a_"                                              \
    "cooperative_tile96x256x64_cluster1x1_swapped"
#define CODES_M_SWAPPED_TILES                                                  \
    "test_mx6_dgrad_tn_m_bf16_sm90a_"                                          \
    "cooperative_tile64x256x64_cluster1x1_swapped"
#define CODES_K_REGISTERS                                                      \
    "mxfp8_wgrad_tn_k_f32_sm90a_"                                              \
    "cooperative_tile128x128x64_cluster1x1_registers"
#define CODES_M_SWAPPED                                                        \
    "mxfp8_dgrad_tn_m_bf16_sm90a_"                                             \
    "cooperative_tile64x128x64_cluster1x1_swapped"
#define CODES_M_SWAPPED_GLOBAL                                                 \
    "nvfp4_dgrad_tn_m_f32_sm90a_"                                              \
    "cooperative_tile32x256x64_cluster1x1_swapped"
#define CODES_M_SWAPPED_MIXED                                                  \
    "test_w4_dgrad_tn_m_f32_sm90a_"                                            \
    "cooperative_tile64x256x64_cluster1x1_swapped"
#define CODES_M_MIXED                                                          \
    "test_w4_dgrad_tn_m_bf16_sm90a_"                                           \
    "cooperative_tile64x256x64_cluster1x1_shared"
#define CODES_M_TILES                                                          \
    "test_mx6_dgrad_tn_m_bf16_sm90a_"                                          \
    "cooperative_tile128x256x64_cluster1x1_shared"
#define CODES_K                                                                \
    "nvfp4_wgrad_tn_k_bf16_sm90a_"                                             \
    "cooperative_tile128x128x64_cluster1x1_shared"
#define CODES_K_SCALE                                                          \
    "nvfp4_wgrad_tn_k_f32_scale_sm90a_"                                        \
    "cooperative_tile128x128x64_cluster1x1_shared"
#define BLOCK_M_MAINLOOP                                                       \
    "fp8_block_dgrad_tn_m_bf16_sm90a_"                                         \
    "cooperative_tile128x128x128_cluster1x1_mainloop"
#define BLOCK_M_MAINLOOP_PAIRS                                                 \
    "fp8_block_dgrad_tn_m_bf16_sm90a_"                                         \
    "cooperative_tile128x256x128_cluster1x2_mainloop"
