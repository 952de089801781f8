--@ specs/kernels/shipped.lua
shipped {
  "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x64x32_depth2",
  "quern_f16_fprop_tn_m_f16_host",
}
