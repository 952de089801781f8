//$ -- SPDX-License-Identifier: Apache-2.0
//$ include "common/scale_place.c"

//$ for _, x in ipairs { { "a", a }, { "b", b } } do
//$   local name, o, s = x[1], x[2], x[2].scale
//$   if s then
//$     local rows = s.lines
//$     local across = o.major == "mn"
//$     local what, type = "scale", "float"
//$     if s.zeros then what, type = "scale, with its zero point,", "unsigned int" end
/* The $(what) of element (row, k) of the group's $(name). */
FN $(type) scale_$(name)(const void *sf, const struct scale_place *p, long long row, long long k)
{
//$     if across then
    const long long line = k;

    k = row, row = line; /* of the rowwise tensor, which is read across */
//$     end
//$     if s.span == "block" then
    const long long i = p->row + row$(rows > 1 and " / " .. rows or "");
    const long long j = p->column + k / $(s.k);
//$       if s.order == "rows" then
    const long long at = i * p->stride + j;
//$       elseif s.order == "columns" then
    const long long at = j * p->stride + i;
//$       else
    /* tiles of 128 x 4 */
    const long long at =
        i / 128 * p->stride + j / 4 * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
//$       end

//$       if s.zeros then
    return ((const $(s.code) *)sf)[p->base + at];
//$       else
    return from_$(s.type)(((const $(s.code) *)sf)[p->base + at]);
//$       end
//$     else
    (void)row, (void)k;
    return from_$(s.type)(((const $(s.code) *)sf)[p->base$(s.span == "row" and " + row" or "")]);
//$     end
}

//$   end
//$ end
