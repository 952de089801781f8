/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_machine_tensor_refused.c: what the machine refuses of kernels with
** tcgen05: each row is one defect of a kernel that is right without it.
*/
#define _GNU_SOURCE
#include "cases.h"
#include "tensor_job.h"

#include <stdio.h>

static const struct tensor_product
    plain = {"kind::f16",
             &tensor_bf16,
             &tensor_bf16,
             {128, 0},
             {128, 0},
             1,
             128,
             64,
             0,
             0,
             0,
             0},
    scaled = {"kind::mxf8f6f4.block_scale.block32",
              &tensor_e4m3,
              &tensor_e4m3,
              {128, 0},
              {128, 0},
              1,
              64,
              128,
              1,
              0,
              0,
              0},
    packed = {"kind::mxf4nvf4.block_scale.block16",
              &tensor_packed,
              &tensor_packed,
              {128, 0},
              {128, 0},
              1,
              64,
              256,
              4,
              1,
              0,
              0},
    pair = {"kind::f16",
            &tensor_bf16,
            &tensor_bf16,
            {128, 0},
            {128, 0},
            2,
            64,
            64,
            0,
            0,
            0,
            0};

/* The text with each `from` replaced. */
static void edit(char *text, size_t size, const char *from, const char *to)
{
    char *copy = strdup(text), *rest = copy, *at;
    size_t n = 0;

    assert_non_null(copy);
    assert_non_null(strstr(text, from));
    while ((at = strstr(rest, from))) {
        n += (size_t)snprintf(text + n, size - n, "%.*s%s", (int)(at - rest),
                              rest, to);
        rest = at + strlen(from);
        assert_true(n < size);
    }
    snprintf(text + n, size - n, "%s", rest);
    free(copy);
}

static const struct tensor_product in_tensor = {"kind::f16",
                                                &tensor_bf16,
                                                &tensor_bf16,
                                                {TENSOR_MEMORY, 0},
                                                {128, 0},
                                                1,
                                                32,
                                                64,
                                                0,
                                                0,
                                                0,
                                                0};

static const struct tensor_product turned_64 = {"kind::f8f6f4",
                                                &tensor_e4m3,
                                                &tensor_e4m3,
                                                {64, 1},
                                                {64, 1},
                                                1,
                                                64,
                                                64,
                                                0,
                                                0,
                                                0,
                                                1};

static void check_refused(const struct tensor_product *p, const char *from,
                          const char *to, const char *expected)
{
    char text[16384];
    const char *why;
    int wrong;

    tensor_write(p, text, sizeof text);
    if (from)
        edit(text, sizeof text, from, to);
    wrong = tensor_run(p, text, &why);
    if (expected ? !strstr(why, expected) : wrong)
        fail_msg("%d wrong, \"%s\", not \"%s\":\n%s for %s", wrong, why,
                 expected ? expected : "", to ? to : "", from ? from : "");
}

/* Bits of descriptors. */
TEST_ONCE(tensor_descriptors)
{
    static const struct {
        const struct tensor_product *p;
        struct tensor_defect bits;
        const char *why;
    } rows[] = {
        {&plain, {.a = 1ull << 46}, "bits 46 to 48 are not 1"},
        {&plain, {.a = 1ull << 53}, "a reserved bit is set"},
        {&plain, {.a = 1ull << 14}, "a reserved bit is set"},
        {&plain, {.a = 1ull << 61}, "its layout or base offset"},
        {&plain, {.a = 1ull << 49}, "its layout or base offset"},
        {&plain, {.a = 0x3f00}, "an operand at shared address"},
        {&plain, {.instruction = 1u << 6}, "a reserved bit is set"},
        {&plain, {.instruction = 1u << 23}, "a reserved bit is set"},
        {&scaled, {.instruction = 1u << 31}, "a reserved bit is set"},
        {&plain, {.instruction = 1u << 8}, "that the kind has not"},
        {&scaled, {.instruction = 2u << 10}, "that the kind has not"},
        {&plain, {.instruction = 1u << 4}, "only fp32 is known"},
        {&plain, {.instruction = 10u << 24}, "m = 32; only 128 or 64"},
        {&in_tensor, {.instruction = 12u << 24}, "A of 64 rows in tensor"},
        {&pair, {.instruction = 24u << 24}, "m = 128; only 256"},
        {&plain, {.instruction = 1u << 17}, "n = 136 is no multiple of 16"},
        {&plain, {.instruction = 16u << 17}, "n = 0 is no multiple"},
        {&turned_64, {.instruction = 1u << 17}, "n = 72 is no multiple of 16"},
        {&pair, {.instruction = 2u << 17}, "n = 80 is no multiple of 32"},
        {&packed, {.instruction = 1u << 15}, "4 bits are k-major"},
        {&in_tensor, {.instruction = 1u << 15}, "A in tensor memory is k-m"},
        {&packed, {.instruction = 1u << 29}, "there is no scale id 1 of A"},
        {&packed, {.instruction = 2u << 4}, "there is no scale id 2 of B"},
        {&scaled, {.instruction = 1u << 23}, "e4m3 scales are of blocks of 16"},
    };

    tensor_start("PTX_SEED", "1");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tensor_defect = rows[i].bits;
        check_refused(rows[i].p, NULL, NULL, rows[i].why);
        memset(&tensor_defect, 0, sizeof tensor_defect);
    }
}

#define PRODUCT                                                                \
    "tcgen05.mma.cta_group::1.kind::f16 [%r13], %rd2, %rd3, %r2, %p3;\n"
#define COMMIT                                                                 \
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 "   \
    "[%r8];\n"
#define A_COLUMN(n) "add.u32 %r40, %r13, " n ";\nstep:"
#define STORE_A                                                                \
    "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r40+-8], {%d0};\n"                \
    "tcgen05.wait::st.sync.aligned;\n"
#define ALLOC "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1]"
#define RELINQUISH                                                             \
    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
#define DEALLOC                                                                \
    "@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r13, 512;\n"
#define WAITED "@!%p2 bra issued;\n"
#define BEFORE "tcgen05.fence::before_thread_sync;\n"
#define AFTER  "tcgen05.fence::after_thread_sync;\n"
#define LOADED "@%p4 bra more;\n"
/* One more product after all have loaded D, with what is between. */
#define AGAIN(between)                                                         \
    LOADED between "setp.ne.u32 %p3, %r0, %r0;\nmov.u32 %r15, 8;\n"            \
                   "@%p0 " PRODUCT "@%p0 " COMMIT                              \
                   "once:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, "     \
                   "[%r8], 1;\n@!%p2 bra once;\n"

/* Allocations, addresses and names. */
TEST_ONCE(tensor_memory)
{
    static const struct {
        const struct tensor_product *p;
        const char *from, *to, *why;
    } rows[] = {
        {&plain, ", 512", ", 64", "of CTA rank 0 is not allocated"},
        {&plain, ", 512", ", 48", "48 columns; allocations have"},
        {&plain, ", 512", ", 16", "16 columns; allocations have"},
        {&plain, DEALLOC, "", "ends with 512 columns"},
        {&plain, DEALLOC,
         "@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r13, 256;\n",
         "are no allocation"},
        {&plain, RELINQUISH, RELINQUISH "@%p1 " ALLOC ", 32;\n",
         "allocates after"},
        {&plain, "[%r13], %rd2", "[%r13+65536], %rd2", "D begins in lane 1"},
        {&plain, "[%r16]", "[%r16+6291456]", "lane 96 of tensor memory"},
        {&plain, "[%r16]", "[%r16+1048576]", "lane 16 of tensor memory"},
        {&plain, RELINQUISH,
         "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;\n",
         "another .cta_group"},
        {&plain, "kind::f16", "kind::f17", "is not known"},
        {&scaled, "32x128b.warpx4", "128x128b", "lane 32 has others"},
        {&scaled, "@%p6 bra tiled", "bra tiled", "scales, was never written"},
        {&in_tensor, A_COLUMN("448"), A_COLUMN("440"), "A, was never written"},
        {&in_tensor, A_COLUMN("448"), A_COLUMN("505"), "is not allocated"},
        {&in_tensor, A_COLUMN("448"), A_COLUMN("1048576"),
         "A begins in lane 16"},
        {&in_tensor, "tcgen05.wait::st.sync.aligned;\n", "",
         "loads or stores it"},
        {&in_tensor, WAITED AFTER, WAITED STORE_A AFTER,
         "issued a product or a copy that uses it"},
        {&in_tensor, WAITED AFTER, WAITED AFTER STORE_A, NULL},
        {&pair, "setp.ne.u32 %p3, %r20, 0", "setp.ne.u32 %p3, %r20, 1",
         "the odd CTA of a pair"},
    };

    tensor_start("PTX_SEED", "1");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_refused(rows[i].p, rows[i].from, rows[i].to, rows[i].why);
}

/* Lanes of D that a product leaves alone: of the first one 0 and 5. */
TEST_ONCE(tensor_lanes)
{
    static const char masked[] =
        "mov.u32 %r38, 0x21;\nmov.u32 %r39, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%r13], %rd2, %rd3, %r2, "
        "{%r38, %r39, %r39, %r39}, %p3;\n";
    char text[16384];
    const char *why;

    tensor_start("PTX_SEED", "1");
    tensor_write(&plain, text, sizeof text);
    edit(text, sizeof text, PRODUCT, masked);
    assert_int_equal(tensor_run(&plain, text, &why), 2 * plain.n);
    edit(text, sizeof text, "0x21", "0");
    assert_int_equal(tensor_run(&plain, text, &why), 0);
}

/* Waits and fences, whatever the order of events: NULL: none is missing. */
TEST_ONCE(tensor_order)
{
    static const struct {
        const char *from, *to, *why;
    } rows[] = {
        {"tcgen05.wait::ld.sync.aligned;\n", "", "before its tcgen05.wait::ld"},
        {WAITED, "", "issued a product or a copy that uses it"},
        {WAITED AFTER, WAITED, "issued a product or a copy that uses it"},
        {"setp.ne.u32 %p3, %r14, 0", "setp.ge.u32 %p3, %r14, 0",
         "a sum to be added to, was never written"},
        {"fence.proxy.async.shared::cta;\n", "", "without a fence.proxy.async"},
        {COMMIT, "st.shared.u32 [%r1+1024], %r14;\n" COMMIT,
         "was overwritten by a warp"},
        {LOADED, AGAIN(BEFORE "bar.sync 0;\n" AFTER), NULL},
        {LOADED, AGAIN("bar.sync 0;\n" AFTER), "loads or stores it"},
        {LOADED, AGAIN(BEFORE "bar.sync 0;\n"), "loads or stores it"},
        {LOADED,
         LOADED "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r13], {%d0};\n" AGAIN(
             BEFORE "bar.sync 0;\n" AFTER),
         "loads or stores it"},
        {LOADED,
         LOADED
         "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r13], {%d0};\n"
         "tcgen05.wait::st.sync.aligned;\n" AGAIN(BEFORE "bar.sync 0;\n" AFTER),
         NULL},
        {LOADED, AGAIN(BEFORE "bar.sync 0;\n" AFTER) "@%p0 " COMMIT,
         "is in flight when its CTA ends"},
    };

    tensor_start("PTX_LATE", "256");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_refused(&plain, rows[i].from, rows[i].to, rows[i].why);
    unsetenv("PTX_LATE");
    tensor_start("PTX_SEED", "1");
}
