/* SPDX-License-Identifier: Apache-2.0 */
/*
** tensor_kernel.h: a small kernel of sm_100a: a product of one CTA or a pair,
** whose operands come as images of shared memory and whose sums go out as they
** are in tensor memory.
*/
#pragma once

#include <stdint.h>

/* What the kernel reads: descriptors of matrices as of address 0. */
struct tensor_job {
    uint64_t a, b;              /* descriptors */
    uint32_t instruction;       /* descriptor */
    uint32_t steps, words;      /* of k; of an image */
    uint32_t columns;           /* of D, a multiple of 8 */
    uint32_t a_step, b_step;    /* between steps, in units of 16 bytes */
    uint32_t scales, scale_ids; /* where their tiles begin; added each step */
    uint32_t image[];           /* of CTA 0; then that of CTA 1 */
};

enum { TENSOR_BEFORE = 64, TENSOR_IMAGE = 1024 }; /* bytes before an image */

/* Arguments: .cta_group, product with its operands, each time. */
#define TENSOR_BEGIN                                                           \
    ".version 8.8\n.target sm_100a\n.address_size 64\n"                        \
    ".extern .shared .align 1024 .b8 room[];\n"                                \
    ".visible .entry kernel(.param .u64 in, .param .u64 out)\n"                \
    ".maxntid 128, 1, 1\n{\n"                                                  \
    ".reg .b32 %r<40>;\n.reg .b32 %d<16>;\n.reg .b64 %rd<16>;\n"               \
    ".reg .pred %p<8>;\n"                                                      \
    "ld.param.u64 %rd0, [in];\nld.param.u64 %rd1, [out];\n"                    \
    "mov.u32 %r0, %tid.x;\nmov.u32 %r1, room;\n"                               \
    "mov.u32 %r20, %cluster_ctarank;\n"                                        \
    "setp.eq.u32 %p0, %r0, 0;\nsetp.lt.u32 %p1, %r0, 32;\n"                    \
    "ld.global.u64 %rd2, [%rd0];\nld.global.u64 %rd3, [%rd0+8];\n"             \
    "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd0+16];\n"                      \
    "ld.global.v4.u32 {%r6, %r7, %r24, %r25}, [%rd0+32];\n"                    \
    "add.u32 %r8, %r1, 8;\n"                                                   \
    "@%p0 mbarrier.init.shared::cta.b64 [%r8], 1;\n"                           \
    "fence.mbarrier_init.release.cluster;\n"
#define TENSOR_ALLOC(group)                                                    \
    "@%p1 tcgen05.alloc." group ".sync.aligned.shared::cta.b32 [%r1], 512;\n"  \
    "@%p1 tcgen05.relinquish_alloc_permit." group ".sync.aligned;\n"
/* The image, then all know of it and of the allocation. */
#define TENSOR_COPY                                                            \
    "mul.lo.u32 %r21, %r20, %r4;\nmul.wide.u32 %rd5, %r21, 4;\n"               \
    "add.u64 %rd5, %rd5, %rd0;\nmov.u32 %r10, %r0;\n"                          \
    "copy:\nsetp.ge.u32 %p2, %r10, %r4;\n@%p2 bra copied;\n"                   \
    "mul.wide.u32 %rd4, %r10, 4;\nadd.u64 %rd4, %rd4, %rd5;\n"                 \
    "ld.global.u32 %r11, [%rd4+48];\nshl.b32 %r12, %r10, 2;\n"                 \
    "add.u32 %r12, %r12, %r1;\nst.shared.u32 [%r12+1024], %r11;\n"             \
    "add.u32 %r10, %r10, 128;\nbra copy;\ncopied:\n"                           \
    "fence.proxy.async.shared::cta;\ntcgen05.fence::before_thread_sync;\n"     \
    "bar.sync 0;\nbarrier.cluster.arrive.aligned;\n"                           \
    "barrier.cluster.wait.aligned;\ntcgen05.fence::after_thread_sync;\n"       \
    "ld.shared.u32 %r13, [%r1];\n"                                             \
    "and.b32 %r22, %r1, 0xffffff;\nadd.u32 %r22, %r22, 1024;\n"                \
    "shr.u32 %r22, %r22, 4;\ncvt.u64.u32 %rd6, %r22;\n"                        \
    "add.u64 %rd2, %rd2, %rd6;\nadd.u64 %rd3, %rd3, %rd6;\n"
#define TENSOR_STEPS(product)                                                  \
    "mov.u32 %r14, 0;\nsetp.ne.u32 %p3, %r20, 0;\nnot.pred %p5, %p0;\n"        \
    "or.pred %p5, %p5, %p3;\n@%p5 bra issued;\n"                               \
    "step:\nsetp.ne.u32 %p3, %r14, 0;\n" product                               \
    "cvt.u64.u32 %rd7, %r6;\nadd.u64 %rd2, %rd2, %rd7;\n"                      \
    "cvt.u64.u32 %rd7, %r7;\nadd.u64 %rd3, %rd3, %rd7;\n"                      \
    "add.u32 %r2, %r2, %r25;\nadd.u32 %r14, %r14, 1;\n"                        \
    "setp.lt.u32 %p4, %r14, %r3;\n@%p4 bra step;\n"
#define TENSOR_COMMIT                                                          \
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 "   \
    "[%r8];\nissued:\n"
#define TENSOR_COMMIT_PAIR                                                     \
    "mov.b16 %rs0, 3;\ntcgen05.commit.cta_group::2.mbarrier::arrive::one."     \
    "shared::cluster.multicast::cluster.b64 [%r8], %rs0;\nissued:\n"
#define TENSOR_WAIT                                                            \
    "wait:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0;\n"         \
    "@!%p2 bra wait;\ntcgen05.fence::after_thread_sync;\n"
/* Row of a lane: rank 128 + thread. */
#define TENSOR_LOAD                                                            \
    "shl.b32 %r23, %r20, 7;\nadd.u32 %r23, %r23, %r0;\n"                       \
    "mul.lo.u32 %r23, %r23, %r5;\nmul.wide.u32 %rd8, %r23, 4;\n"               \
    "add.u64 %rd8, %rd8, %rd1;\nmov.u32 %r15, 0;\n"                            \
    "more:\nadd.u32 %r16, %r13, %r15;\n"                                       \
    "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%d0, %d1, %d2, %d3, %d4, %d5, "    \
    "%d6, %d7}, [%r16];\ntcgen05.wait::ld.sync.aligned;\n"                     \
    "st.global.v4.u32 [%rd8], {%d0, %d1, %d2, %d3};\n"                         \
    "st.global.v4.u32 [%rd8+16], {%d4, %d5, %d6, %d7};\n"                      \
    "add.u64 %rd8, %rd8, 32;\nadd.u32 %r15, %r15, 8;\n"                        \
    "setp.lt.u32 %p4, %r15, %r5;\n@%p4 bra more;\n"
#define TENSOR_END(group)                                                      \
    "tcgen05.fence::before_thread_sync;\nbar.sync 0;\n"                        \
    "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"         \
    "@%p1 tcgen05.dealloc." group ".sync.aligned.b32 %r13, 512;\nret;\n}\n"
