//$ -- SPDX-License-Identifier: Apache-2.0
FN unsigned int shared_address(const void *p)
{
    return (unsigned int)__cvta_generic_to_shared(p);
}

/* --- barriers in shared memory: a phase ends after `count` arrivals and all expected bytes --- */

FN void barrier_init(unsigned int barrier, unsigned int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}

/* Makes barrier_init visible to the copy engine and to the other CTAs of the cluster. */
FN void barrier_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

FN void barrier_expect(unsigned int barrier, unsigned int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 : : "r"(barrier), "r"(bytes) : "memory");
}

/* Arrive: this thread's earlier reads and writes are complete for the waiting threads. */
FN void barrier_arrive(unsigned int barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}

/* Wait until the phase of this parity has ended. */
FN void barrier_wait(unsigned int barrier, unsigned int parity)
{
    asm volatile("{\n"
                 "  .reg .pred done;\n"
                 "wait:\n"
                 "  mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "  @!done bra wait;\n"
                 "}"
                 : : "r"(barrier), "r"(parity) : "memory");
}

/* Orders this thread's writes to shared memory before later accesses of the copy engine. */
FN void copy_engine_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}
