/* SPDX-License-Identifier: Apache-2.0 */
/* Launches a kernel's twin. Included after its text and after twin_call. */
static void sim_enter(void)
{
    twin_call(sim_values);
}

void twin_launch(const void *const *values, unsigned ctas)
{
    sim_values = values;
    sim.grid.x = ctas;
    for (sim.block.x = 0; sim.block.x < ctas; sim.block.x++)
        sim_block(THREADS);
}
