-- As if the kernels of an MLP in bf16 had run on a GPU, and none of routes.
evidence "sm_86" {
  "quern_bf16_fprop_*", "quern_bf16_dgrad_*", "quern_bf16_wgrad_*", "quern_bf16_quantize_*",
  "quern_bf16_dprob_*",
}

-- SPDX-License-Identifier: Apache-2.0
