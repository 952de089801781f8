-- Tiles of 128 x 160 next to those that quern has, for 16-bit products with rows in groups:
--
--   quern list -k --specs examples/own_tile 128x160
--   quern bench "fprop bf16 g=8 m=32768 n=5120 k=4096" --specs examples/own_tile --kernel \
--     quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x160x64_cluster2x1

extend "sm90_gemm_m" {
  axis "tile" { {128, 160, 64} },
}

-- SPDX-License-Identifier: Apache-2.0
