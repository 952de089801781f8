/* SPDX-License-Identifier: Apache-2.0 */
/* fuse_model.c: the cost of quantizing A in a product or before it. */
#include "base/context.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/model.h"
#include "choose/select.h"
#include "problem/fuse_rules.h"
#include "problem/quantize.h"

/*
** Figures are of runs that want no columnwise tensor: with one, a cast of the
** rowwise and the columnwise tensor moves a byte more for each value, and one
** before a product with quantize=mainloop three. A cast by itself waits for
** memory (qn_model_cast):
**     pass      cycles + those of the cast
** Next to the math warps three warps quantize so many values of a tile's rows
** a cycle, and need STEP for 128 of k besides; again for each column of tiles,
** or if a cluster has several, once for these. Values are read instead of
** codes:
**     mainloop  a tile takes at least k * (tile_m / cluster_n / INLINE
**               + STEP / 128)
*/
#define INLINE 11.0
#define STEP   1800.0

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double qn_fuse_tile(const struct qn_kernel *kernel, double k)
{
    double rows = kernel->tile[0] / larger(kernel->cluster[1], 1);

    if (qn_fuse_strategy(kernel) != QUERN_QUANTIZE_MAINLOOP)
        return 0;
    return k * (rows / INLINE + STEP / 128);
}

double qn_fuse_bytes(const struct qn_kernel *kernel)
{
    int numbers = qn_fuse_strategy(kernel) == QUERN_QUANTIZE_MAINLOOP;

    return qn_type_bits(numbers ? QUERN_BF16 : kernel->a.type) / 8.0;
}

void qn_fuse_estimate(const struct qn_demand *demand,
                      const struct qn_kernel *kernel, struct qn_figures *f)
{
    const double values = (double)demand->problem->m * demand->problem->k;
    const int strategy = qn_fuse_strategy(kernel);
    struct qn_tensor row = {0};
    struct qn_quantization q;
    double bytes;

    if (!demand->problem->quantize)
        return;
    qn_fuse_quantization(demand->problem, demand->recipe, &q);
    qn_quantize_copy(&q, demand->recipe, QUERN_ROWWISE, &row);
    bytes = 2 * values + (double)row.bytes + (double)row.sf_bytes;
    f->quantize_cycles = qn_model_cast(demand->device, bytes, 0);
    if (strategy == QUERN_QUANTIZE_PASS)
        f->cycles += f->quantize_cycles;
    if (strategy == QUERN_QUANTIZE_MAINLOOP) {
        f->memory_cycles +=
            (2 * values - (double)row.bytes) / qn_model_memory(demand->device);
        f->cycles = larger(f->cycles, f->memory_cycles);
    }
}

void qn_fuse_why(const struct qn_problem *p, const struct qn_choice *best,
                 struct qn_text *text)
{
    static const char *const where[] = {
        [QUERN_QUANTIZE_PASS] = "by a launch before the product's",
        [QUERN_QUANTIZE_MAINLOOP] = "in shared memory, next to the products"};
    const struct qn_kernel *kernel = best->candidate->kernel;
    const int strategy = qn_fuse_strategy(kernel);
    int64_t columns = (int64_t)kernel->tile[1] * kernel->cluster[1];
    long long times = columns > 0 ? (p->n + columns - 1) / columns : 1;

    qn_text_add(text, "a is quantized %s; ", where[strategy]);
    if (strategy == QUERN_QUANTIZE_MAINLOOP)
        qn_text_add(text, "at least %.0f cycles of a tile, %lld %s; ",
                    qn_fuse_tile(kernel, (double)p->k), times,
                    times == 1 ? "time for each row" : "times for each row");
    if (qn_fuse_sums(p))
        qn_text_add(
            text, "its dbias %s; ",
            strategy == QUERN_QUANTIZE_PASS
                ? "by the same"
                : "by one of its own, or by that of a columnwise tensor");
    qn_text_add(text, "a separate launch for it would take %.0f cycles\n\n",
                best->figures.quantize_cycles);
}
