//$ -- SPDX-License-Identifier: Apache-2.0
//$ local a_first = a.ragged == "m" and "t->start" or "t->group * f->a_group_stride"
//$ if gather ~= "none" then
//$ include "sm90/factor_of_token.cu"
//$ end

/* A warp's threads hold columns of D as rows: COLUMNS of them, of ROWS rows from `row` of the
   group's `rows` on. */
FN void scale_sums(float sum[SUMS], const struct factors *f, const struct tile *t, int row,
                   int rows, int lane)
{
//$ if gather ~= "none" then
    const float *b = f->b + t->group * f->b_group_stride;
//$ else
    const float *a = f->a + $(a_first), *b = f->b + t->group * f->b_group_stride;
//$ end
    const int column = t->column + threadIdx.x / 32 % 4 * COLUMNS + lane / 4;
    float of_column[COLUMNS / 8];
//$ local columns = "f->columns"
//$ if ragged == "k" then
//$   columns = "columns"
    /* An empty group's scales may be unwritten. */
    const int columns = t->length > 0 ? f->columns : 0;

    rows = t->length > 0 ? rows : 0;
//$ end

#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i++)
        of_column[i] = column + 8 * i < $(columns) ? b[column + 8 * i] : 0;
    row += lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < ROWS / 8; j++) {
        const int y = row + 8 * j;
//$ if gather ~= "none" then
        const float upper = y < rows ? factor_of(f, t->start + y) : 0;
        const float lower = y + 1 < rows ? factor_of(f, t->start + y + 1) : 0;
//$ else
        const float upper = y < rows ? a[y] : 0, lower = y + 1 < rows ? a[y + 1] : 0;
//$ end
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; i++) {
            float *s = sum + i / 2 * (ROWS / 2) + 4 * j + i % 2 * 2;
            s[0] = s[0] * upper * of_column[i];
            s[1] = s[1] * lower * of_column[i];
        }
    }
}
