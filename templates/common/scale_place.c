//$ -- SPDX-License-Identifier: Apache-2.0
/* The group whose scales are addressed: values derived from the groups' sizes. */
struct scale_group {
    int number;
    long long start, length; /* rows, or tokens */
    long long first;         /* runs of 128 of them in the groups before it */
    long long k;             /* of a rowwise tensor */
};

/* The address of an operand's scales in a group; those of a row, group or tensor begin at
   `base`. */
struct scale_place {
    long long base, stride;
    long long row, column; /* of its first scale in the matrix that begins at `base` */
};

FN long long round_up(long long length, int multiple)
{
    return (length + multiple - 1) / multiple * multiple;
}

//$ for _, x in ipairs { { "a", a, "m" }, { "b", b, "n" } } do
//$   local name, o, s = x[1], x[2], x[2].scale
//$   if s then
//$     local tokens, column = o.ragged ~= "none", s.copy == "column"
//$     local rows = s.lines
/* The scales of $(name), which has `lines` rows in each group or in all. COUPLED: scales ->
   registry.h */
FN struct scale_place place_$(name)(const struct scale_group *g, long long lines,
                                 long long stride, long long group_stride)
{
    struct scale_place p = { g->number * group_stride, stride, 0, 0 };

    (void)lines;
//$     if s.span == "row" and tokens and not column then
    p.base = g->start;
//$     elseif s.span == "block" and tokens and not column and s.apart then
    p.base = g->first * $(s.tile_rows) *
             round_up((g->k + $(s.k - 1)) / $(s.k), $(s.pad_columns));
//$       if s.order == "columns" then
    p.stride = round_up((g->length + $(rows - 1)) / $(rows), $(s.pad_rows));
//$       end
//$     elseif s.span == "block" and tokens and not column then
    p.row = $(rows == 1 and "g->start" or "g->first * " .. 128 // rows);
//$     elseif s.span == "block" and tokens and (s.apart or s.order == "columns") then
    p.base = round_up((lines + $(rows - 1)) / $(rows), $(s.pad_rows)) *
             (g->first * $(s.tile_columns));
//$       if s.order ~= "columns" then
//$         local tile = s.order == "tiles" and " * 128" or ""
    p.stride = round_up((g->length + 127) / 128 * $(128 // s.k), $(s.pad_columns))$(tile);
//$       end
//$     elseif s.span == "block" and tokens then
    p.column = g->first * $(128 // s.k);
//$     end
    return p;
}

//$   end
//$ end
