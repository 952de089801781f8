/* SPDX-License-Identifier: Apache-2.0 */
/*
** Launches the kernel's twin, cluster after cluster, and checks its stores.
** Included after the kernel's own text, and after the call that the test
** program writes:
**
**     static void twin_call(const void *const *values);
*/

/* Beyond the launch: how often each 16 bytes of a row were stored, [rows of all][slab columns]. */
static struct {
    unsigned char *written;
    unsigned char *saved;    /* the same of P, [rows][n / 8] */
    int rows, columns;       /* of `written` */
    const int *group_of_row; /* ragged m: the group of each row of D, -1 for none */
} twin;

static void sim_enter(void)
{
    twin_call(sim.launch->values);
}

/* ------------------------------------------------------- expected values */

/* One element of C; `row` counts in the group. */
static float twin_c(int group, int row, int column)
{
    const struct twin_launch *l = sim.launch;
    const long long inside = row * l->c.stride + column;
    const long long start = l->ragged == QUERN_AXIS_M ? l->starts[group] * l->c.stride
                                                      : group * l->c.group_stride;
    const void *base = l->c.pointers ? l->c.pointers[group] : l->c.data;
    const long long at = l->c.pointers ? inside : start + inside;

    if (l->operand[TWIN_D].bytes == 4)
        return ((const float *)base)[at];
    return __uint_as_float((unsigned int)((const unsigned short *)base)[at] << 16);
}

/* The scale of a row of A or B and a step of k, both counted in the group; 1 without scales. */
static float twin_scale_of(int role, int part, int group, int row, int k)
{
    const struct twin_scaling *s = &sim.launch->scaling[role];

    return s->rows ? twin_scale(role, group * s->each + part, row / s->rows, k / s->k) : 1;
}

/* How many stretches of k a sum goes over, and where a group has the i-th. */
static int twin_stretches(void)
{
    return sim.launch->part ? sim.launch->microbatches : 1;
}

static int twin_stretch(int part, int group, int *start)
{
    const struct twin_launch *l = sim.launch;

    if (l->part) {
        *start = part * TWIN_APART + l->part[part].starts[group];
        return l->part[part].lengths[group];
    }
    *start = l->ragged == QUERN_AXIS_K ? l->starts[group] : 0;
    return l->ragged == QUERN_AXIS_K ? l->lengths[group] : l->k;
}

/* A row's part of A or B in a sum over `real` steps from `x` on of the group, with factors. */
static float twin_share(int role, int part, int group, int row, int x, int real)
{
    const struct twin_launch *l = sim.launch;
    const int whose = l->ragged == QUERN_AXIS_K || (role == TWIN_A && l->ragged == QUERN_AXIS_M)
                          ? -1 : group;
    const int first_row = role == TWIN_A && l->ragged == QUERN_AXIS_M ? l->starts[group] : 0;
    const float scale = twin_scale_of(role, part, group, row, x);
    int first_k;

    if (!SIM_VALUED)
        return scale;
    twin_stretch(part, group, &first_k);
    return scale * sim_share(role, whose, first_row + row, first_k + x, real);
}

/* The addend of one stretch of k to the sums of a slab: each block, or all of it at once. */
static void twin_add(float sum[16][SLAB_COLUMNS], int part, int group, int row, int column)
{
    float a[16], b[SLAB_COLUMNS];
    int start;
    const int length = twin_stretch(part, group, &start);
    const int step = SIM_PROMOTE ? SIM_PROMOTE : length;

    for (int x = 0; x < length; x += step) {
        const int real = sim_clip(length, x, step);

        for (int i = 0; i < 16; i++)
            a[i] = twin_share(TWIN_A, part, group, row + i, x, real);
        for (int j = 0; j < SLAB_COLUMNS; j++)
            b[j] = twin_share(TWIN_B, part, group, column + j, x, real);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < SLAB_COLUMNS; j++)
                sum[i][j] += a[i] * b[j];
    }
}

/* The sums of a slab. Without values they are 1 over any k. */
static void twin_sum(float sum[16][SLAB_COLUMNS], int group, int row, int column)
{
    memset(sum, 0, 16 * sizeof *sum);
    for (int i = 0; i < twin_stretches(); i++)
        if (i == 0 || SIM_VALUED || sum[0][0] == 0)
            twin_add(sum, i, group, row, column);
}

/* An activation's input: column `column` of P, from its sum. */
static float twin_given(float sum, int group, int column)
{
    const struct twin_launch *l = sim.launch;
    const float alpha = l->c.alpha ? l->c.alpha[group * l->c.step] : 1;
    const float *bias = l->follow.bias;

    return alpha * sum + (bias && column < l->n ? bias[(size_t)group * l->n + column] : 0);
}

/* The values of a slab of P. */
static void twin_give(float value[16][SLAB_COLUMNS], int group, int row, int column)
{
    twin_sum(value, group, row, column);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < SLAB_COLUMNS; j++)
            value[i][j] = twin_given(value[i][j], group, column + j);
}

/* Those of D: first operands and second ones, as they are in two slabs of P. */
static void twin_follow(float value[16][SLAB_COLUMNS], int group, int row, int column)
{
    const struct twin_follow *f = &sim.launch->follow;
    const int run = f->interleave, start = sim.launch->starts[group];
    static float given[2][16][SLAB_COLUMNS];
    const int first = run ? 2 * column : column;

    for (int i = 0; i < f->operands; i++)
        twin_give(given[i], group, row,
                  first + i * (run ? SLAB_COLUMNS : sim.launch->n / 2));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < SLAB_COLUMNS; j++) {
            const int at = run ? j / run * 2 * run + j % run : j;
            const int next = run ? at + run : at + SLAB_COLUMNS;
            const float *const two[] = { given[0][i], given[1][i] };
            const float a = two[at / SLAB_COLUMNS][at % SLAB_COLUMNS];
            const float b = f->operands < 2 ? 0 : two[next / SLAB_COLUMNS][next % SLAB_COLUMNS];
            const int inside = start + row + i < sim.launch->m;
            value[i][j] = sim_activate(a, b) *
                          (f->probability && inside ? f->probability[start + row + i] : 1);
        }
}

/* A slab of either, as far as it is inside. */
static void twin_check_follow(const struct sim_slab *s, const struct sim_place *p, int role)
{
    const int group = twin.group_of_row[p->row];
    const int row = p->row - sim.launch->starts[group];
    float right[16][SLAB_COLUMNS];

    (role == TWIN_D ? twin_follow : twin_give)(right, group, row, p->column);
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->columns; j++)
            if (s->value[i][j] != right[i][j])
                sim_fail(role == TWIN_D ? "a result is not that of its operands"
                                        : "an operand is kept that is another",
                         row + i, p->column + j);
}

/* The epilogue's result for a sum. */
static float twin_value(float sum, int group, int row, int column, int inside)
{
    const struct twin_launch *l = sim.launch;
    const int has_c = l->c.data || l->c.pointers;
    const float alpha = l->c.alpha ? l->c.alpha[group * l->c.step] : 1;
    const float beta = !has_c ? 0 : l->c.beta ? l->c.beta[group * l->c.step] : 1;

    return alpha * sum + (inside && beta != 0 ? beta * twin_c(group, row, column) : 0);
}

/* The values of a slab: alpha * sum + beta * C inside the group's matrix, without C outside, where
   factors may be anything. With "add" the copy engine may add instead, but not both and not
   neither. */
static void twin_check_values(const struct sim_slab *s, const struct sim_place *p, int group,
                              int row, int added)
{
    const int scaled = SIM_VALUED || sim.launch->scaling[TWIN_A].rows;
    float sum[16][SLAB_COLUMNS];

    twin_sum(sum, group, row, p->column);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < SLAB_COLUMNS; j++) {
            const int inside = i < p->rows && j < p->columns;
            const float right = twin_value(sum[i][j], group, row + i, p->column + j,
                                           inside && !added);
            if ((inside || !scaled) && s->value[i][j] != right)
                sim_fail(scaled ? "a sum is not that of the products times their factors, or C not "
                                  "what was added"
                                : "C is not what was added", row + i, p->column + j);
        }
}

/* A sum goes over all of its group's k and no other; of those that move on, values tell which. */
static void twin_check_k(const struct sim_label *s, int group)
{
    const struct twin_launch *l = sim.launch;
    const int length = l->ragged == QUERN_AXIS_K ? l->lengths[group] : l->k;
    int start = 0;

    for (int i = 0; i < twin_stretches(); i++)
        if (twin_stretch(i, group, &start))
            break;
    if (s->real + s->before != length)
        sim_fail("a sum is stored with too few or too many k", s->real + s->before, length);
    if (!SIM_VALUED && length && s->first != start)
        sim_fail("a sum over the k of another group", s->first, start);
}

/* The group of the rows in a box; all of them must be its own. */
static int twin_group(const struct sim_place *p, int group)
{
    for (int row = p->row; row < p->row + p->rows; row++)
        if (group < 0 || twin.group_of_row[row] != group)
            sim_fail("rows of one group times the matrix of another", row, group);
    return group;
}

/* The group that a box of D belongs to; for ragged m, that of the matrix B in the label. */
static int twin_group_of(const struct sim_slab *slab, const struct sim_place *p)
{
    if (sim.launch->ragged != QUERN_AXIS_M)
        return p->group;
    return twin_group(p, SIM_VALUED ? twin.group_of_row[p->row] : slab->label.b_group);
}

/* Everything about a slab's sums but where they go. For two-level ones values tell most. */
static void twin_check_sums(const struct sim_slab *slab, const struct sim_place *p, int added)
{
    const int ragged_m = sim.launch->ragged == QUERN_AXIS_M;
    const struct sim_label *s = &slab->label;
    int group;

    if (SIM_VALUED && p->rows == 0)
        return;
    group = twin_group_of(slab, p);
    twin_check_k(s, group);
    if (sim.launch->ragged == QUERN_AXIS_NONE && (s->a_group != group || s->b_group != group))
        sim_fail("the operands of another group", s->a_group, s->b_group);
    if (sim.launch->epilogue != QN_ADD && added)
        sim_fail("D is added to", p->row, p->column);
    if (sim_has_values() && !sim.launch->follow.operands)
        twin_check_values(slab, p, group, ragged_m ? p->row - sim.launch->starts[group] : p->row,
                          added);
}

static unsigned char *twin_count(int row, int column)
{
    return &twin.written[(size_t)row * (size_t)twin.columns + (size_t)(column / SLAB_COLUMNS)];
}

/* Eight columns of P. Columns after the last result may be stored by two tiles.
   */
static void twin_count_saved(const struct sim_place *p)
{
    const struct twin_follow *f = &sim.launch->follow;
    const int eights = sim.launch->n / 8;
    const int half = f->operands == 2 && !f->interleave ? eights / 2 : eights;

    for (int i = 0; i < p->rows; i++)
        for (int j = p->column / 8; j < (p->column + p->columns) / 8; j++)
            if (twin.saved[(size_t)(p->row + i) * eights + j]++ && sim.launch->lengths && j < half)
                sim_fail("kept twice", p->row + i, 8 * j);
}

/* With invalid sizes no result is expected; that a box stays inside is
   checked before. */
static void sim_store_read(const struct sim_slab *slab, const struct sim_place *p, int role,
                           int added)
{
    const int first = p->group > 0 ? p->group * sim.launch->m : 0;

    if (role == TWIN_P && !sim.launch->follow.saved)
        sim_fail("P is stored without a request", p->row, p->column);
    if (sim.launch->lengths && sim.launch->follow.operands && p->rows && p->columns)
        twin_check_follow(slab, p, role);
    if (role == TWIN_P) {
        twin_count_saved(p);
        return;
    }

    if (!SIM_VALUED && (slab->label.row != p->row || slab->label.column != p->column))
        sim_fail("a sum is stored at a position of another one", p->row, p->column);
    if (sim.launch->lengths)
        twin_check_sums(slab, p, added);
    for (int i = 0; i < p->rows && p->columns; i++)
        if ((*twin_count(first + p->row + i, p->column))++ && sim.launch->lengths)
            sim_fail("stored twice", p->row + i, p->column);
}

/* How often each element of a row must have been stored. */
static int twin_times(int row)
{
    const struct twin_launch *l = sim.launch;

    if (l->ragged == QUERN_AXIS_M)
        return twin.group_of_row[row] >= 0;
    /* With nothing to add, D stays as it is. */
    return !(l->ragged == QUERN_AXIS_K && l->epilogue == QN_ADD && l->lengths[row / l->m] == 0);
}

/* All of P that is a group's, where it is wanted, and nothing else. */
static void twin_check_saved(void)
{
    const int eights = sim.launch->n / 8;

    for (int row = 0; row < twin.rows; row++)
        for (int j = 0; j < eights && !sim.error[0]; j++) {
            const int wanted = sim.launch->follow.saved && twin.group_of_row[row] >= 0;
            if (!twin.saved[(size_t)row * eights + j] != !wanted)
                snprintf(sim.error, sizeof sim.error, "row %d, column %d of P: kept %d times",
                         row, 8 * j, twin.saved[(size_t)row * eights + j]);
        }
}

/* All of D that is a group's, and nothing else. */
static void twin_check_written(void)
{
    if (sim.launch->follow.operands)
        twin_check_saved();
    for (int row = 0; row < twin.rows; row++)
        for (int j = 0; j < twin.columns && !sim.error[0]; j++)
            if (*twin_count(row, j * SLAB_COLUMNS) != twin_times(row))
                snprintf(sim.error, sizeof sim.error, "row %d, column %d: stored %d times", row,
                         j * SLAB_COLUMNS, *twin_count(row, j * SLAB_COLUMNS));
}

/* ------------------------------------------------------------- launches */

/* Each thread begins anew, on a stack that all launches share. */
static int twin_prepare_threads(void)
{
    static unsigned char *stacks;

    if (!stacks && !(stacks = malloc((size_t)SIM_THREADS * SIM_STACK)))
        return 0;
    memset(sim.thread, 0, sizeof sim.thread);
    memset(sim.watch, 0, sizeof sim.watch);
    memset(sim.left, 0, sizeof sim.left);
    for (int i = 0; i < SIM_THREADS; i++) {
        ucontext_t *c = &sim.thread[i].start;
        getcontext(c);
        c->uc_stack.ss_sp = stacks + (size_t)i * SIM_STACK;
        c->uc_stack.ss_size = SIM_STACK;
        c->uc_link = NULL;
        makecontext(c, sim_start, 0);
    }
    return 1;
}

/* Threads of the cluster that have not ended. */
static int twin_left(void)
{
    int left = SIM_THREADS;

    for (int i = 0; i < CTAS; i++)
        left -= sim.left[i];
    return left;
}

/* All threads of one cluster until they end; 0 in a deadlock or after an error. Copies land late,
   and some threads are far after, in an order that the seed decides. */
static int twin_run_cluster(void)
{
    sim.late = 2u << 2 * sim_draw(3);
    sim.uneven = (int)sim_draw(2);
    while (twin_left() > 0 && !sim.error[0]) {
        const int all = !sim.uneven || sim_draw(4) == 0;
        const unsigned long before = sim.moved;

        sim_round(all ? SIM_THREADS : 1 + (int)sim_draw(SIM_THREADS));
        if (sim.copies && (sim.moved == before || sim_draw(sim.late) == 0))
            for (int i = (int)sim_draw((unsigned int)sim.copies) / 2; i >= 0; i--)
                sim_deliver();
        else if (sim.moved == before && all && twin_left() && !sim.error[0])
            snprintf(sim.error, sizeof sim.error, "deadlock: %d threads wait for ever",
                     twin_left());
    }
    return !sim.error[0];
}

/* One cluster at a time: nothing on the device orders them, so any order must do. */
static void twin_run_grid(void)
{
    for (int i = 0; i < sim.launch->clusters; i++) {
        memset(sim.cta, 0, sizeof sim.cta);
        sim.block = (unsigned int)(i * CTAS);
        if (!twin_prepare_threads() || !twin_run_cluster())
            return;
        if (sim.copies) {
            snprintf(sim.error, sizeof sim.error, "%d copies land after the end", sim.copies);
            return;
        }
    }
}

/* C and scales end where memory does: a read after them is an error of the
   thread that did it. So is a division by zero, which the device would not
   notice. */
static void twin_fault(int signal)
{
    if (signal == SIGFPE)
        sim_fail("a division by zero", 0, 0);
    sim_fail("C or a scale is read outside its matrix, or where nothing must be read", 0, 0);
}

/* The group of each row; -1 for rows outside all of them, and for all where
   sizes are. */
static int *twin_label_rows(const struct twin_launch *l)
{
    int *group_of = malloc(((size_t)l->m + 1) * sizeof *group_of);

    for (int row = 0; group_of && row < l->m; row++)
        group_of[row] = -1;
    for (int g = 0; group_of && l->starts && g < l->groups; g++)
        for (int i = 0; i < l->lengths[g]; i++)
            group_of[l->starts[g] + i] = g;
    return group_of;
}

__attribute__((visibility("default"))) const char *twin_run(const struct twin_launch *launch);
const char *twin_run(const struct twin_launch *launch)
{
    struct sigaction fault = { .sa_handler = twin_fault, .sa_flags = SA_NODEFER };
    struct sigaction before, before_division;
    int *group_of = launch->ragged == QUERN_AXIS_M ? twin_label_rows(launch) : NULL;

    memset(&sim, 0, sizeof sim);
    sim.launch = launch;
    sim.random = launch->seed;
    sim.grid = (unsigned int)(launch->clusters * CTAS);
    twin.group_of_row = group_of;
    twin.rows = launch->ragged == QUERN_AXIS_M ? launch->m : launch->groups * launch->m;
    twin.columns = launch->follow.operands == 2 ? launch->n / 2 : launch->n;
    twin.columns = (twin.columns + SLAB_COLUMNS - 1) / SLAB_COLUMNS;
    twin.written = calloc((size_t)twin.rows * (size_t)twin.columns + 1, 1);
    twin.saved = calloc((size_t)twin.rows * (size_t)launch->n / 8 + 1, 1);
    if (!twin.written || !twin.saved || sigaction(SIGSEGV, &fault, &before) ||
        sigaction(SIGFPE, &fault, &before_division))
        return "no memory";
    twin_run_grid();
    sigaction(SIGSEGV, &before, NULL);
    sigaction(SIGFPE, &before_division, NULL);
    if (launch->lengths && !sim.error[0])
        twin_check_written();
    free(twin.written);
    free(twin.saved);
    free(group_of);
    return sim.error;
}
