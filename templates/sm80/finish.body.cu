//$ -- SPDX-License-Identifier: Apache-2.0
//$ -- A tile's sums become D; row, column and columns: of the tile, expressions.
//$ for _, x in ipairs { "d", "c" } do
//$ if d.ragged == "none" then
target.$(x) =
    (output *)matrix_of($(x), $(x)_pointers, $(d.bytes) * $(x)_group_stride, t.group);
target.$(x) += $(row) * $(x)_stride + $(column);
//$ else
target.$(x) = (output *)$(x) + row * $(x)_stride + $(column);
//$ end
target.$(x)_stride = $(x)_stride;
//$ end
//$ if params.scatter then
target.scatter = scatter ? scatter + row : 0;
target.addresses = addresses;
target.first = (output *)d + $(column);
target.all_rows = m;
target.column = (int)$(column);
//$ end
target.rows = rows;
target.columns = $(columns);
target.alpha = alpha ? alpha[t.group * scalar_step] : 1;
//$ local given = d.ragged == "none" and "c || c_pointers" or "c"
target.beta = !($(given)) ? 0 : beta ? beta[t.group * scalar_step] : 1;
target.whole = runs_aligned(&target);
__syncthreads(); /* nothing reads the ring any more: it becomes slabs */
store_sums(&target, slab, sum, warp_row, warp_column);
__syncthreads(); /* and a ring again */
