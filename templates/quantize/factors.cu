//$ -- SPDX-License-Identifier: Apache-2.0
//$ local wide = scale.k
//$ local by_line = scale.span == "row" or (scale.span == "block" and scale.rows == 1)
//$ local shared = scale.span == "row" or (by_line and wide == 128)
/* The values' factors. Those of rows are in shared memory where rows differ. */
struct factors {
    float row[PARTS];       /* where they do not */
    float column[2][PARTS]; /* of each feature's blocks of rows */
};

/* That of row r of the thread's. */
//$ local of_lines = "const struct shared *shared, const struct coord *p"
FN float row_factor($(by_line and of_lines or "const struct factors *f"), int r)
{
//$ if shared then
    return shared->line_factor[0][ROWS * p->part + r];
//$ elseif by_line then
    return shared->row_factor[p->warp][p->lane / LANES][r];
//$ else
    return PARTS > 1 && r >= 16 ? f->row[PARTS - 1] : f->row[0];
//$ end
}

/* That of the blocks that row `first` of the thread's begins or is in. */
FN float column_factor(const struct factors *f, int second, int first)
{
    if (PARTS <= 1)
        return f->column[second][0];
    return first ? f->column[second][PARTS - 1] : f->column[second][0];
}

/* The argument that a group's second scale gives the rule of blocks; the group's first tile stores
   it. */
FN float global_factor(const unsigned int *amax, float *global, const struct group *g,
                       const struct tile *t)
{
    float stored;
    const float factor = global_of(float_of(amax[g->number]), &stored);

    if (global && t->row + t->column == 0 && threadIdx.x % 128 == 0)
        global[g->number] = stored;
    return factor;
}

//$ local kind = shared and "shared" or by_line and "lines" or "given"
//$ if scale.rows > 1 then kind = "square" end
//$ include("quantize/factors_" .. kind .. ".cu")
