/* SPDX-License-Identifier: Apache-2.0 */
/*
** tensor_kernel.h: a small kernel of sm_100a: a product of one CTA or a pair,
** whose operands come as images of shared memory and whose sums go out as they
** are in tensor memory.
*/
#pragma once

#include <stdint.h>

/* The kernel's input; descriptors are of an image at address 0. */
struct tensor_job {
    uint64_t a, b;           /* descriptors */
    uint32_t instruction;    /* descriptor */
    uint32_t steps, words;   /* of k; of an image */
    uint32_t columns;        /* of D, a multiple of 8 */
    uint32_t a_step, b_step; /* between steps, in units of 16 bytes */
    uint32_t tiles, blocks;  /* of scales; of a step */
    uint32_t scales;         /* where tiles begin, in units */
    uint32_t b_first,
        b_column; /* of B's scales: the first, of each tile of k */
    uint32_t unused;
    uint32_t image[]; /* of CTA 0; then that of CTA 1 */
};

/* With .cta_group::1 or 2 for G. */
#define TENSOR_BEGIN                                                           \
    ".version 8.8\n.target sm_100a\n.address_size 64\n"                        \
    ".extern .shared .align 1024 .b8 room[];\n"                                \
    ".visible .entry kernel(.param .u64 in, .param .u64 out)\n"                \
    ".maxntid 128, 1, 1\n{\n"                                                  \
    ".reg .b32 %r<50>;\n.reg .b32 %d<16>;\n.reg .b64 %rd<16>;\n"               \
    ".reg .pred %p<8>;\n.reg .b16 %rs<2>;\n"                                   \
    "ld.param.u64 %rd0, [in];\nld.param.u64 %rd1, [out];\n"                    \
    "mov.u32 %r0, %tid.x;\nmov.u32 %r1, room;\n"                               \
    "mov.u32 %r20, %cluster_ctarank;\n"                                        \
    "setp.eq.u32 %p0, %r0, 0;\nsetp.lt.u32 %p1, %r0, 32;\n"                    \
    "ld.global.u64 %rd2, [%rd0];\nld.global.u64 %rd3, [%rd0+8];\n"             \
    "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd0+16];\n"                      \
    "ld.global.v4.u32 {%r6, %r7, %r24, %r25}, [%rd0+32];\n"                    \
    "ld.global.v4.u32 {%r26, %r27, %r28, %r29}, [%rd0+48];\n"                  \
    "add.u32 %r8, %r1, 8;\n"                                                   \
    "@%p0 mbarrier.init.shared::cta.b64 [%r8], 1;\n"                           \
    "fence.mbarrier_init.release.cluster;\n"                                   \
    "@%p1 tcgen05.alloc.G.sync.aligned.shared::cta.b32 [%r1], 512;\n"          \
    "@%p1 tcgen05.relinquish_alloc_permit.G.sync.aligned;\n"
/* The image, then all know of it and of the allocation. */
#define TENSOR_COPY                                                            \
    "mul.lo.u32 %r21, %r20, %r4;\nmul.wide.u32 %rd5, %r21, 4;\n"               \
    "add.u64 %rd5, %rd5, %rd0;\nmov.u32 %r10, %r0;\n"                          \
    "copy:\nsetp.ge.u32 %p2, %r10, %r4;\n@%p2 bra copied;\n"                   \
    "mul.wide.u32 %rd4, %r10, 4;\nadd.u64 %rd4, %rd4, %rd5;\n"                 \
    "ld.global.u32 %r11, [%rd4+64];\nshl.b32 %r12, %r10, 2;\n"                 \
    "add.u32 %r12, %r12, %r1;\nst.shared.u32 [%r12+1024], %r11;\n"             \
    "add.u32 %r10, %r10, 128;\nbra copy;\ncopied:\n"                           \
    "fence.proxy.async.shared::cta;\ntcgen05.fence::before_thread_sync;\n"     \
    "bar.sync 0;\nbarrier.cluster.arrive.aligned;\n"                           \
    "barrier.cluster.wait.aligned;\ntcgen05.fence::after_thread_sync;\n"       \
    "ld.shared.u32 %r13, [%r1];\n"                                             \
    "and.b32 %r22, %r1, 0xffffff;\nadd.u32 %r22, %r22, 1024;\n"                \
    "shr.u32 %r22, %r22, 4;\ncvt.u64.u32 %rd6, %r22;\n"                        \
    "add.u64 %rd2, %rd2, %rd6;\nadd.u64 %rd3, %rd3, %rd6;\n"
/* Each thread's row of A to columns 448 and later, 8 for each step. */
#define TENSOR_A                                                               \
    "mul.wide.u32 %rd11, %r0, 16;\nadd.u64 %rd11, %rd11, %rd5;\n"              \
    "mov.u32 %r14, 0;\nadd.u32 %r40, %r13, 448;\n"                             \
    "fill:\nld.global.v4.u32 {%d0, %d1, %d2, %d3}, [%rd11+64];\n"              \
    "ld.global.v4.u32 {%d4, %d5, %d6, %d7}, [%rd11+2112];\n"                   \
    "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r40], {%d0, %d1, %d2, %d3, %d4, " \
    "%d5, %d6, %d7};\nadd.u64 %rd11, %rd11, 4096;\n"                           \
    "add.u32 %r40, %r40, 8;\nadd.u32 %r14, %r14, 1;\n"                         \
    "setp.lt.u32 %p6, %r14, %r3;\n@%p6 bra fill;\n"                            \
    "tcgen05.wait::st.sync.aligned;\ntcgen05.fence::before_thread_sync;\n"     \
    "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"         \
    "tcgen05.fence::after_thread_sync;\n"
#define TENSOR_ISSUER                                                          \
    "setp.ne.u32 %p3, %r20, 0;\nnot.pred %p5, %p0;\n"                          \
    "or.pred %p5, %p5, %p3;\n@%p5 bra issued;\n"
/* Tiles of scales to columns 256 and later. */
#define TENSOR_SCALES                                                          \
    "mov.u32 %r30, 0;\n"                                                       \
    "tile:\nsetp.ge.u32 %p6, %r30, %r24;\n@%p6 bra tiled;\n"                   \
    "shl.b32 %r31, %r30, 5;\nadd.u32 %r31, %r31, %r22;\n"                      \
    "add.u32 %r31, %r31, %r26;\ncvt.u64.u32 %rd9, %r31;\n"                     \
    "mov.u64 %rd10, 0x400800000000;\nor.b64 %rd9, %rd9, %rd10;\n"              \
    "shl.b32 %r32, %r30, 2;\nadd.u32 %r32, %r32, %r13;\n"                      \
    "add.u32 %r32, %r32, 256;\ntcgen05.cp.G.32x128b.warpx4 [%r32], %rd9;\n"    \
    "add.u32 %r30, %r30, 1;\nbra tile;\ntiled:\n"
#define TENSOR_STEP                                                            \
    "mov.u32 %r14, 0;\nadd.u32 %r40, %r13, 448;\n"                             \
    "step:\nsetp.ne.u32 %p3, %r14, 0;\n"
#define TENSOR_PLAIN "tcgen05.mma.G.%s [%%r13], %s, %%rd3, %%r2, %%p3;\n"
#define TENSOR_SCALED                                                          \
    "mul.lo.u32 %%r33, %%r14, %%r25;\nand.b32 %%r34, %%r33, 3;\n"              \
    "shl.b32 %%r35, %%r34, 29;\nshl.b32 %%r36, %%r34, 4;\n"                    \
    "or.b32 %%r37, %%r35, %%r36;\nor.b32 %%r37, %%r37, %%r2;\n"                \
    "shr.u32 %%r33, %%r33, 2;\nshl.b32 %%r34, %%r33, 2;\n"                     \
    "add.u32 %%r34, %%r34, %%r13;\nadd.u32 %%r34, %%r34, 256;\n"               \
    "mul.lo.u32 %%r35, %%r33, %%r28;\nadd.u32 %%r35, %%r35, %%r13;\n"          \
    "add.u32 %%r35, %%r35, %%r27;\n"                                           \
    "tcgen05.mma.G.%s [%%r13], %s, %%rd3, %%r37, [%%r34], [%%r35], "           \
    "%%p3;\n"
#define TENSOR_NEXT                                                            \
    "cvt.u64.u32 %rd7, %r6;\nadd.u64 %rd2, %rd2, %rd7;\n"                      \
    "cvt.u64.u32 %rd7, %r7;\nadd.u64 %rd3, %rd3, %rd7;\n"                      \
    "add.u32 %r14, %r14, 1;\nadd.u32 %r40, %r40, 8;\n"                         \
    "setp.lt.u32 %p4, %r14, %r3;\n@%p4 bra step;\n"
#define TENSOR_COMMIT                                                          \
    "tcgen05.commit.G.mbarrier::arrive::one.shared::cluster.b64 [%r8];\n"
#define TENSOR_COMMIT_PAIR                                                     \
    "mov.b16 %rs0, 3;\ntcgen05.commit.G.mbarrier::arrive::one."                \
    "shared::cluster.multicast::cluster.b64 [%r8], %rs0;\n"
/* Row of a lane: rank 128 + thread. */
#define TENSOR_LOAD                                                            \
    "issued:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0;\n"       \
    "@!%p2 bra issued;\ntcgen05.fence::after_thread_sync;\n"                   \
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
#define TENSOR_END                                                             \
    "tcgen05.fence::before_thread_sync;\nbar.sync 0;\n"                        \
    "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"         \
    "@%p1 tcgen05.dealloc.G.sync.aligned.b32 %r13, 512;\nret;\n}\n"
