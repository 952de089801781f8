shipped {
  "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x64x32_depth2",
  "quern_f16_fprop_tn_m_f16_host",
}

evidence "sm_80" { "quern_bf16_fprop_tn_m_f32_sm80" } -- and not the names that it begins
evidence "sm_86" { "quern_bf16_fprop_tn_m_f32_sm80", "quern_no_such_kernel" }
evidence "interpreted" { "quern_f16_*" }
