/* SPDX-License-Identifier: Apache-2.0 */
/*
** model_dequantize.c: the time of kernels that dequantize codes next to their
** products. For 64 steps of k of a tile, the largest of
**     bytes through shared memory / its rate: 4 KB of B for each 16 steps of 64
**         x 128 products and, unless an operand comes from registers, 2 KB of
**         A; codes in and out again; 128 bytes for each row dequantized there
**     BY_FOUR for each row that four warps write to shared memory, or
**         BY_FOUR_BUSY, and BUSY for the step, where the others dequantize as
**         well
**     where those that multiply put rows into registers, BEGIN, BY_EIGHT for
**         each of them, BESIDE for each row of A next to rows of B, since all
**         these warps take turns, and CONTENDED of the products, whose sums
**         keep the register file busy, and MORE for each row of A beyond FEW
** and of a tile whose A goes through registers FIRST, until its first scales
** are there. For codes that become f16, the ones with F16 in their names. Tiles
** that may have more rows than FEW often do not: groups are taken as uneven, up
** to half as long again as the mean.            COUPLED: few
**
** Kernels for few tokens ("few") share a multiprocessor with others of their
** kind, and its instructions are the bound: for 64 steps a tile takes ALONE,
** and for each row of B BY_CODE, and BY_TOKEN for each row that it multiplies,
** half of its rows or all; SIXTEENS times as long where scales are those. Tiles
** without enough others next to them take LONE times as long, but no longer
** than with all of them: those of a launch that has few, and the last ones of
** others, where CTAs have had the same number of tiles.
**
** Kernels that rebase codes to FP8 ("rebased") take for 128 steps of a tile
** REBASE, REBASE_ROW for each row of B, and REBASE_SUM for each sum, in fp32.
**
** Measured in bench/notes: dequantize, packed-weights, rebased-rows.
*/
#include "choose/model.h"
#include "base/types.h"
#include "choose/select.h"
#include "choose/tensormap.h"

#include <math.h>
#include <string.h>

#define SHARED_PER_CYCLE 128.0
#define BY_FOUR          8.2
#define BY_FOUR_BUSY     6.0
#define BUSY             530.0
#define FIRST            900.0
#define BEGIN            250.0
#define BY_EIGHT         2.7
#define BY_EIGHT_NARROW  2.1 /* codes of 4 bits */
#define BY_EIGHT_WHOLE   2.5 /* of 4 bits that are integers: two scales */
#define BY_EIGHT_F16     1.75
#define BY_FOUR_F16      4.8
#define BESIDE           0.5
#define CONTENDED        0.75
#define MORE             4.0
#define FEW              64.0
#define FEW_OF_MANY      128.0
#define ALONG_STEP       530.0
#define ALONG_ROW        4.1
#define SHORT_STEP       1400.0 /* of 256 rows of B next to 64 of A */
#define MIDDLE_STEP      1150.0 /* of 192 next to 64 of 128 */
#define MIDDLE_ROW       4.8    /* each one more */
#define ACROSS_STEP      600.0
#define ACROSS_ROW       5.5
#define ALONE            30.0
#define BY_CODE          2.8
#define BY_TOKEN         0.075
#define SIXTEENS         1.2 /* a scale for each 16 codes */
#define LONE             2.4
#define UNEVEN           1.5
#define REBASE           400.0
#define REBASE_ROW       4.7
#define REBASE_SUM       0.037

/* The memory that they write to. */
enum strategy {
    NOWHERE,
    SHARED,
    REGISTERS,
    SWAPPED,
    WEIGHTS,
    REBASED,
    FEW_TOKENS
};

static enum strategy strategy_of(const struct qn_kernel *kernel)
{
    static const char *const names[] = {
        [SHARED] = "shared",   [REGISTERS] = "registers", [SWAPPED] = "swapped",
        [WEIGHTS] = "weights", [REBASED] = "rebased",     [FEW_TOKENS] = "few"};

    for (int strategy = SHARED; strategy <= FEW_TOKENS && kernel->dequantize;
         strategy++)
        if (!strcmp(kernel->dequantize, names[strategy]))
            return (enum strategy)strategy;
    return NOWHERE;
}

int qn_model_dequantizes(const struct qn_kernel *kernel)
{
    return strategy_of(kernel) != NOWHERE;
}

int qn_model_rebases(const struct qn_kernel *kernel)
{
    return strategy_of(kernel) == REBASED;
}

int qn_model_few_tokens(const struct qn_kernel *kernel)
{
    return strategy_of(kernel) == FEW_TOKENS;
}

static int is_f16(const struct qn_kernel *kernel)
{
    return qn_tensormap_takes(kernel, QN_PARAM_bases) ||
           (kernel->becomes && !strcmp(kernel->becomes, "either"));
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The part of one operand. */
struct share {
    double bytes, four, eight;
};

/* 64 steps of one row. Next to B in registers A is moved even if it is bf16. */
static struct share share_of(const struct qn_operand *o, enum strategy strategy,
                             int is_b, int f16)
{
    int held =
        (strategy == REGISTERS && !is_b) || (strategy == SWAPPED && is_b);
    double row = 64 * qn_type_bits(o->type) / 8.0;
    int moved = row < 128 || strategy == SWAPPED;
    struct share s = {row, 0, 0};

    if (moved)
        s.bytes += row + (held ? 0 : 128);
    if (held)
        s.eight = f16                     ? BY_EIGHT_F16
                  : row >= 64             ? BY_EIGHT
                  : o->type == QUERN_E2M1 ? BY_EIGHT_NARROW
                                          : BY_EIGHT_WHOLE;
    else if (strategy == SWAPPED)
        s.eight = BESIDE;
    if (!held && row < 128)
        s.four = f16                  ? BY_FOUR_F16
                 : strategy == SHARED ? BY_FOUR
                                      : BY_FOUR_BUSY;
    return s;
}

/* The rows that it has fewer products for; 0: its tiles hold no more. */
static double few_of(const struct qn_kernel *kernel)
{
    enum strategy strategy = strategy_of(kernel);
    double few = strategy == SWAPPED      ? FEW
                 : strategy == WEIGHTS    ? larger(kernel->tile[0] / 2.0, FEW)
                 : strategy == FEW_TOKENS ? kernel->tile[0] / 2.0
                                          : 0;

    return kernel->tile[0] > few ? few : 0;
}

double qn_model_dequantize_rows(const struct qn_kernel *kernel, double length)
{
    double few = few_of(kernel);
    double share = (UNEVEN * length - few) / larger(length, 1);

    if (few == 0 || share >= 1)
        return kernel->tile[0];
    return few + (kernel->tile[0] - few) * larger(share, 0);
}

int qn_model_dequantize_whole(const struct qn_kernel *kernel, double length)
{
    return few_of(kernel) > 0 && UNEVEN * length <= kernel->tile[0];
}

static double weights_cycles(const struct qn_kernel *kernel, double rows,
                             double k)
{
    int along = kernel->b.major == QUERN_MAJOR_K;
    double step = along ? ALONG_STEP : ACROSS_STEP,
           row = along ? ALONG_ROW : ACROSS_ROW;

    if (kernel->tile[1] == 192)
        return (MIDDLE_STEP + MIDDLE_ROW * larger(rows - FEW, 0)) * k / 64;
    if (kernel->tile[1] > 128)
        return SHORT_STEP * k / 64;
    return (step + row * larger(rows, FEW_OF_MANY)) * k / 64;
}

static double rebased_cycles(const struct qn_kernel *kernel, double k)
{
    double rows = kernel->tile[1], sums = kernel->tile[0] * rows;

    return (REBASE + REBASE_ROW * rows + REBASE_SUM * sums) * ceil(k / 128);
}

static double few_cycles(const struct qn_kernel *kernel,
                         const struct qn_scaling *scaling, double rows,
                         double k)
{
    double step =
        ALONE + kernel->tile[1] *
                    (BY_CODE + BY_TOKEN * larger(rows, kernel->tile[0] / 2.0));

    if (scaling->k < 32)
        step *= SIXTEENS;
    return step * k / 64;
}

double qn_model_dequantize_waves(const struct qn_kernel *kernel, double waves)
{
    const double ctas = larger(kernel->ctas, 1);
    const double last =
        strategy_of(kernel) == FEW_TOKENS ? fmod(waves, ctas) : 0;

    return last > 0 ? waves - last + larger(last, fmin(LONE, ctas)) : waves;
}

static double others_cycles(const struct qn_kernel *kernel, double rows,
                            double k, double math)
{
    enum strategy strategy = strategy_of(kernel);
    int f16 = is_f16(kernel);
    struct share a = share_of(&kernel->a, strategy, 0, f16),
                 b = share_of(&kernel->b, strategy, 1, f16);
    double m = rows, n = kernel->tile[1];
    double bytes = m / 64 * n / 128 * 4 * (strategy == SHARED ? 6144 : 4096) +
                   m * a.bytes + n * b.bytes;
    double eight = m * a.eight + n * b.eight;

    double four = m * a.four + n * b.four;

    if (few_of(kernel) > 0)
        eight += MORE * (m - FEW);
    if (eight > 0)
        eight = (BEGIN + eight) * k / 64 + CONTENDED * math;
    if (four > 0 && strategy != SHARED)
        four += BUSY;
    return larger(larger(bytes / SHARED_PER_CYCLE, four) * k / 64, eight) +
           (strategy == REGISTERS ? FIRST : 0);
}

double qn_model_dequantize_cycles(const struct qn_demand *demand,
                                  const struct qn_kernel *kernel, double rows,
                                  double k, double math)
{
    switch (strategy_of(kernel)) {
    case WEIGHTS:
        return weights_cycles(kernel, rows, k);
    case REBASED:
        return rebased_cycles(kernel, k);
    case FEW_TOKENS:
        return few_cycles(kernel, &demand->recipe->scaling[QN_W], rows, k);
    default:
        return others_cycles(kernel, rows, k, math);
    }
}
