/* SPDX-License-Identifier: Apache-2.0 */
/*
** defects.h: defects that a test must see: of kernels, as an edit of their PTX,
** and of the interpreter, as a misreading of the instruction set.
*/
#pragma once

#define BF16_90                                                                \
    "fprop bf16 g=3 m=300 n=256 k=512 split=skew --kernel "                    \
    "quern_bf16_fprop_tn_m_bf16_sm90a_cooperative_tile128x128x64_cluster1x2"
#define BF16_80 "dgrad bf16 g=3 m=200 n=128 k=128 split=skew"
#define GATHER_90                                                              \
    "fprop bf16 g=3 m=300 n=256 k=512 split=skew gather=a tokens=100 topk=3 "  \
    "--kernel "                                                                \
    "quern_bf16_fprop_tn_m_bf16_sm90a_gather_a_cooperative_tile128x256x64_"    \
    "cluster1x1"
#define SCATTER_90                                                             \
    "fprop bf16 g=3 m=300 n=264 k=136 split=skew scatter=1 --kernel "          \
    "quern_bf16_fprop_tn_m_bf16_sm90a_scatter_d_pingpong_tile128x128x64_"      \
    "cluster1x1"
#define TURNED "dgrad bf16 g=3 m=300 n=256 k=200 split=skew"
#define ADDED                                                                  \
    "wgrad bf16 g=3 m=256 n=128 k=300 split=skew d=f32 beta=1 --kernel "       \
    "quern_bf16_wgrad_nt_k_f32_add_sm90a_cooperative_tile128x128x64_"          \
    "cluster1x1"
#define BF16_100                                                               \
    "fprop bf16 g=3 m=600 n=512 k=128 split=skew --kernel "                    \
    "quern_bf16_fprop_tn_m_bf16_sm100f_tile256x128x64"
#define TURNED_100                                                             \
    "wgrad bf16 g=3 m=256 n=128 k=300 split=skew d=f32 beta=1 --kernel "       \
    "quern_bf16_wgrad_nt_k_f32_add_sm100f_tile128x128x64"
#define SEVERAL "quantize nvfp4 of=x g=3 m=200 k=256 split=skew" /* launches */

/* X(device, line, variable, its value) */
#define PTX_DEFECTS(X)                                                         \
    X("9.0", BF16_90, EDIT,                                                    \
      "wgmma.wait_group.sync.aligned 0=>wgmma.wait_group.sync.aligned 7")      \
    X("9.0", BF16_90, EDIT,                                                    \
      "wgmma.wait_group.sync.aligned 1=>wgmma.wait_group.sync.aligned 7")      \
    X("9.0", BF16_90, EDIT, "wgmma.commit_group.sync.aligned;=>")              \
    X("9.0", BF16_90, EDIT, "wgmma.fence.sync.aligned;=>")                     \
    X("9.0", BF16_90, EDIT, "setmaxnreg.dec.sync.aligned.u32 56;=>")           \
    X("9.0", BF16_90, EDIT,                                                    \
      "setmaxnreg.inc.sync.aligned.u32 224=>"                                  \
      "setmaxnreg.inc.sync.aligned.u32 232")                                   \
    X("9.0", BF16_90, EDIT, "fence.proxy.async.shared::cta;=>")                \
    X("9.0", BF16_90, EDIT,                                                    \
      "cp.async.bulk.wait_group.read 0=>cp.async.bulk.wait_group.read 7")      \
    X("9.0", BF16_90, EDIT, "@!done bra wait;=>")                              \
    X("9.0", BF16_90, EDIT, "barrier.cluster.wait.acquire.aligned;=>")         \
    X("9.0", BF16_90, EDIT,                                                    \
      "mbarrier.arrive.shared::cluster.b64 _, [remote];=>")                    \
    X("9.0", BF16_90, EDIT, "m8n8.x4.shared.b16=>m8n8.x4.trans.shared.b16")    \
    X("9.0", GATHER_90, EDIT, "fence.proxy.async.shared::cta;=>")              \
    X("9.0", GATHER_90, EDIT,                                                  \
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [=>"                     \
      "mbarrier.arrive.shared::cta.b64 _, [")                                  \
    X("9.0", SCATTER_90, EDIT, "m8n8.x4.shared.b16=>m8n8.x4.trans.shared.b16") \
    X("8.0", BF16_80, EDIT, "cp.async.wait_group 1=>cp.async.wait_group 3")    \
    X("8.0", BF16_80, EDIT, "bar.sync \t0;=>bar.warp.sync -1;")                \
    X("8.0", BF16_80, EDIT, "m8n8.x4.trans.shared.b16=>m8n8.x4.shared.b16")    \
    X("9.0", SEVERAL, EDIT, "griddepcontrol.wait;=>")                          \
    X("9.0", BF16_90, MISREAD, "swizzle")                                      \
    X("9.0", BF16_90, MISREAD, "low_swizzle")                                  \
    X("9.0", BF16_90, MISREAD, "strides")                                      \
    X("9.0", BF16_90, MISREAD, "rows")                                         \
    X("9.0", BF16_90, MISREAD, "parity")                                       \
    X("9.0", BF16_90, MISREAD, "own_barrier")                                  \
    X("9.0", BF16_90, MISREAD, "own_memory")                                   \
    X("9.0", BF16_90, MISREAD, "dimensions")                                   \
    X("9.0", BF16_90, MISREAD, "stored")                                       \
    X("9.0", BF16_90, MISREAD, "halves")                                       \
    X("9.0", BF16_90, MISREAD, "old_sum")                                      \
    X("9.0", BF16_90, MISREAD, "early_phase")                                  \
    X("9.0", BF16_90, MISREAD, "first_copies")                                 \
    X("9.0", TURNED, MISREAD, "turned")                                        \
    X("9.0", TURNED, MISREAD, "outside")                                       \
    X("9.0", ADDED, MISREAD, "plain_add")                                      \
    X("8.0", BF16_80, MISREAD, "fragment")                                     \
    X("8.0", BF16_80, MISREAD, "matrix")                                       \
    X("8.0", BF16_80, MISREAD, "first_copies")                                 \
    X("10.0", BF16_100, EDIT, "tcgen05.wait::ld.sync.aligned;=>")              \
    X("10.0", BF16_100, EDIT, "tcgen05.fence::after_thread_sync;=>")           \
    X("10.0", BF16_100, EDIT, "tcgen05.fence::before_thread_sync;=>")          \
    X("10.0", BF16_100, EDIT,                                                  \
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"  \
      "=>mbarrier.arrive.shared::cta.b64 _,")                                  \
    X("10.0", BF16_100, EDIT,                                                  \
      "tcgen05.dealloc.cta_group::1.sync.aligned.b32=>// ")                    \
    X("10.0", BF16_100, EDIT, "fence.proxy.async.shared::cta;=>")              \
    X("10.0", BF16_100, EDIT, "@!done bra wait;=>")                            \
    X("10.0", BF16_100, MISREAD, "swizzle")                                    \
    X("10.0", BF16_100, MISREAD, "strides")                                    \
    X("10.0", BF16_100, MISREAD, "rows")                                       \
    X("10.0", BF16_100, MISREAD, "old_sum")                                    \
    X("10.0", BF16_100, MISREAD, "fragment")                                   \
    X("10.0", BF16_100, MISREAD, "parity")                                     \
    X("10.0", BF16_100, MISREAD, "early_phase")                                \
    X("10.0", TURNED_100, MISREAD, "turned")                                   \
    X("10.0", TURNED_100, MISREAD, "outside")                                  \
    X("10.0", TURNED_100, MISREAD, "strides")
