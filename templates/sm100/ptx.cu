//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Blackwell's tensor cores: one thread issues products of operands in shared memory, and sums are
** in memory of their own, 128 lines of 512 words. An address there has the line in its upper half.
*/

/* Around barriers between threads: what the tensor cores' memory was used for before the first is
   done before what it is used for after the second. */
FN void tensor_before_barrier(void)
{
    asm volatile("tcgen05.fence::before_thread_sync;" : : : "memory");
}

FN void tensor_after_barrier(void)
{
    asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
}

//$ if pair then
/* Arrive on a barrier, in both CTAs of the pair, once all products that this thread has issued so
   far are done. */
//$ else
/* Arrive on a barrier once all products that this thread has issued so far are done. */
//$ end
FN void tensor_commit(unsigned int barrier)
{
//$ if pair then
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
                 ".multicast::cluster.b64 [%0], %1;"
                 : : "r"(barrier), "h"((unsigned short)3) : "memory");
//$ else
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                 : : "r"(barrier) : "memory");
//$ end
}

//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
/* The address of a barrier in the first CTA of the pair. */
FN unsigned int first_of_pair(unsigned int address)
{
    unsigned int mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(mapped) : "r"(address));
    return mapped;
}

//$ for dimensions = 2, 4 do
//$ local names = { "x", "y", "z", "w" }
//$ local given, places, values = "", "", ""
//$ for i = 1, dimensions do
//$   given = given .. (i > 1 and ", " or "") .. "int " .. names[i]
//$   places = places .. (i > 1 and ", " or "") .. "%" .. i + 2
//$   values = values .. ", \"r\"(" .. names[i] .. ")"
//$ end
/* A box into this CTA's shared memory; its bytes count on a barrier of either CTA. */
FN void load_box_$(dimensions)d_pair(unsigned int to, const tensor_map *map, unsigned int barrier,
                    $(given))
{
    asm volatile("cp.async.bulk.tensor.$(dimensions)d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {$(places)}], [%2];"
                 : : "r"(to), "l"(map), "r"(barrier)$(values)
                 : "memory");
}

//$ end
//$ -- columns of a load: all of a line's, or few that need not be side by side in registers, or the
//$ -- rows of D that are stored from one load
//$ local few = turned or back or accumulators == 1
//$ local columns = epilogue == "gradient_copies" and 32 or few and 64 or tile.n
//$ local count = columns // 2
//$ local function comma (i) return i < count and "," or "" end
/*
** 16 lines x $(columns) words, from `at` on. Thread t of the warp gets, for each 8 words j,
**   sum[4j + 0, 1]  line t / 4,      words 8j + 2 (t % 4) + 0, 1
**   sum[4j + 2, 3]  the same 8 lines below
** A warp reaches 32 lines, from 32 (warp % 4) on. The sums are there after tensor_wait.
*/
FN void tensor_load(float *sum, unsigned int at)
{
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x$(columns // 8).b32 {\n"
//$ for i = 0, count - 1, 4 do
                 "%$(i), %$(i + 1), %$(i + 2), %$(i + 3)$(comma(i + 4))\n"
//$ end
                 "}, [%$(count)];"
                 :
//$ for i = 0, count - 1, 4 do
                   "=f"(sum[$(i)]), "=f"(sum[$(i + 1)]),
                   "=f"(sum[$(i + 2)]), "=f"(sum[$(i + 3)])$(comma(i + 4))
//$ end
                 : "r"(at) : "memory");
}

/* Wait for the warp's loads, of `count` sums altogether, which nothing reads before. */
FN void tensor_wait(float *sum, int count)
{
    asm volatile("tcgen05.wait::ld.sync.aligned;" : : : "memory");
#pragma unroll
    for (int i = 0; i < count; i++)
        asm volatile("" : "+f"(sum[i]) : : "memory");
}
