/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_machine.c: instructions and declarations of others' kernels that ours
** have not, and the sums of tensor cores: small kernels of which each leaves
** one word, %r0 of thread 0.
*/
#include "cases.h"
#include "interpret.h"

#include <stdio.h>

#include "device/driver.h"

static const char begin[] =
    ".version 8.6\n.target sm_90a\n.address_size 64\n"
    ".extern .shared .align 1024 .b8 room[];\n%s\n"
    ".visible .entry kernel(.param .u64 out, .param .align 64 .b8 map[128])\n"
    ".maxntid 128, 1, 1\n{\n"
    ".reg .b32 %%r<40>;\n.reg .f32 %%f<8>;\n.reg .b64 %%rd<16>;\n"
    ".reg .pred %%p<4>;\n.reg .b16 %%rs<4>;\n"
    "ld.param.u64 %%rd0, [out];\nmov.u64 %%rd1, map;\n"
    "cvta.param.u64 %%rd1, %%rd1;\nmov.u32 %%r1, room;\n"
    "mov.u32 %%r2, %%tid.x;\nsetp.eq.u32 %%p0, %%r2, 0;\n%s\n"
    "@%%p0 st.global.u32 [%%rd0], %%r0;\nret;\n}\n";

struct kernel {
    const char *declared, *body;
    uint32_t expected;
    int type; /* of the tensor map's elements: two rows of four words */
    int rows; /* that its first dimension's neighbour has */
};

static struct qn_driver *driver;
static int many; /* clusters of 2 x 2 CTAs, 3 x 2 of them, not one CTA */

/* Another start of the machine, with other variables. */
static void start(const char *variable, const char *value)
{
    driver = interpret_start(variable, value);
}

static void encode(struct cu_tensor_map *map, const struct kernel *k,
                   uint64_t memory)
{
    const uint32_t row = k->type == 13 ? 32 : 4; /* 13: elements of 4 bits */
    const uint64_t dims[] = {row, (uint64_t)k->rows}, strides[] = {16};
    const uint32_t box[] = {row, 2}, ones[] = {1, 1};

    assert_int_equal(
        driver->cuTensorMapEncodeTiled(map, k->type, 2, (void *)memory, dims,
                                       strides, box, ones, 0, 0, 0, 0),
        0);
}

/* The result of a launch; *out is the word. 16 words of memory follow it from
   word 32 on: 100, 101, ...; the map is of them. */
static int launch(const struct kernel *k, uint32_t *out)
{
    struct cu_attribute cluster = {.id = QN_CU_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.cluster = {2, 2, 1}};
    const struct cu_launch shape = {.grid = {many ? 6 : 1, many ? 4 : 1, 1},
                                    .block = {128, 1, 1},
                                    .shared_bytes = 4096,
                                    .attributes = &cluster,
                                    .nattributes = many != 0};
    struct cu_tensor_map map;
    uint32_t words[80] = {0};
    uint64_t memory;
    void *params[] = {&memory, &map};
    char text[8192];
    int code;

    for (uint32_t i = 0; i < 16; i++)
        words[32 + i] = 100 + i;
    snprintf(text, sizeof text, begin, k->declared, k->body);
    assert_int_equal(driver->cuMemAlloc_v2(&memory, sizeof words), 0);
    memcpy((void *)memory, words, sizeof words);
    encode(&map, k, memory + 128);
    code = interpret_launch(text, &shape, params);
    memcpy(out, (void *)memory, sizeof *out);
    driver->cuMemFree_v2(memory);
    return code;
}

static void check(const struct kernel *k)
{
    const char *text = "";
    uint32_t out = 0;
    const int code = launch(k, &out);

    if (code)
        driver->cuGetErrorString(code, &text);
    if (code || out != k->expected)
        fail_msg("%d %s: 0x%08x, not 0x%08x:\n%s", code, text, out, k->expected,
                 k->body);
}

static void check_all(const struct kernel *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check(&rows[i]);
}

/* ---------------------------------------------------------------- variables */

/* Values, more variables than a few, and shared ones of the module. */
TEST_ONCE(variables)
{
    static const struct kernel rows[] = {
        {".const .align 4 .u32 table[3] = {5, 7};\n"
         ".global .align 1 .b8 a[1]; .global .align 1 .b8 b[1];\n"
         ".global .align 1 .b8 c[1]; .global .align 1 .b8 d[1];\n"
         ".global .align 1 .b8 e[1]; .global .align 1 .b8 f[1];\n"
         ".global .align 1 .b8 g[1]; .global .align 1 .b8 h[1];\n"
         ".global .align 8 .u64 last = 9;",
         "mov.u64 %rd2, table;\nld.const.u32 %r3, [%rd2+4];\n"
         "mov.u64 %rd3, last;\nld.global.u32 %r4, [%rd3];\n"
         "ld.const.u32 %r5, [%rd2+8];\nadd.u32 %r0, %r3, %r4;\n"
         "add.u32 %r0, %r0, %r5;",
         16, 2, 2},
        {".shared .align 4 .b8 first[40];",
         "mov.u32 %r3, first;\nsub.u32 %r0, %r1, %r3;", 1024, 2, 2},
    };

    start("PTX_SEED", "1");
    check_all(rows, sizeof rows / sizeof *rows);
}

/* ---------------------------------------------------------------- addresses */

/* A parameter that points into a space, spaces within brackets, as Triton
   writes them. */
TEST_ONCE(addresses)
{
    static const struct kernel rows[] = {
        {"", "ld.global.u32 %r0, [ %rd0 + 140 ];", 103, 2, 2},
        {"",
         "add.u64 %rd2, %rd0, 128;\nadd.u32 %r3, %r1, 16;\n"
         "@%p0 cp.async.cg.shared.global [ %r3 + 0 ], [ %rd2 + 0 ], 0x10;\n"
         "cp.async.commit_group;\ncp.async.wait_group 0;\n"
         "ld.shared.u32 %r0, [ %r3 + 8 ];",
         102, 2, 2},
    };

    start("PTX_EDIT", ".param .u64 out=>.param .u64 .ptr .global .align 1 out");
    check_all(rows, sizeof rows / sizeof *rows);
    unsetenv("PTX_EDIT");
    start("PTX_SEED", "1");
}

/* -------------------------------------------------------------- matrices */

#define STORED                                                                 \
    "and.b32 %r3, %r2, 7;\nshl.b32 %r3, %r3, 4;\nadd.u32 %r3, %r3, %r1;\n"     \
    "cvt.u64.u32 %rd2, %r3;\n"
#define ONE_WARP "setp.lt.u32 %p1, %r2, 32;\n@!%p1 bra end;\n"

/* An address of 64 bits, words of a name in any order. */
TEST_ONCE(matrices)
{
    static const struct kernel rows[] = {
        {"",
         ONE_WARP STORED
         "stmatrix.sync.aligned.x1.m8n8.shared.b16 [%rd2], {%r2};\n"
         "bar.warp.sync -1;\nld.shared.u32 %r0, [%r1+20];\nend:",
         5, 2, 2},
        {"",
         ONE_WARP STORED
         "stmatrix.sync.aligned.m8n8.x1.shared::cta.b16 [%r3], {%r2};\n"
         "bar.warp.sync -1;\n"
         "ldmatrix.sync.aligned.x1.trans.m8n8.shared.b16 {%r4}, [%rd2];\n"
         "mov.u32 %r0, %r4;\nend:",
         4 << 16, 2, 2},
    };

    start("PTX_SEED", "1");
    check_all(rows, sizeof rows / sizeof *rows);
}

/* ------------------------------------------------------------- tensor maps */

#define COPY_2D(space)                                                         \
    "cp.async.bulk.tensor.2d.shared::" space ".global.mbarrier::"
#define LOADED_BY(space)                                                       \
    "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 32;\n"           \
    "@%p0 " COPY_2D(space) "complete_tx::bytes.L2::cache_hint [%r1], "         \
                           "[%rd1, {%r6, %r7}], [%r5], %rd9;\n" WAITED
#define LOADED LOADED_BY("cluster")
#define WAITED                                                                 \
    "again:\n"                                                                 \
    "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0, 1000;\n"          \
    "@!%p2 bra again;\n"
#define BARRIER                                                                \
    "add.u32 %r5, %r1, 1024;\nmov.u32 %r6, 0;\nmov.u32 %r7, 0;\n"              \
    "mov.u64 %rd9, 0;\n"                                                       \
    "@%p0 mbarrier.init.shared::cta.b64 [%r5], 1;\nbar.sync 0;\n"

/* Fields that a kernel changes: rows from two words on, and then only one. */
TEST_ONCE(maps)
{
#define CHANGED                                                                \
    "add.u32 %r8, %r1, 2048;\ncvt.u64.u32 %rd3, %r8;\nmov.u32 %r10, 0;\n"      \
    "move:\nadd.u32 %r11, %r8, %r10;\ncvt.u64.u32 %rd4, %r10;\n"               \
    "add.u64 %rd4, %rd4, %rd1;\nld.u64 %rd5, [%rd4];\n"                        \
    "st.shared.u64 [%r11], %rd5;\nadd.u32 %r10, %r10, 8;\n"                    \
    "setp.lt.u32 %p1, %r10, 128;\n@%p1 bra move;\nbar.sync 0;\n"
#define IN_MEMORY                                                              \
    "add.u64 %rd1, %rd0, 192;\nbar.sync 0;\nsetp.lt.u32 %p1, %r2, 32;\n"       \
    "@%p1 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic."      \
    "release.gpu.sync.aligned [%rd1], [%r8], 128;\nbar.sync 0;\n"              \
    "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;\n"
#define REPLACE "@%p0 tensormap.replace.tile."
    static const struct kernel rows[] = {
        {"", BARRIER LOADED "ld.shared.u32 %r0, [%r1+20];", 105, 2, 2},
        {"", BARRIER LOADED "ld.shared.u32 %r0, [%r1+20];", 105, 13, 2},
        {"", BARRIER LOADED_BY("cta") "ld.shared.u32 %r0, [%r1+20];", 105, 2,
         2},
        {"",
         BARRIER "mov.u32 %r6, -32;\n" LOADED "ld.shared.u32 %r0, [%r1+20];", 0,
         13, 2},
        {"",
         BARRIER CHANGED "add.u64 %rd6, %rd0, 144;\n" REPLACE
                         "global_address.shared::cta.b1024.b64 [%r8], %rd6;\n"
                         "mov.u64 %rd7, 32;\n" REPLACE
                         "global_stride.shared::cta.b1024.b64 [%rd3], 0, "
                         "%rd7;\n" IN_MEMORY LOADED
                         "ld.shared.u32 %r0, [%r1+20];",
         113, 2, 2},
        {"",
         BARRIER CHANGED
         "mov.u32 %r9, 1;\n" REPLACE
         "global_dim.shared::cta.b1024.b32 [%rd3], 1, %r9;\n" IN_MEMORY LOADED
         "ld.shared.u32 %r3, [%r1+20];\nld.shared.u32 %r4, [%r1+4];\n"
         "shl.b32 %r3, %r3, 16;\nor.b32 %r0, %r3, %r4;",
         101, 2, 2},
    };

    start("PTX_SEED", "1");
    check_all(rows, sizeof rows / sizeof *rows);
}

/* Bytes told before the arrival; an arrival of copies that the barrier did not
   expect, which ends no phase by itself. */
TEST_ONCE(arrivals)
{
    static const struct kernel rows[] = {
        {"",
         BARRIER
         "@%p0 mbarrier.expect_tx.shared::cta.b64 [%r5], 32;\n"
         "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r5];\n"
         "@%p0 " COPY_2D("cluster") "complete_tx::bytes [%r1], "
                                    "[%rd1, {%r6, %r7}], [%r5];\n" WAITED
                                    "ld.shared.u32 %r0, [%r1+20];",
         105, 2, 2},
        {"",
         BARRIER "add.u64 %rd2, %rd0, 132;\n"
                 "@%p0 cp.async.ca.shared.global.L2::128B [%r1], [%rd2], 4;\n"
                 "@%p0 cp.async.mbarrier.arrive.shared::cta.b64 [%r5];\n"
                 "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r5];\n" WAITED
                 "bar.sync 0;\n"
                 "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r5];\n"
                 "more:\nmbarrier.try_wait.parity.shared::cta.b64 "
                 "%p2, [%r5], 1;\n@!%p2 bra more;\n"
                 "ld.shared.u32 %r0, [%r1];",
         101, 2, 2},
    };

    start("PTX_SEED", "1");
    check_all(rows, sizeof rows / sizeof *rows);
}

/* Which CTA of which cluster, for CTA (5, 2) of a grid of 6 x 4. */
TEST_ONCE(places)
{
#define PLACE(x, y)                                                            \
    "mov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ctaid.y;\n"                         \
    "setp.eq.u32 %p1, %r3, 5;\nand.pred %p0, %p0, %p1;\n"                      \
    "setp.eq.u32 %p1, %r4, 2;\nand.pred %p0, %p0, %p1;\n"                      \
    "mov.u32 %r5, " x ";\nmov.u32 %r6, " y ";\nshl.b32 %r6, %r6, 4;\n"         \
    "or.b32 %r0, %r5, %r6;"
#define PLACES(name) PLACE("%" name ".x", "%" name ".y")
#define MANY(name, sum)                                                        \
    {                                                                          \
        "", PLACES(name), sum, 2, 2                                            \
    }
    static const struct kernel rows[] = {
        MANY("cluster_ctaid", 0x01),
        MANY("cluster_nctaid", 0x22),
        MANY("clusterid", 0x12),
        MANY("nclusterid", 0x23),
        {"", PLACE("%cluster_nctaid.z", "%clusterid.z"), 1, 2, 2},
    };

    start("PTX_SEED", "1");
    many = 1;
    check_all(rows, sizeof rows / sizeof *rows);
    many = 0;
}

/* A copy by the odd CTA of a pair that counts on the even one's barrier, whose
   address differs in a bit; its cluster's CTAs 2 and 3 do nothing. */
TEST_ONCE(pair_copies)
{
#define PAIR                                                                   \
    "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;\n"             \
    "mov.u32 %r8, %cluster_ctarank;\nsetp.eq.u32 %p1, %r8, 0;\n"               \
    "and.pred %p1, %p1, %p0;\nsetp.eq.u32 %p2, %r8, 1;\n"                      \
    "and.pred %p2, %p2, %p0;\n" BARRIER                                        \
    "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 32;\n"           \
    "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"         \
    "and.b32 %r9, %r5, 0xfeffffff;\n"                                          \
    "@%p2 cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global."        \
    "mbarrier::complete_tx::bytes [%r1], [%rd1, {%r6, %r7}], [%r9];\n"         \
    "setp.ne.u32 %p3, %r8, 0;\n@%p3 bra waited;\n" WAITED                      \
    "waited:\nbarrier.cluster.arrive.aligned;\n"                               \
    "barrier.cluster.wait.aligned;\nsetp.eq.u32 %p2, %r8, 1;\nand.pred %p0, "  \
    "%p0, %p2;\n"                                                              \
    "ld.shared.u32 %r0, [%r1+20];"
    static const struct kernel row = {"", PAIR, 105, 2, 2};
    const char *text;
    uint32_t out;

    start("PTX_SEED", "1");
    many = 1;
    check(&row);
    start("PTX_MISREAD", "pair_barrier");
    driver->cuGetErrorString(launch(&row, &out), &text);
    assert_non_null(strstr(text, "deadlock"));
    unsetenv("PTX_MISREAD");
    start("PTX_SEED", "1");
    many = 0;
}

/* Warps that end after they have arrived count once; lanes of a warp wait one
   after the other. */
TEST_ONCE(cluster_waits)
{
    static const struct kernel row = {
        "",
        "barrier.cluster.arrive.aligned;\nsetp.ge.u32 %p1, %r2, 64;\n"
        "@%p1 bra end;\nmov.u32 %r3, %laneid;\nsetp.lt.u32 %p2, %r3, 7;\n"
        "@%p2 bra low;\nbarrier.cluster.wait.acquire;\nbra both;\nlow:\n"
        "barrier.cluster.wait.acquire;\nboth:\nbar.sync 1, 64;\n"
        "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
        "mov.u32 %r0, 3;\nend:",
        3, 2, 2};

    for (int seed = 1; seed < 5; seed++) {
        const char text[] = {(char)('0' + seed), 0};

        start("PTX_SEED", text);
        many = 1;
        check(&row);
        many = 0;
    }
    start("PTX_SEED", "1");
}

/* Constants of 16 bits: a negative one is its 16 bits, whose sign the type
   tells. */
TEST_ONCE(of_16_bits)
{
    static const struct kernel rows[] = {
        {"", "mov.u16 %rs0, 3;\nmul.wide.u16 %r0, %rs0, -21845;", 3 * 43691, 2,
         2},
        {"", "mov.u16 %rs0, 3;\nmul.wide.s16 %r0, %rs0, -21845;",
         (uint32_t)(3 * -21845), 2, 2},
        {"",
         "mov.u16 %rs0, 3;\nmax.u16 %rs1, %rs0, -2;\n"
         "min.u16 %rs1, %rs1, -1;\nshr.u16 %rs1, %rs1, 1;\n"
         "cvt.u32.u16 %r0, %rs1;",
         0x7fff, 2, 2},
    };

    start("PTX_SEED", "1");
    check_all(rows, sizeof rows / sizeof *rows);
}

/* Two floats in a register of 64 bits, arrivals with a count and a scope. */
TEST_ONCE(of_sm_100)
{
    static const struct kernel rows[] = {
        {"",
         "mov.b32 %f0, 0f40000000;\nmov.b32 %f1, 0f40400000;\n"
         "mov.b64 %rd2, {%f0, %f1};\nmul.f32x2 %rd3, %rd2, %rd2;\n"
         "fma.rn.f32x2 %rd3, %rd3, %rd2, %rd2;\n"
         "add.f32x2 %rd3, %rd3, %rd2;\nmov.b64 {%f2, %f3}, %rd3;\n"
         "add.f32 %f2, %f2, %f3;\ncvt.rzi.u32.f32 %r0, %f2;",
         12 + 33, 2, 2},
        {"",
         "add.u32 %r5, %r1, 1024;\nmov.u32 %r6, 2;\n"
         "@%p0 mbarrier.init.shared::cta.b64 [%r5], 5;\nbar.sync 0;\n"
         "@%p0 mbarrier.arrive.release.cta.shared::cta.b64 _, [%r5];\n"
         "@%p0 mbarrier.arrive.release.cta.shared::cta.b64 _, [%r5], %r6;\n"
         "@%p0 mbarrier.arrive.shared::cluster.b64 _, [%r5], %r6;\n" WAITED
         "mov.u32 %r0, 4;",
         4, 2, 2},
    };

    start("PTX_SEED", "1");
    check_all(rows, sizeof rows / sizeof *rows);
}

#define ADDED                                                                  \
    BARRIER "shl.b32 %r3, %r2, 2;\nadd.u32 %r3, %r3, %r1;\n"                   \
            "st.shared.u32 [%r3], %r4;\nfence.proxy.async.shared::cta;\n"      \
            "bar.sync 0;\n@%p0 cp.reduce.async.bulk.tensor.2d.global."         \
            "shared::cta.add.bulk_group [%rd1, {%r6, %r7}], [%r1];\n"          \
            "@%p0 cp.async.bulk.commit_group;\n"
#define READ_BACK                                                              \
    "@%p0 cp.async.bulk.wait_group 0;\nld.global.u32 %r0, [%rd0+132];"

/* Sums in the type of the map: words, and floats whose denormals are 0. */
TEST_ONCE(added)
{
    static const struct kernel rows[] = {
        {"", "mov.u32 %r4, 7;\n" ADDED READ_BACK, 108, 2, 2},
        {"", "mov.u32 %r4, 0x3f800000;\n" ADDED READ_BACK, 0x3f800000, 7, 2},
        {"", "mov.u32 %r4, 100;\n" ADDED READ_BACK, 201, 7, 2},
        {"", "mov.u32 %r4, 100;\n" ADDED READ_BACK, 0, 10, 2},
    };

    start("PTX_SEED", "1");
    check_all(rows, sizeof rows / sizeof *rows);
}

/* A CTA that ends before its store has read: refused, unless asked for. */
TEST_ONCE(leaves)
{
    static const struct kernel row = {
        "", "mov.u32 %r4, 7;\n" ADDED "mov.u32 %r0, 1;", 1, 2, 2};
    const char *text;
    uint32_t out;
    int code;

    start("PTX_LATE", "256");
    code = launch(&row, &out);
    driver->cuGetErrorString(code, &text);
    assert_int_equal(code, 719);
    assert_non_null(strstr(text, "is in flight when its CTA ends"));
    start("PTX_LEAVES", "1");
    check(&row);
    unsetenv("PTX_LEAVES");
    unsetenv("PTX_LATE");
    start("PTX_SEED", "1");
}

/* ptxas begins with no more registers than a setmaxnreg asks for. */
TEST_ONCE(registers)
{
    static const struct kernel row = {
        "", "setmaxnreg.inc.sync.aligned.u32 248;\nmov.u32 %r0, 3;", 3, 2, 2};

    start("PTX_SEED", "1");
    check(&row);
}

/* -------------------------------------------------------------------- sums */

/* Row 0 of A from registers, column 0 of B with words x and y in its first 16
   bytes; 0 elsewhere. The sum of row 0 and column 0, added to 0. */
#define PRODUCT(shape, a, x, y)                                                \
    "shl.b32 %r3, %r2, 2;\nadd.u32 %r3, %r3, %r1;\nmov.u32 %r4, 0;\n"          \
    "st.shared.u32 [%r3], %r4;\nbar.sync 0;\nmov.u32 %r4, " x ";\n"            \
    "@%p0 st.shared.u32 [%r1], %r4;\nmov.u32 %r4, " y ";\n"                    \
    "@%p0 st.shared.u32 [%r1+4], %r4;\nfence.proxy.async.shared::cta;\n"       \
    "bar.sync 0;\nmov.u32 %r5, 0;\nmov.u32 %r6, " a ";\n"                      \
    "setp.lt.u32 %p1, %r2, 2;\nselp.b32 %r5, %r6, 0, %p1;\n"                   \
    "mov.u32 %r6, 0;\nshr.u32 %r7, %r1, 4;\nmov.u32 %r8, 0x80000;\n"           \
    "or.b32 %r7, %r7, %r8;\nmov.u32 %r8, 16;\n"                                \
    "mov.b64 %rd2, {%r7, %r8};\nsetp.ne.u32 %p2, %r6, 0;\n"                    \
    "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8" shape      \
    " {%f0, %f1, %f2, %f3}, {%r5, %r6, %r6, %r6}, %rd2, %p2, 1, 1"
#define SUMMED                                                                 \
    ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"  \
    "mov.b32 %r0, %f0;"

TEST_ONCE(sums)
{
#define E4M3(a, x, y, sum)                                                     \
    {                                                                          \
        "", PRODUCT("k32.f32.e4m3.e4m3", a, x, y) SUMMED, sum, 2, 2            \
    }
#define BF16(a, x, y, sum)                                                     \
    {                                                                          \
        "", PRODUCT("k16.f32.bf16.bf16", a, x, y) ", 0" SUMMED, sum, 2, 2      \
    }
#define TF32(a, x, y, sum)                                                     \
    {                                                                          \
        "", PRODUCT("k8.f32.tf32.tf32", a, x, y) SUMMED, sum, 2, 2             \
    }
    static const struct kernel rows[] = {
        /* 1 + 2^-13 is kept, of 1 + 3 * 2^-14 only 1: each is cut */
        E4M3("0x08080838", "0x00000438", "0", 0x3f800400),
        E4M3("0x08080838", "0x02020238", "0", 0x3f800000),
        /* 2 * 2^-24 is the last bit; 3 * 2^-26 are cut */
        BF16("0x3f803f80", "0x33803f80", "0x00003380", 0x3f800001),
        BF16("0x3f803f80", "0x32803f80", "0x32803280", 0x3f800000),
        /* toward zero: 1 + 3 * 2^-25, negative as well */
        BF16("0x3f803f80", "0x33c03f80", "0", 0x3f800000),
        BF16("0x3f803f80", "0xb3c0bf80", "0", 0xbf800000),
        BF16("0x3f803f80", "0x7f803f80", "0", 0x7f800000),
        /* the low 13 bits of a word are not used: 1 + 2^-10, times 3 */
        TF32("0x3f803fff", "0x40000000", "0x3f800000", 0x40403000),
    };

    start("PTX_SEED", "1");
    check_all(rows, sizeof rows / sizeof *rows);
}
