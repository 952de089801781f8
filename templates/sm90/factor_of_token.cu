//$ -- SPDX-License-Identifier: Apache-2.0
/* The scale of row `row` of all groups. */
FN float factor_of(const struct factors *f, unsigned int row)
{
    const int pair = __ldg(f->pairs + row), token = pair / f->topk;

    return pair >= 0 && token < f->tokens ? f->a[token] : 0;
}
