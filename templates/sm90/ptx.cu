//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Hopper's instructions, one function each. `shared` addresses are 32-bit, in the shared window.
*/
#define FN __device__ __forceinline__

typedef unsigned long long u64;
typedef struct __align__(64) { u64 word[16]; } tensor_map;

//$ include "sm90/ptx_barrier.cu"

/*
** Arrive on the barrier at the same place in CTA `rank` of the cluster. Releases at the scope of
** the CTA: the wider one costs a fence of the whole GPU, and a reader that gives a stage back has
** no writes to publish.
*/
FN void barrier_arrive_at(unsigned int barrier, unsigned int rank)
{
    asm volatile("{\n"
                 "  .reg .b32 remote;\n"
                 "  mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "  mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                 "}"
                 : : "r"(barrier), "r"(rank) : "memory");
}

/* --- the copy engine --- */

FN void prefetch_map(const tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

/* A box at (x, y, ..) into shared memory; its bytes count on `barrier`. */
FN void load_box_2d(unsigned int to, const tensor_map *map, unsigned int barrier,
                    int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];"
                 : : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

FN void load_box_3d(unsigned int to, const tensor_map *map, unsigned int barrier,
                    int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5}], [%2];"
                 : : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

FN void load_box_4d(unsigned int to, const tensor_map *map, unsigned int barrier,
                    int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];"
                 : : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

/* The same into each of `ctas`, a bit for each rank, at the same place and on its own barrier. */
FN void load_box_2d_multicast(unsigned int to, const tensor_map *map, unsigned int barrier,
                              int x, int y, unsigned short ctas)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
                 : : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(ctas)
                 : "memory");
}

FN void load_box_3d_multicast(unsigned int to, const tensor_map *map, unsigned int barrier,
                              int x, int y, int z, unsigned short ctas)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;"
                 : : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(ctas)
                 : "memory");
}

FN void load_box_4d_multicast(unsigned int to, const tensor_map *map, unsigned int barrier,
                              int x, int y, int z, int w, unsigned short ctas)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
                 : : "r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "h"(ctas)
                 : "memory");
}

/* Bytes of shared memory to the same address in CTA `rank` of the cluster; they count on its
   barrier. */
FN void copy_box_to(unsigned int from, unsigned int bytes, unsigned int barrier,
                    unsigned int rank)
{
    asm volatile("{\n"
                 "  .reg .b32 to, full;\n"
                 "  mapa.shared::cluster.u32 to, %0, %3;\n"
                 "  mapa.shared::cluster.u32 full, %2, %3;\n"
                 "  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
                 " [to], [%0], %1, [full];\n"
                 "}"
                 : : "r"(from), "r"(bytes), "r"(barrier), "r"(rank) : "memory");
}

/* A box from shared memory to (x, y, ..); elements outside the tensor are dropped. */

FN void store_box_2d(const tensor_map *map, unsigned int from, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
                 " [%0, {%2, %3}], [%1];\n"
                 "cp.async.bulk.commit_group;"
                 : : "l"(map), "r"(from), "r"(x), "r"(y) : "memory");
}

FN void store_box_3d(const tensor_map *map, unsigned int from, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group"
                 " [%0, {%2, %3, %4}], [%1];\n"
                 "cp.async.bulk.commit_group;"
                 : : "l"(map), "r"(from), "r"(x), "r"(y), "r"(z) : "memory");
}

FN void store_box_4d(const tensor_map *map, unsigned int from, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
                 " [%0, {%2, %3, %4, %5}], [%1];\n"
                 "cp.async.bulk.commit_group;"
                 : : "l"(map), "r"(from), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

/*
** A box from shared memory, added to the elements at (x, y, ..); elements outside the tensor are
** dropped. Each element once, so the sum has one order.
*/
FN void add_box_3d(const tensor_map *map, unsigned int from, int x, int y, int z)
{
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"
                 " [%0, {%2, %3, %4}], [%1];\n"
                 "cp.async.bulk.commit_group;"
                 : : "l"(map), "r"(from), "r"(x), "r"(y), "r"(z) : "memory");
}

FN void add_box_4d(const tensor_map *map, unsigned int from, int x, int y, int z, int w)
{
    asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group"
                 " [%0, {%2, %3, %4, %5}], [%1];\n"
                 "cp.async.bulk.commit_group;"
                 : : "l"(map), "r"(from), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

/* Wait until all of this thread's stores are done, so that others may go to the same addresses. */
#define store_wait_done() asm volatile("cp.async.bulk.wait_group 0;" : : : "memory")

/* Wait until at most `most` of this thread's stores still read shared memory. */
#define store_wait(most) asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(most) : "memory")

/* --- matrix products of a warpgroup --- */

FN void mma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

FN void mma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Wait until at most `most` committed batches are in flight. */
#define mma_wait(most) asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(most) : "memory")

/* Four 8x8 matrices of 16-bit elements, as store_matrix_x4 leaves them. */
FN void load_matrix_x4(unsigned int from, unsigned int word[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(from) : "memory");
}

FN unsigned int load_shared_byte(unsigned int from)
{
    unsigned int byte;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(byte) : "r"(from) : "memory");
    return byte;
}

FN unsigned int load_shared_half(unsigned int from)
{
    unsigned short half;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(from) : "memory");
    return half;
}

FN void load_shared_words(unsigned int from, unsigned int *first, unsigned int *second)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(*first), "=r"(*second) : "r"(from) : "memory");
}

FN void store_shared_words(unsigned int to, unsigned int first, unsigned int second)
{
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};"
                 : : "r"(to), "r"(first), "r"(second) : "memory");
}

/* Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8. */
FN void store_matrix_x4(unsigned int to, unsigned int r0, unsigned int r1, unsigned int r2,
                        unsigned int r3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 : : "r"(to), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

/* Four 8x8 matrices of 16-bit elements, turned; lane i addresses row i % 8 of matrix i / 8. */
FN void store_matrix_x4_turned(unsigned int to, unsigned int r0, unsigned int r1,
                               unsigned int r2, unsigned int r3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 : : "r"(to), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

FN void store_shared(unsigned int to, float value)
{
    asm volatile("st.shared.f32 [%0], %1;" : : "r"(to), "f"(value) : "memory");
}

FN void store_shared_x2(unsigned int to, float lo, float hi)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" : : "r"(to), "f"(lo), "f"(hi) : "memory");
}

FN void store_shared_x4(unsigned int to, unsigned int r0, unsigned int r1, unsigned int r2,
                        unsigned int r3)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                 : : "r"(to), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

FN void load_shared_x4(unsigned int from, unsigned int word[4])
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(from) : "memory");
}

FN unsigned int load_shared_word(unsigned int from)
{
    unsigned int word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
}

/* Only where `wanted`: without a branch, after which the compiler would not know that a warp is
   together. */
FN void store_shared_byte(unsigned int to, unsigned int byte, unsigned int wanted)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.u32 p, %2, 0;\n"
                 "@p st.shared.u8 [%0], %1;\n"
                 "}" : : "r"(to), "r"(byte), "r"(wanted) : "memory");
}

FN void store_shared_word(unsigned int to, unsigned int word)
{
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(to), "r"(word) : "memory");
}

/* 16 bytes, of which `bytes` are read and the others become zero; they land some time later. */
FN void copy_chunk(unsigned int to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Arrive once all that this thread has copied so far has landed. */
FN void barrier_arrive_copied(unsigned int barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                 : : "r"(barrier) : "memory");
}

FN void load_shared_codes(unsigned int from, unsigned int word[2])
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(word[0]), "=r"(word[1]) : "r"(from) : "memory");
}

/* A word of which only `bytes` are read, the others become zero; it lands some time later. */
FN void copy_word(unsigned int to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Ends a batch of this thread's copies of words. */
FN void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Wait until at most `most` of this thread's batches have not landed. */
#define copy_wait(most) asm volatile("cp.async.wait_group %0;" : : "n"(0 + (most)) : "memory")

FN float load_shared(unsigned int from)
{
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
    return value;
}

/* Ask for the 128 bytes around an address, to be read soon. */
FN void prefetch(const void *address)
{
    asm volatile("prefetch.global.L1 [%0];" : : "l"(address) : "memory");
}

FN void load_shared_x2(unsigned int from, float *lo, float *hi)
{
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(*lo), "=f"(*hi) : "r"(from) : "memory");
}

/* --- threads --- */

/* All threads of the cluster; orders their shared memory accesses. */
FN void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" : : : "memory");
}

FN unsigned int cluster_rank(void)
{
    unsigned int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Half of it, anew each time: kept, it is a register too many for the warp that copies. */
FN int halved(int value)
{
    int half;
    asm volatile("shr.s32 %0, %1, 1;" : "=r"(half) : "r"(value));
    return half;
}

/*
** A value and a condition that are the same in all lanes of the warp, by instructions that make it
** plain to the compiler: values derived from them stay in uniform registers, where the tensor cores
** want it.
*/
FN int uniform(int value)
{
    return __reduce_max_sync(~0u, value);
}

FN int uniformly(int condition)
{
    return __any_sync(~0u, condition);
}

/* True in one lane of the warp, and plainly so to the compiler, which then issues copies once. */
FN int elect_lane(void)
{
    int elected;
    asm volatile("{\n"
                 "  .reg .pred p;\n"
                 "  elect.sync _|p, 0xffffffff;\n"
                 "  selp.s32 %0, 1, 0, p;\n"
                 "}" : "=r"(elected));
    return elected;
}

/* Named barriers of the CTA, 1 to 15: `threads` counts those that wait and those that arrive. */
FN void named_wait(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}

FN void named_arrive(int barrier, int threads)
{
    asm volatile("bar.arrive %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}

//$ include "common/afresh.cu"

/* The lane once more, where no register is left to keep it in. */
FN int lane_again(void)
{
    return afresh((int)threadIdx.x) % 32;
}

/* Hand registers of this warpgroup to the others, or take those that they handed over. */
#define registers_release(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(count))
#define registers_take(count) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(count))
