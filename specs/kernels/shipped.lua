-- Kernels that `quern build` compiles when no filter is given: those that the model chooses on the
-- shapes of bench/shapes.json, and their neighbours. Everything else that the specs can express is
-- compiled on first use.

shipped {
  "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x128x64_cluster1x1",
  "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x192x64_cluster1x1",
  "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x256x64_cluster1x1",
  "quern_bf16_fprop_tn_m_bf16_sm90a_pingpong_tile128x128x64_cluster1x1",
  "quern_bf16_fprop_tn_m_f32_sm90a_cooperative_tile128x128x64_cluster1x1",
  "quern_bf16_fprop_tn_m_f32_sm90a_cooperative_tile128x192x64_cluster1x1",
  "quern_bf16_fprop_tn_m_f32_sm90a_cooperative_tile128x256x64_cluster1x1",
  "quern_bf16_fprop_tn_m_f32_sm90a_pingpong_tile128x128x64_cluster1x1",
  "quern_bf16_fprop_tn_m_bf16_sm90a_pingpong_tile64x256x64_cluster1x1",
  "quern_bf16_dgrad_nn_m_bf16_sm90a_cooperative_tile128x192x64_cluster1x1",
  "quern_bf16_dgrad_nn_m_bf16_sm90a_pingpong_tile128x128x64_cluster1x1",
  "quern_bf16_dgrad_nn_m_bf16_sm90a_pingpong_tile64x256x64_cluster1x1",
  "quern_bf16_wgrad_nt_k_bf16_sm90a_pingpong_tile128x128x64_cluster1x1",
  "quern_bf16_wgrad_nt_k_f32_add_sm90a_cooperative_tile128x256x64_cluster1x1_fetch",
  "quern_bf16_wgrad_nt_k_f32_add_sm90a_pingpong_tile128x128x64_cluster1x1",
  "quern_bf16_wgrad_nt_k_f32_add_sm90a_pingpong_tile128x128x64_cluster1x1_fetch",
  "quern_bf16_wgrad_nt_k_f32_scale_sm90a_cooperative_tile128x256x64_cluster1x1",
}
