//$ -- SPDX-License-Identifier: Apache-2.0
/* An element of d from its sum. A beta of zero does not look at c. */
static d_element finish(const struct product *p, float sum, const d_element *c)
{
    const float beta = p->beta ? *p->beta : 1;
    float value = p->alpha ? *p->alpha * sum : sum;

    if (p->c && beta != 0)
        value += p->beta ? beta * load_$(d.type)(*c) : load_$(d.type)(*c);
    return store_$(d.type)(value);
}
