//$ local packed = input.bits == 16
//$ local values = { bf16 = "unsigned short", f16 = "unsigned short", f32 = "float",
//$   copy = "unsigned char" }
/*
//$ local how = packed and "as the input has them" or "in fp32"
** What a thread holds of a row: two neighbouring features, $(how).
*/
//$ if packed then
typedef unsigned held;

FN held hold(unsigned lo, unsigned hi) { return lo | hi << 16; }
//$ if input.type == "bf16" then
FN float lo_of(held v) { return float_of(v << 16); }
FN float hi_of(held v) { return float_of(v & 0xffff0000u); }
//$ else
FN float lo_of(held v) { return from_f16(v & 0xffff); }
FN float hi_of(held v) { return from_f16(v >> 16); }
//$ end
//$ else
struct held_pair { float lo, hi; };
typedef struct held_pair held;

FN held hold(float lo, float hi)
{
    const held v = { lo, hi };
    return v;
}
FN float lo_of(held v) { return v.lo; }
FN float hi_of(held v) { return v.hi; }
//$ end

/* Where values come from. */
struct source {
    const void *in;
    long long in_stride;
    int paired; /* two neighbours can be read at once */
//$ if form ~= "plain" then
    const void *saved;
    long long saved_stride;
    const float *probability;
    int activation, interleave;
    float limit, slope, shift;
//$ end
//$ if input.type == "copy" then
    const unsigned char *row;
    long long row_stride;
    const sf_element *row_sf;
    const float *row_global;
//$ end
    struct shape all;
};

//$ if input.type ~= "copy" then
typedef $(values[input.type]) in_element;

//$ local pair = input.type == "f32" and "float2" or "unsigned"
/* Two neighbours at a multiple of their size. */
FN held load_both(const void *at)
{
    const $(pair) both = *(const $(pair) *)at;

    return $(packed and "both" or "hold(both.x, both.y)");
}

//$ if form ~= "plain" then
/* Values i and i + 1, or j where that is not its neighbour. */
FN held load_pair(const struct source *s, const in_element *at, long long i, long long j)
{
    return s->paired ? load_both(at + i) : hold(at[i], at[j]);
}
//$ end
//$ end

//$ if form ~= "plain" then
enum { SQUARED_RELU = 6 }; /* COUPLED: activations */

/* Two results as the type of the input holds them. */
FN held round_pair(float lo, float hi)
{
//$ if packed then
    return to_$(input.type)_x2(lo, hi);
//$ else
    return hold(lo, hi);
//$ end
}

/* Where the operands of feature f lie in a row of `features` results. */
FN void find_operands(const struct source *s, int f, int features, long long *a, long long *b)
{
    const int run = s->interleave;

    *a = run ? (long long)f / run * 2 * run + f % run : f;
    *b = run ? *a + run : *a + features;
    if (s->activation == SQUARED_RELU)
        *a = *b = f;
}
//$ end

//$ if form == "forward" then
/* act(a, b) of features f and f + 1, times the row's probability. */
FN held load_row(const struct source *s, const struct group *g, int row, int f)
{
    const long long i = (long long)g->start + row;
    const in_element *in = (const in_element *)s->in + i * s->in_stride;
    const int second = f + 1 < s->all.k ? f + 1 : f;
    const float p = s->probability ? s->probability[i] : 1;
    long long a[2], b[2];
    float lo, hi;
    held x, y;

    find_operands(s, f, s->all.k, &a[0], &b[0]);
    find_operands(s, second, s->all.k, &a[1], &b[1]);
    x = load_pair(s, in, a[0], a[1]);
    y = load_pair(s, in, b[0], b[1]);
    lo = activate(s->activation, lo_of(x), lo_of(y), s->limit, s->slope, s->shift);
    hi = activate(s->activation, hi_of(x), hi_of(y), s->limit, s->slope, s->shift);
    return round_pair(mul_rn(lo, p), second > f ? mul_rn(hi, p) : 0);
}
//$ elseif form == "backward" then
/* Which result operand f went into, and whether it is the second one. */
FN int result_of(const struct source *s, int f, int *is_second)
{
    const int run = s->interleave, half = s->all.k / 2;

    *is_second = 0;
    if (s->activation == SQUARED_RELU)
        return f;
    *is_second = run ? f / run % 2 : f >= half;
    return run ? f / (2 * run) * run + f % run : f - (f >= half ? half : 0);
}

/* The gradients of operands f and f + 1, from those of the results they went into. */
FN held load_row(const struct source *s, const struct group *g, int row, int f)
{
    const long long i = (long long)g->start + row;
    const in_element *in = (const in_element *)s->in + i * s->in_stride;
    const in_element *saved = (const in_element *)s->saved + i * s->saved_stride;
    const int next = f + 1 < s->all.k ? f + 1 : f;
    const float p = s->probability ? s->probability[i] : 1;
    int second[2];
    const int result[2] = { result_of(s, f, &second[0]), result_of(s, next, &second[1]) };
    long long a[2], b[2];
    struct gradient lo, hi;
    held x, y, dy;

    find_operands(s, result[0], s->all.k / 2, &a[0], &b[0]);
    find_operands(s, result[1], s->all.k / 2, &a[1], &b[1]);
    dy = load_pair(s, in, result[0], result[1]);
    x = load_pair(s, saved, a[0], a[1]);
    y = load_pair(s, saved, b[0], b[1]);
    lo = activate_gradient(s->activation, lo_of(x), lo_of(y), s->limit, s->slope, s->shift);
    hi = activate_gradient(s->activation, hi_of(x), hi_of(y), s->limit, s->slope, s->shift);
    return round_pair(mul_rn(mul_rn(lo_of(dy), p), second[0] ? lo.b : lo.a),
                      next > f ? mul_rn(mul_rn(hi_of(dy), p), second[1] ? hi.b : hi.a) : 0);
}
//$ elseif input.type == "copy" then
//$ include "quantize/value.c"

/* What the row copy holds of feature f. */
FN float copied(const struct source *s, const struct group *g, int row, int f)
{
//$ local first = of == "w" and "(long long)g->number * s->all.m" or "(long long)g->start"
    const long long i = $(first) + row, at = i * s->row_stride + f;
//$ if element.bits == 4 then
    const unsigned code = s->row[at / 2] >> at % 2 * 4 & 15;
//$ else
    const unsigned code = s->row[at];
//$ end
//$ if scale.span == "block" then
    const struct scales m = row_scales(g, &s->all);
    const long long sf = scale_at(&m, row / DOWN, f / ACROSS);
//$ elseif scale.span == "row" then
    const long long sf = i;
//$ else
    const long long sf = $(scale.span == "group" and "g->number" or "0");
//$ end
//$ local global = scale.global and ", s->row_global[g->number]" or ""

    return value_of(code, from_$(scale.type)(s->row_sf[sf])$(global));
}

FN held load_row(const struct source *s, const struct group *g, int row, int f)
{
    return hold(copied(s, g, row, f), f + 1 < s->all.k ? copied(s, g, row, f + 1) : 0);
}
//$ end

/*
** The rows of a thread's two features, from row `row` of the group on; zeros where the group has
** none.
*/
//$ if form == "plain" and input.type ~= "copy" then
FN void load_rows(const struct source *s, const struct group *g, int row, int f, held v[ROWS])
{
//$ local first = of == "w" and "(long long)g->number * s->all.m" or "(long long)g->start"
    const int rows = f < s->all.k ? g->length - row : 0;
    const unsigned char *at = (const unsigned char *)((const in_element *)s->in +
                                                      ($(first) + row) * s->in_stride + f);
    const unsigned step = (unsigned)s->in_stride * $(input.bits // 8);

    if (s->paired && rows >= ROWS) {
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            v[r] = load_both(at + (unsigned long long)step * r);
    } else {
        const int second = f + 1 < s->all.k;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const in_element *both = (const in_element *)at + s->in_stride * r;
            v[r] = r < rows ? hold(both[0], second ? both[1] : (in_element)0) : hold(0, 0);
        }
    }
}
//$ else
FN void load_rows(const struct source *s, const struct group *g, int row, int f, held v[ROWS])
{
    const int rows = f < s->all.k ? g->length - row : 0;

#pragma unroll
    for (int r = 0; r < ROWS; r++)
        v[r] = r < rows ? load_row(s, g, row + r, f) : hold(0, 0);
}
//$ end
