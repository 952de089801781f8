//$ -- SPDX-License-Identifier: Apache-2.0
/* Worker `worker` of `workers`. */
void $(name)(void *const *params, int worker, int workers)
{
//$ for _, p in ipairs(params) do
    $(p.type) const $(p.name) = *($(p.type) const *)params[$(p.index)];
//$ end
    const struct work w = {
        .worker = worker,
        .workers = workers,
//$ for _, field in ipairs { "input", "form", "in", "in_pointers", "gather", "topk", "saved",
//$   "in_stride", "in_group_stride", "saved_stride", "probability", "bias", "dbias", "dbias_add",
//$   "dprob", "partials", "row_partials", "activation", "interleave", "limit", "slope",
//$   "shift", "history", "random", "out", "out_stride", "align" } do
//$   if params[field] then
        .$(field) = $(field),
//$   end
//$ end
        .all = { m, k, groups },
//$ for _, copy in ipairs { "row", "column" } do
//$   if params[copy] then
//$   local scales = scale and "(sf_element *)" .. copy .. "_sf, " .. copy .. "_global" or "0, 0"
        .$(copy) = { $(copy), $(copy)_stride, $(scales),
//$   local amax = params[copy .. "_amax"] and copy .. "_amax" or "0"
                 $(amax) },
//$   end
//$ end
//$ if params.scale then
        .delayed = scale,
//$ end
    };
    struct group g = { 0, 0, 0, 0 };
    long long next = 0;

    //$ include "common/noop.c"
//$ if of ~= "w" then
    if (worker == 0)
        check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)m, error);
//$ end
    for (int i = 0; i < groups; i++) {
        g.number = i;
        g.first += ceil_div(g.length, TILE);
//$ if of == "w" then
        g.start = 0;
        g.length = m;
//$ else
        g.start = offsets ? cut_to_rows(size_at(offsets, sizes_bytes, i), (unsigned int)m)
                          : g.start + (unsigned int)g.length;
        g.length = (int)cut_to_rows(group_length(first_dims, offsets, sizes_bytes, i),
                                    (unsigned int)m - g.start);
        if (g.first + ceil_div(g.length, TILE) > most_tiles(&w.all))
            g.length = 0; /* groups that overlap would not fit into the columnwise tensor */
//$ end
        do_group(&w, &g, &next);
    }
}
