//$ -- SPDX-License-Identifier: Apache-2.0
/* Which rows of a [tokens, k] a group's are: row r is pairs[r] / topk. */
struct rows {
    const int *pairs; /* or null: rows in order */
    int topk, tokens;
};

/* -1: there is no such row, zeros stand for it. */
static int row_at(const struct rows *g, int row)
{
    const int pair = g->pairs[row];

    return pair >= 0 && pair / g->topk < g->tokens ? pair / g->topk : -1;
}

/* Record an index that names no row, as kernels do.                  COUPLED: errors */
static void check_rows(const struct rows *g, unsigned int start, int rows, unsigned int *error)
{
    for (int i = 0; i < rows; i++)
        if (row_at(g, i) < 0) {
            error[6] = (unsigned int)g->pairs[i];
            error[7] = ~(start + (unsigned int)i);
        }
}
