//$ -- SPDX-License-Identifier: Apache-2.0
//$ local wide = scale.k
//$ local gathered = scale.words
//$ local more = scale.global and ", global" or ""
//$ local sf_type = scale.type == "f32" and "float" or "unsigned int"
/* Blocks of one line: 1 x $(wide) values of the rowwise tensor. A lane has a row. */
//$ local copy = "const struct group *g, const struct tile *t, "
//$ if gathered and not scale.global then copy = "" end
//$ copy = copy .. (gathered and "" or "const struct shape *all, ")
//$ local tile = copy == "" and "" or gathered and "g, t, " or "g, t, all, "
//$ local where = copy
//$ copy = copy .. (copy ~= "" and "const struct copy *copy, " or "")
FN void find_row_factors(struct shared *shared, const struct coord *p,
                         $(copy)const float most[BLOCKS])
{
    const int line = ROWS * p->part + p->lane;
//$ if not gathered then
    const struct scales s = row_scales(g, all);
//$ end
//$ if scale.global then
    const float global = global_factor(copy->amax, copy->global, g, t);
//$ end

#pragma unroll
    for (int i = 0; i < BLOCKS; i++) {
        const int block = block_of(p->lane, i), j = BLOCKS * p->half + block;
        $(sf_type) sf;

        shared->row_factor[p->warp][block][p->lane] = scale_of(most[i]$(more), &sf);
//$ if gathered then
        shared->sf[0][line][j] = (sf_element)sf;
//$ else
        store_sf(copy->sf, &s, t->row + line, t->column / ACROSS + j, (sf_element)sf);
//$ end
    }
    __syncwarp();
}

/* The stored scale of a feature's block with row `first` of the thread's. */
//$ if gathered then
FN void store_column_sf(struct shared *shared, const struct coord *p, int second, int first,
                        sf_element sf)
{
//$ else
FN void store_column_sf(const struct coord *p, const struct group *g, const struct tile *t,
                        const struct shape *all, const struct copy *copy, int second, int first,
                        sf_element sf)
{
//$ end
    const int line = 64 * p->half + 2 * p->lane + second, row = ROWS * p->part + first;

//$ if gathered then
    shared->sf[1][line][row / ACROSS] = sf;
//$ else
    const struct scales s = column_scales(g, all);

    if (row % ACROSS == 0)
        store_sf(copy->sf, &s, t->column + line, (t->row + row) / ACROSS, sf);
//$ end
}

//$ if not (scale.hadamard and wide <= 32) then
/* $(wide) x 1 values of the columnwise tensor. */
FN void find_column_factors(struct shared *shared, const struct coord *p,
                            $(copy)const float most[2][PARTS], struct factors *f)
{
//$ if scale.global then
    const float global = global_factor(copy->amax, copy->global, g, t);
//$ end

#pragma unroll
    for (int second = 0; second < 2; second++) {
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            float all_most = most[second][i];
            $(sf_type) sf;
//$ if wide > 32 then
            const int line = 64 * p->half + 2 * p->lane + second;
            const int part = p->part / $(wide // 32) * $(wide // 32);
//$ for i = 0, wide // 32 - 1 do
            all_most = larger(all_most, shared->column_most[part + $(i)][line]);
//$ end
//$ end
            f->column[second][i] = scale_of(all_most$(more), &sf);
//$ local place = gathered and "shared, p" or "p, g, t, all, copy"
            store_column_sf($(place), second, i * (ROWS / PARTS), (sf_element)sf);
        }
    }
}

/* The largest magnitudes of the columns, as the columnwise tensor takes them. */
FN void find_columns(const packed *v, float most[2][PARTS])
{
//$ if scale.hadamard then
#pragma unroll
    for (int second = 0; second < 2; second++) {
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            most[second][i] =
                largest_transformed<ROWS / PARTS>(v + i * (ROWS / PARTS) * LINE, second);
    }
//$ else
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        const magnitudes m = largest_of<ROWS / PARTS>(v + i * (ROWS / PARTS) * LINE);
        most[0][i] = low_of(m);
        most[1][i] = high_of(m);
    }
//$ end
}

//$ end
//$ if scale.as then
/* No row's scale is further below the largest of 128 values of k than e4m3 reaches. By all threads.
   COUPLED: as */
FN void keep_near(struct shared *shared, const struct coord *p, float most[BLOCKS])
{
    const int line = ROWS * p->part + p->lane;
    float all = 0;

#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
        all = larger(all, most[i]);
    shared->row_most[p->half][line] = all;
    __syncthreads();
    all = larger(shared->row_most[0][line], shared->row_most[1][line]);
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
        most[i] = larger(most[i], mul_rn(all, 0x1p-14f));
}

//$ end
//$ local turned = not (scale.hadamard and wide <= 32)
//$ local columns = turned and "const struct copy *column, struct factors *f, " or ""
FN void find_factors(struct shared *shared, const struct coord *p, $(where)const struct copy *row,
                     $(columns)const packed *v)
{
    float of_row[BLOCKS];
//$ if turned then
    float of_columns[2][PARTS];

    find_columns(v, of_columns); /* with those of rows, whether both are wanted or not */
//$ end
    largest_of_row(v - p->lane, p->lane, of_row);
//$ if scale.as then
    keep_near(shared, p, of_row);
//$ end
//$ if not (scale.hadamard and wide <= 32) then
//$ if wide > 32 then
    if (column->data) {
        shared->column_most[p->part][64 * p->half + 2 * p->lane] = of_columns[0][0];
        shared->column_most[p->part][64 * p->half + 2 * p->lane + 1] = of_columns[1][0];
    }
    __syncthreads();
//$ end
    if (column->data)
        find_column_factors(shared, p, $(tile)$(copy ~= "" and "column, " or "")of_columns, f);
//$ end
    if (row->data)
        find_row_factors(shared, p, $(tile)$(copy ~= "" and "row, " or "")of_row);
}

//$ if gathered then
/* Tiles next to this one write the rest of the word's line in L2, which should stay until they
   have: without this hint a cast of the rowwise and the columnwise tensor takes an eighth
   longer. */
FN void store_word(unsigned char *to, unsigned word)
{
    asm volatile("{ .reg .b64 last; createpolicy.fractional.L2::evict_last.b64 last, 1.0;"
                 " st.global.L2::cache_hint.b32 [%0], %1, last; }"
                 : : "l"(to), "r"(word) : "memory");
}

/*
** The scales of a tile's lines: half of the threads take a row each, the others a feature. They are
** side by side and mostly make whole words.
*/
FN void store_line_scales(const struct shared *shared, const struct coord *p,
                          const struct group *g, const struct tile *t, const struct shape *all,
                          const struct copy *row, const struct copy *column)
{
    enum { COUNT = 128 / ACROSS }; /* of a line */
    const int side = p->warp / 4, line = p->warp % 4 * 32 + p->lane;
    const struct scales s = side ? column_scales(g, all) : row_scales(g, all);
    const int i = line + (side ? t->column : t->row), j = (side ? t->row : t->column) / ACROSS;
    sf_element *const sf = side ? column->sf : row->sf;
    const unsigned *words = (const unsigned *)shared->sf[side][line];

    if ((side ? column->data : row->data) == 0)
        return;
#pragma unroll
    for (int word = 0; word < COUNT / 4; word++) {
        unsigned char *const to = (unsigned char *)sf + scale_at(&s, i, j + 4 * word);
        if (i < s.count_i && j + 4 * word + 4 <= s.count_j && (unsigned long long)to % 4 == 0) {
            store_word(to, words[word]);
            continue;
        }
#pragma unroll 1
        for (int k = 4 * word; k < 4 * word + 4; k++)
            store_sf(sf, &s, i, j + k, shared->sf[side][line][k]);
    }
}
//$ end
