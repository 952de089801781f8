//$ -- SPDX-License-Identifier: Apache-2.0
/* How far values go below 0 and above it. NaN does not count. */
struct span {
    float below, above;
};

FN void widen(struct span *s, float x)
{
    s->below = -x > s->below ? -x : s->below;
    s->above = x > s->above ? x : s->above;
}

/* The zero point: the code of 0 where the least value has code 0. */
FN int zero_point(const struct span *s, float factor)
{
    return (int)to_$(element.type)(mul_rn(s->below, factor), 0);
}
