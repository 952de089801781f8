//$ -- SPDX-License-Identifier: Apache-2.0
/* Row `row` of the group in D; null: it is not written. */
static d_element *row_of_d(const struct product *p, int row)
{
    const int to = p->scatter ? p->scatter[row] : row;

    if (!p->scatter)
        return p->d + row * p->d_row;
    if (to < 0 || to >= p->all_rows)
        return 0;
    return p->addresses ? (d_element *)p->addresses[to] : p->first + to * p->d_row;
}

/* An element of d from its sum. A beta of zero does not look at c. */
static d_element finish(const struct product *p, float sum, const d_element *c)
{
    const float beta = p->beta ? *p->beta : 1;
    float value = p->alpha ? *p->alpha * sum : sum;

    if (p->c && beta != 0)
        value += p->beta ? beta * from_$(d.type)(*c) : from_$(d.type)(*c);
    return to_$(d.type)(value);
}
