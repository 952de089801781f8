//$ -- SPDX-License-Identifier: Apache-2.0
/*
** d = alpha * sum + beta * c, in fp32. Each thread reads the elements of C that it holds sums of,
** AHEAD slabs before it needs them, so that they are in flight while others are stored.
*/
//$ local element = ({ f32 = "float", bf16 = "unsigned short", f16 = "unsigned short" })[d.type]
enum { AHEAD = 2, SLAB_WORDS = 16 };

/* C and the scalars, as the caller gave them. */
struct addend {
    const void *c;
    const void *const *c_pointers;
    long long stride, group_stride; /* elements */
    int columns;
//$ if epilogue == "scale" then
    const float *alpha, *beta;
    int step; /* from one group's scalars to the next's: 0 or 1 */
//$ end
};

/* One tile's state of them. */
struct scale {
    const $(element) *c; /* the group's first element; null if C is not read */
    long long stride;
    int columns;
//$ if epilogue == "scale" then
    float alpha, beta;
//$ end
};

FN struct scale scale_of(const struct addend *a, const struct tile *t)
{
    struct scale s;

    s.stride = a->stride;
    s.columns = a->columns;
    if (a->c_pointers)
        s.c = (const $(element) *)a->c_pointers[t->group];
    else if (a->c)
//$ if ragged == "m" then
        s.c = (const $(element) *)a->c + t->start * a->stride;
//$ else
        s.c = (const $(element) *)a->c + t->group * a->group_stride;
//$ end
    else
        s.c = 0;
//$ if epilogue == "scale" then
    s.alpha = a->alpha ? a->alpha[t->group * a->step] : 1;
    s.beta = a->beta ? a->beta[t->group * a->step] : 1;
    if (s.beta == 0)
        s.c = 0; /* C may hold anything */
//$ end
    return s;
}

/* One warp's 16 rows x SLAB_COLUMNS of C as they are in memory, in the order of the sums. */
struct raw_slab {
    unsigned int word[SLAB_WORDS];
};

//$ if turned then
//$ local raw = d.bytes == 4 and "unsigned int" or element
/* Zeros outside. A word has one element: a thread's neighbours are in different rows. */
FN void read_slab(struct raw_slab *c, const struct scale *s, int row, int column, int rows,
                  int lane)
{
#pragma unroll
    for (int i = 0; i < SLAB_WORDS; i++) {
        const int y = row + i / 4 % 2 * 8 + lane % 4 * 2 + i % 2;
        const int x = column + i / 8 * 16 + i / 2 % 2 * 8 + lane / 4;
        const int inside = s->c && y < rows && x < s->columns;
        c->word[i] = inside ? *(const $(raw) *)(s->c + y * s->stride + x) : 0;
    }
}
//$ else
/* Zeros outside. */
FN void read_slab(struct raw_slab *c, const struct scale *s, int row, int column, int rows,
                  int lane)
{
//$ local words = d.bytes == 4 and 2 or 1 -- of two neighbours
#pragma unroll
    for (int i = 0; i < SLAB_WORDS / $(words); i++) {
        const int y = row + lane / 4 + i % 2 * 8, x = column + i / 2 * 8 + lane % 4 * 2;
        const int inside = s->c && y < rows && x < s->columns;
        const unsigned int *from = (const unsigned int *)(s->c + y * s->stride + x);
//$ if words == 2 then
        c->word[2 * i] = inside ? from[0] : 0;
        c->word[2 * i + 1] = inside ? from[1] : 0;
//$ else
        c->word[i] = inside ? from[0] : 0;
//$ end
    }
}
//$ end

/* The i-th element that this thread holds. */
FN float element_of(const struct raw_slab *c, int i)
{
//$ if d.type == "f32" then
    return __uint_as_float(c->word[i]);
//$ elseif turned and d.type == "bf16" then
    return __uint_as_float(c->word[i] << 16);
//$ elseif d.type == "bf16" then
    return __uint_as_float(i % 2 ? c->word[i / 2] & 0xffff0000u : c->word[i / 2] << 16);
//$ else
//$ local half = turned and "c->word[i]" or "(c->word[i / 2] >> i % 2 * 16)"
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"((unsigned short)$(half)));
    return wide;
//$ end
}

//$ local with = epilogue == "scale" and ", const struct scale *s" or ""
FN void scale_slab(float *sum, const struct raw_slab *c$(with))
{
#pragma unroll
    for (int i = 0; i < SLAB_COLUMNS / 2; i++)
//$ if turned then
    {
        float *at = sum + i / 8 * (ROWS / 2) + i % 8;
//$ if epilogue == "scale" then
        *at = __fadd_rn(__fmul_rn(s->alpha, *at), __fmul_rn(s->beta, element_of(c, i)));
//$ else
        *at += element_of(c, i);
//$ end
    }
//$ elseif epilogue == "scale" then
        sum[i] = __fadd_rn(__fmul_rn(s->alpha, sum[i]), __fmul_rn(s->beta, element_of(c, i)));
//$ else
        sum[i] += element_of(c, i);
//$ end
}
