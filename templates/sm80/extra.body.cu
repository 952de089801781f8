//$ -- SPDX-License-Identifier: Apache-2.0
/* More steps of k: rows next to those of A, and another matrix for each group. */
const element *const extra =
    (const element *)extra_b + (long long)t.group * n * extra_k;

source_begin(&a_source, (const element *)extra_a + row * extra_k, extra_k, rows, extra_k,
             A_PITCH);
//$ if b.major == "k" then
source_begin(&b_source, extra + column * extra_k, extra_k, columns, extra_k, B_PITCH);
//$ else
source_begin(&b_source, extra + column, n, extra_k, columns, B_PITCH);
//$ end
__syncthreads(); /* nothing reads the ring any more */
multiply_tile(sum, &a_source, &b_source, extra_k, warp_row, warp_column);
