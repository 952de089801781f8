/* SPDX-License-Identifier: Apache-2.0 */
/*
** trial.c: a rule tried on values, before any kernel has it.
**
** A rule's graph can be evaluated here too. A few dozen magnitudes show
** the slips that would otherwise be seen in a training run: a block of zeros
** that becomes NaN, results in the wrong order, a factor that is not the
** inverse of the stored scale.
*/
#include "lua/base.h"
#include "rule/rule.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* One evaluation: the values of its terms, floats as their bits. */
struct trial {
    float amax, global, previous;
    unsigned int values[QG_MAX_NODES];
    unsigned char known[QG_MAX_NODES];
};

static float float_of(unsigned int bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static unsigned int bits_of(float value)
{
    unsigned int bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The nearest number of `fraction` bits below the leading one, from 2^least on
   as normal numbers; from `above` on infinity. */
static float round_to(float value, int fraction, int least, float above)
{
    float magnitude = fabsf(value), step, rounded;
    int exponent;

    if (!isfinite(value))
        return value;
    frexpf(magnitude, &exponent);
    exponent = exponent - 1 > least ? exponent - 1 : least;
    step = ldexpf(1, exponent - fraction);
    rounded = nearbyintf(magnitude / step) * step;
    return copysignf(rounded >= above ? INFINITY : rounded, value);
}

/* The nearest e4m3 number, saturated: a term of this kind stands for it. */
static float round_e4m3(float value)
{
    const float rounded = round_to(value, 3, -6, INFINITY);

    return isnan(value) ? value : copysignf(fminf(fabsf(rounded), 448), value);
}

static unsigned int compute(const struct trial *t, const struct qg_node *node,
                            const unsigned int v[3])
{
    int floats = node->operands && node->operand[0]->kind == QG_FLOAT;
    float a = float_of(v[0]), b = float_of(v[1]);

    switch (node->op) {
    case QG_OP_AMAX:
        return bits_of(t->amax);
    case QG_OP_GLOBAL:
        return bits_of(t->global);
    case QG_OP_PREVIOUS:
        return bits_of(t->previous);
    case QG_OP_CONSTANT:
        return node->kind == QG_FLOAT ? bits_of(node->value) : node->bits;
    case QG_OP_ADD:
        return bits_of(a + b);
    case QG_OP_SUB:
        return bits_of(a - b);
    case QG_OP_MUL:
        return bits_of(a * b);
    case QG_OP_DIV:
        return bits_of(a / b);
    case QG_OP_NEG:
        return bits_of(-a);
    case QG_OP_BITS_ADD:
        return v[0] + v[1];
    case QG_OP_BITS_SUB:
        return v[0] - v[1];
    case QG_OP_BITS_NOT:
        return ~v[0];
    case QG_OP_SHL:
        return v[0] << v[1];
    case QG_OP_SHR:
        return v[0] >> v[1];
    case QG_OP_AND:
        return v[0] & v[1];
    case QG_OP_OR:
        return v[0] | v[1];
    case QG_OP_XOR:
        return v[0] ^ v[1];
    case QG_OP_NOT:
        return !v[0];
    case QG_OP_LT:
        return floats ? a < b : v[0] < v[1];
    case QG_OP_LE:
        return floats ? a <= b : v[0] <= v[1];
    case QG_OP_EQ:
        return floats ? a == b : v[0] == v[1];
    case QG_OP_TO_E4M3:
        return bits_of(round_e4m3(a));
    case QG_OP_TO_BF16:
        return bits_of(round_to(a, 7, -126, INFINITY));
    case QG_OP_TO_F16:
        return bits_of(round_to(a, 10, -14, 65536));
    case QG_OP_SELECT:
        return v[0] ? v[1] : v[2];
    default: /* BITS, FROMBITS, FROM_E4M3 ..: another view of the same */
        return v[0];
    }
}

/* Terms that are used again are worked out once. */
static unsigned int evaluate(struct trial *t, const struct qg_node *node)
{
    unsigned int v[3] = {0, 0, 0};

    if (t->known[node->order])
        return t->values[node->order];
    for (int i = 0; i < node->operands; i++)
        v[i] = evaluate(t, node->operand[i]);
    t->known[node->order] = 1;
    return t->values[node->order] = compute(t, node, v);
}

/* ------------------------------------------------------------- requirements */

/* A rule's result for one magnitude. */
struct outcome {
    float stored, factor;
};

static struct outcome run(const struct qg_rule_trace *rule, float amax,
                          float global)
{
    struct trial t;
    unsigned int stored;
    struct outcome out;

    t.amax = amax;
    t.global = global;
    t.previous = 1;
    memset(t.known, 0, sizeof t.known);
    stored = evaluate(&t, rule->stored);
    out.factor = float_of(evaluate(&t, rule->factor));
    if (rule->stored->kind != QG_E8M0)
        out.stored = float_of(stored);
    else
        out.stored = stored == 255 ? NAN : ldexpf(1, (int)stored - 127);
    return out;
}

/* The rules of a scale for one type of input, and where to complain. */
struct subject {
    struct qg *q;
    const struct qg_scale *scale;
    const struct qg_rule_trace *rule, *global;
    struct qg_location location, global_place;
};

/* Finite magnitudes must give finite results: 0 * inf would be NaN. */
static int check_finite(struct qg *q, struct qg_location location, float amax,
                        struct outcome o)
{
    if (isfinite(o.stored) && isfinite(o.factor))
        return 0;
    if (!isfinite(o.factor))
        qg_diag_note(q, location, QG_E_RULE_FINITE, (double)amax,
                     "multiplies by", (double)o.factor);
    else
        qg_diag_note(q, location, QG_E_RULE_FINITE, (double)amax, "stores",
                     (double)o.stored);
    return 1;
}

/* For a magnitude that data have: do values fill the type, and do they come
   back? A scale of e4m3 that is 0 is a block which is lost anyway: below the
   second level's range, or, without one, below e4m3's own. */
static int check_typical(const struct subject *s, float amax, struct outcome o,
                         float outer)
{
    const struct qg_type *type = qg_types_of(s->scale->element);
    const double most = type->max - (s->scale->zero > 0 ? s->scale->zero : 0);
    double largest = (double)amax * (double)o.factor;
    double product = (double)o.stored * (double)outer * (double)o.factor;

    if (o.stored == 0 && s->scale->type == QUERN_E4M3 &&
        (s->global || amax < 0x1p-6f))
        return 0;
    if (!(largest > type->tiny / 2) || largest > 4 * most)
        qg_diag_note(s->q, s->location, QG_E_RULE_RANGE, (double)amax, largest,
                     type->name, type->tiny, most);
    else if (!(product > 0.75 && product < 1.5))
        qg_diag_note(s->q, s->location, QG_E_RULE_INVERSE, (double)amax,
                     (double)o.stored, (double)o.factor,
                     outer == 1 ? "" : ", with the second level,", product,
                     qg_rule_usual(s->scale, 0));
    else
        return 0;
    return 1;
}

/* One magnitude of a block, below the second level's. */
static int try_block(const struct subject *s, float amax, struct outcome outer)
{
    struct outcome o = run(s->rule, amax, outer.factor);

    if (check_finite(s->q, s->location, amax, o))
        return 1;
    return amax >= 0x1p-8f && amax <= 0x1p8f &&
           check_typical(s, amax, o, outer.stored);
}

/* One magnitude of a whole group, and of blocks in it. */
static int try_magnitude(const struct subject *s, float amax)
{
    static const float shares[] = {1, 0.5f, 0x1p-10f, 0};
    struct outcome outer = {1, 1};

    if (!s->global)
        return try_block(s, amax, outer);
    outer = run(s->global, amax, 1);
    if (check_finite(s->q, s->global_place, amax, outer))
        return 1;
    for (int i = 0; i < 4; i++)
        if (try_block(s, amax * shares[i], outer))
            return 1;
    return 0;
}

/* 0 and 1, which make the plainest messages; powers of two and others where
   data are; then all of fp32's range. */
static int try_all(const struct subject *s)
{
    enum { STEP = 7 };

    if (try_magnitude(s, 0) || try_magnitude(s, 1))
        return 1;
    for (int e = -8; e <= 8; e++)
        if (try_magnitude(s, ldexpf(1, e)) || try_magnitude(s, ldexpf(1.8f, e)))
            return 1;
    for (int e = -149; e < 128; e += STEP)
        if (try_magnitude(s, ldexpf(1, e)))
            return 1;
    return try_magnitude(s, FLT_MAX);
}

int qg_trial_check(struct qg *q, const struct qg_scale *scale)
{
    struct subject s = {.q = q, .scale = scale};
    fenv_t mode;
    int wrong = 0;

    /* the mode of the caller may flush denormals: XLA's threads do */
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    s.location = qg_rule_location(q, scale, 0);
    s.global_place = qg_rule_location(q, scale, 1);
    for (int i = 0; !wrong && i < (scale->by_input ? QG_INPUTS : 1); i++) {
        s.rule = &scale->rules[i];
        s.global = scale->global ? &scale->globals[i] : NULL;
        wrong = try_all(&s);
    }
    fesetenv(&mode);
    return wrong;
}

/* Magnitudes all over fp32's range, most of them no powers of two; one of each
   binade where the type has powers and NaN alone. */
static int stores_powers(const struct qg_rule_trace *rule)
{
    static const float parts[] = {1.99f, 1 + 0x1p-23f, 1.1f, 1.25f, 1.5f,
                                  1.6f,  1.75f,        1.8f, 1.9f,  1};
    const int count =
        rule->stored->kind == QG_E8M0 ? 1 : (int)(sizeof parts / sizeof *parts);

    for (int e = -149; e < 128; e++)
        for (int i = 0; i < count; i++) {
            const float stored = run(rule, ldexpf(parts[i], e), 1).stored;
            int power;

            if (!(stored > 0) || frexpf(stored, &power) != 0.5f ||
                power < -126 || power > 128)
                return 0;
        }
    return 1;
}

int qg_trial_powers(const struct qg_scale *scale)
{
    fenv_t mode;
    int powers = !scale->global && !scale->delayed.history;

    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    for (int i = 0; powers && i < (scale->by_input ? QG_INPUTS : 1); i++)
        powers = stores_powers(&scale->rules[i]);
    fesetenv(&mode);
    return powers;
}
