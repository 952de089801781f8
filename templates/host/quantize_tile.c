//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "cast/gated.c"

/* Value `i` of the type of the input. */
static float load_in(const struct work *w, const void *data, long long i)
{
    switch (w->input) {
    case IN_BF16:
        return from_bf16(((const unsigned short *)data)[i]);
    case IN_F16:
        return from_f16(((const unsigned short *)data)[i]);
    default:
        return ((const float *)data)[i];
    }
}

/* An activation's result, or its gradient, as the type of the input holds it. */
static float rounded(const struct work *w, float x)
{
    switch (w->input) {
    case IN_BF16:
        return from_bf16(to_bf16(x));
    case IN_F16:
        return from_f16(to_f16(x));
    default:
        return x;
    }
}

/* The columns of the operands of feature f in a row of `features` results. */
static void find_operands(const struct work *w, int f, int features, long long *a, long long *b)
{
    const int run = w->interleave;

    *a = run ? (long long)f / run * 2 * run + f % run : f;
    *b = run ? *a + run : *a + features;
    if (!(GATED >> w->activation & 1))
        *a = *b = f;
}

/* act(a, b) of feature f, times the row's probability. */
static float forward(const struct work *w, long long row, int f)
{
    const long long at = row * w->in_stride;
    long long a, b;
    float y;

    find_operands(w, f, w->all.k, &a, &b);
    y = activate(w->activation, load_in(w, w->in, at + a), load_in(w, w->in, at + b), w->limit,
                 w->slope, w->shift);
    return rounded(w, w->probability ? mul_rn(y, w->probability[row]) : y);
}

/* The gradient of operand f, from that of the result it went into. */
static float backward(const struct work *w, long long row, int f)
{
    const long long at = row * w->saved_stride;
    const int run = w->interleave, one = !(GATED >> w->activation & 1), half = w->all.k / 2;
    const int second = one ? 0 : run ? f / run % 2 : f >= half;
    const int result = one ? f : run ? f / (2 * run) * run + f % run : f % half;
    float dy = load_in(w, w->in, row * w->in_stride + result);
    struct gradient d;
    long long a, b;

    find_operands(w, result, half, &a, &b);
    d = activate_gradient(w->activation, load_in(w, w->saved, at + a), load_in(w, w->saved, at + b),
                          w->limit, w->slope, w->shift);
    if (w->probability)
        dy = mul_rn(dy, w->probability[row]);
    return rounded(w, mul_rn(dy, second ? d.b : d.a));
}

//$ if scale then
/* The values of the rowwise tensor. */
static float copied(const struct work *w, const struct group *g, int row, int f)
{
    const long long at = row_of(w, g, row) * w->row.stride + f;
//$ if element.bits == 4 then
    const unsigned code = w->row.data[at / 2] >> at % 2 * 4 & 15;
//$ else
    const unsigned code = w->row.data[at];
//$ end
//$ if scale.span == "block" then
    const struct scales s = row_scales(g, &w->all);
    const long long sf = scale_at(&s, row / SF_LINES, f / ACROSS);
//$ elseif scale.span == "row" then
    const long long sf = row_of(w, g, row);
//$ else
    const long long sf = $(scale.span == "group" and "g->number" or "0");
//$ end
//$ local global = scale.global and ", w->row.global[g->number]" or ""

//$   if scale.zeros then
    return value_of(code, w->row.sf[sf]);
//$   else
    return value_of(code, from_$(scale.type)(w->row.sf[sf])$(global));
//$   end
}

//$ end
/* The value to quantize at a row and a feature inside the group. */
static float load(const struct work *w, const struct group *g, int row, int f)
{
    const long long at = row_of(w, g, row);

    if (w->form == FORWARD)
        return forward(w, at, f);
    if (w->form == BACKWARD)
        return backward(w, at, f);
//$ if scale then
    if (w->input == IN_COPY)
        return copied(w, g, row, f);
//$ end
//$ if of == "w" then
    if (w->in_pointers)
        return load_in(w, w->in_pointers[g->number], row * w->in_stride + f);
    return load_in(w, w->in, g->number * w->in_group_stride + row * w->in_stride + f);
//$ else
//$ if params.gather then
    if (w->gather)
        return load_in(w, w->in, w->gather[at] / w->topk * w->in_stride + f);
//$ end
    return load_in(w, w->in, at * w->in_stride + f);
//$ end
}

/* Values of 128 rows and features; those that are not in the group are zero. */
FN void load_tile(const struct work *w, const struct group *g, int row, int feature,
                  float tile[TILE][TILE])
{
    for (int i = 0; i < TILE; i++)
        for (int j = 0; j < TILE; j++)
            tile[i][j] = row + i < g->length && feature + j < w->all.k
                             ? load(w, g, row + i, feature + j)
                             : 0;
}

//$ include "host/largest.c"

/* In any order: the largest of all stays. */
static void note_amax(void *place, const void *values, int count)
{
    unsigned int *most = (unsigned int *)place, old = __atomic_load_n(most, __ATOMIC_RELAXED);
    const unsigned int found = amax_of((const float *)values, count);

    while (old < found &&
           !__atomic_compare_exchange_n(most, &old, found, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}
