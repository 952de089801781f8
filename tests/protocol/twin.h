/*
** Launches the kernel's twin, cluster after cluster, and checks what it stored. Included behind the
** kernel's own text, which is compiled with -DKERNEL=<its name>.
*/

struct twin_launch {
    const void *first_dims, *offsets;
    int sizes_bytes, groups, m, n, k;
    int clusters;
    uint64_t seed;
    unsigned int error[4]; /* what check_sizes recorded */
};

static struct twin_launch twin;

static void twin_entry(void)
{
    const tensor_map a = { 'a' }, b = { 'b' }, d = { 'd' }, ragged = { 'r' };
    KERNEL(a, b, d, ragged, twin.first_dims, twin.offsets, twin.sizes_bytes, twin.groups, twin.m,
           twin.n, twin.k, twin.error);
}

static int twin_prepare_threads(void)
{
    static unsigned char *stacks;

    if (!stacks && !(stacks = malloc((size_t)SIM_THREADS * SIM_STACK)))
        return 0;
    memset(sim.thread, 0, sizeof sim.thread);
    memset(sim.left, 0, sizeof sim.left);
    for (int i = 0; i < SIM_THREADS; i++) {
        ucontext_t *c = &sim.thread[i].start;
        getcontext(c);
        c->uc_stack.ss_sp = stacks + (size_t)i * SIM_STACK;
        c->uc_stack.ss_size = SIM_STACK;
        c->uc_link = NULL;
        makecontext(c, sim_enter, 0);
    }
    return 1;
}

/* All threads of one cluster until they end; 0 in a deadlock or after an error. */
static int twin_run_cluster(void)
{
    int left = SIM_THREADS;

    while (left > 0 && !sim.error[0]) {
        const unsigned long before = sim.moved;
        const int first = (int)sim_draw(SIM_THREADS);

        left = 0;
        for (int i = 0; i < SIM_THREADS; i++) {
            const int index = (first + i) % SIM_THREADS;
            if (!sim.thread[index].done)
                sim_step(index);
            left += !sim.thread[index].done;
        }
        if (sim.copies && (sim.moved == before || sim_draw(2)))
            sim_deliver();
        else if (left && sim.moved == before)
            snprintf(sim.error, sizeof sim.error, "deadlock: %d threads wait for ever", left);
    }
    return !sim.error[0];
}

/* Each row of each group exactly once in every column, all others never. */
static void twin_check_written(void)
{
    const int columns = (sim.n + SLAB_COLUMNS - 1) / SLAB_COLUMNS;

    for (int row = 0; row < sim.m && !sim.error[0]; row++)
        for (int j = 0; j < columns && !sim.error[0]; j++)
            if (sim.written[row * columns + j] != (sim.group_of_row[row] >= 0))
                snprintf(sim.error, sizeof sim.error,
                         "row %d (group %d), column %d: stored %d times", row,
                         sim.group_of_row[row], j * SLAB_COLUMNS,
                         sim.written[row * columns + j]);
}

/*
** Run a launch. `group_of_row` [m] says which group each row belongs to, -1 for none; NULL where
** sizes lie and only the bounds count. Returns "" or what went wrong.
*/
const char *twin_run(struct twin_launch *launch, const int *group_of_row);
const char *twin_run(struct twin_launch *launch, const int *group_of_row)
{
    const size_t columns = (size_t)(launch->n + SLAB_COLUMNS - 1) / SLAB_COLUMNS;

    memset(&sim, 0, sizeof sim);
    twin = *launch;
    sim.entry = twin_entry;
    sim.m = launch->m;
    sim.n = launch->n;
    sim.k = launch->k;
    sim.group_of_row = group_of_row;
    sim.random = launch->seed;
    sim.grid = (unsigned int)(launch->clusters * CLUSTER_N);
    sim.written = calloc((size_t)launch->m * columns + 1, 1);
    if (!sim.written)
        return "no memory";
    for (int i = 0; i < launch->clusters; i++) {
        memset(sim.cta, 0, sizeof sim.cta);
        sim.block = (unsigned int)(i * CLUSTER_N);
        if (!twin_prepare_threads() || !twin_run_cluster())
            break;
        if (sim.copies)
            snprintf(sim.error, sizeof sim.error, "%d copies land after the end", sim.copies);
    }
    if (group_of_row && !sim.error[0])
        twin_check_written();
    memcpy(launch->error, twin.error, sizeof launch->error);
    free(sim.written);
    return sim.error;
}
