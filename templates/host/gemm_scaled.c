//$ -- SPDX-License-Identifier: Apache-2.0
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local follows = epilogue == "activate" or epilogue == "copies"
//$ local copies = epilogue == "copies" or epilogue == "gradient_copies" -- of what would be d
//$ local across = b.major == "mn" -- b's rows are steps of k
//$ -- the type of values times scales: that of the other operand
//$ local multiplied = (a.type == "f16" or b.type == "f16") and "f16" or "bf16"
//$ local gathers = params.gather
//$ local matrix = across and "[k, n]" or "[n, k]"
//$ local contiguous = across and "k and n" or "k"
/*
//$ if follows then
** p = alpha * a * b^T + bias, d = activation(p) * probability for each group, on the host, of
** quantized tensors.
**
**   a  $(a.type) [m, k], b $(b.type) $(matrix), contiguous along $(contiguous)
**   d  $(d.type) [m, n], or [m, n / 2] where an activation takes two operands; p [m, n], or null
//$ if copies then
**      d is quantized: the rowwise tensor, and the columnwise tensor or null, are stored
//$ end
**
//$ elseif back then
** d = alpha * a * b^T * probability * activation'(p) for each group, on the host, of quantized
** tensors.
**
**   a  $(a.type) [m, k], b $(b.type) $(matrix), contiguous along $(contiguous)
**   d  $(d.type) [m, 2 n], or [m, n] where the activation takes one operand; p the same
//$ if copies then
**      d is quantized: the rowwise tensor, and the columnwise tensor or null, are stored
//$ end
**
//$ else
** d = alpha * a * b^T + beta * c for each group, on the host, of quantized tensors.
**
**   a  $(a.type) [m, k], b $(b.type) $(matrix), contiguous along $(contiguous)
**   d  $(d.type) [m, n], contiguous along n; c the same, or null for none
**
//$ end
//$ if ragged == "k" then
** Groups split k: the tokens of both columnwise tensors, where each group begins at a multiple of
** 128.
//$ else
//$ local given = (follows or back) and "p" or "c"
** Groups split the rows of a, d and $(given); b has a matrix for each group.
//$ end
//$ -- A scale's factor depends on the values that share it and on its storage.
//$ local function of_block(o) return o.scale and o.scale.span == "block" end
//$ local function dequantizes(o) return o.scale and o.scale.of_values end
//$ local function weighs(o) return of_block(o) and not o.scale.of_values end
//$ local function factors(o) return o.scale and not of_block(o) and not o.scale.of_values end
//$ local function gcd(x, y) while y > 0 do x, y = y, x % y end return x end
//$ local integers = a.type == "i8" and b.type == "i8" and not dequantizes(a) and not dequantizes(b)
//$ local chunk = integers and promote == 0 and 131072 or promote
//$ for _, o in ipairs { a, b } do
//$   if weighs(o) then chunk = gcd(chunk, o.scale.k) end
//$ end
//$ local run = chunk > 0 and gcd(chunk, 128) or 128
//$ local all = { a = a, b = b }
//$ local function of_whole(o) return factors(o) or o.scale and o.scale.global end
//$ local apart = of_whole(a) or of_whole(b)
//$ for _, x in ipairs { "a", "b" } do
//$   if not all[x].scale then
**   $(x)  has no scales: its values are summed as they are
//$   elseif dequantizes(all[x]) then
**   $(x)  is dequantized: value * scale, rounded to $(multiplied), is summed
//$   elseif weighs(all[x]) then
**   $(x)  has an fp32 scale for $(all[x].scale.k) values of k, a factor of their sum
//$   else
**   $(x)  has an fp32 scale for a $(all[x].scale.span), a factor of the whole sum
//$   end
//$   if all[x].scale and all[x].scale.global then
**      and one of the second level for a group, a factor of the whole sum
//$   end
//$ end
**
//$ if chunk > 0 then
//$   local sums = integers and "integers" or "fp32"
** $(chunk) values of k at a time are summed in $(sums), in ascending order; then, in fp32,
** sum += (factor of a * factor of b) * partial sum.
//$ else
** All of k is summed in fp32 in ascending order, each product rounded before it is added.
//$ end
//$ if apart then
** If products are merged, the factors of whole sums are each one's own: its sum, times them, is
** added to that of those before it.
//$ else
** If products are merged, the sums go on from one to the next.
//$ end
//$ local rest = follows and "+ bias, what follows, and one" or back and "what follows, and one"
//$              or "+ beta * c, and one"
** At the end (factor of a * factor of b) * sum, alpha, $(rest) rounding to the type of
** d. So the result depends neither on the number of workers nor on the width of the vectors.
** Compile with -ffp-contract=off.
*/
//$ local storage = { bf16 = "unsigned short", f16 = "unsigned short", f32 = "float" }
//$ local codes = { bf16 = "unsigned short", f16 = "unsigned short" }
#define UNUSED __attribute__((unused))
#define FN static inline UNUSED
enum {
    TILE_M = $(tile.m),    /* rows summed side by side */
    TILE_N = $(tile.n),   /* columns, as wide as the widest vector */
    TILE_K = $(run),  /* length of a packed run */
    CHUNK = $(chunk),   /* values of k whose sum is added by itself; 0: all */
    BLOCK_M = 16 * TILE_M, /* one worker's block */
    BLOCK_N = 4 * TILE_N,
    MICROBATCHES = $(microbatches), /* products that a call may merge */
    ALIGNED = 128 /* a group's tokens begin at multiples of it in columnwise tensors */
};
typedef $(codes[a.type] or "unsigned char") a_element;
typedef $(codes[b.type] or "unsigned char") b_element;
typedef $(storage[d.type]) d_element;
typedef $(integers and "int" or "float") term; /* of a sum */

//$ include "common/sizes.c"

//$ include "common/check_sizes.c"

//$ include "common/merged.c"

//$ if gathers then
//$ include "host/gather.c"

//$ end
//$ once "cast/arith.c"
//$ for _, o in ipairs { a, b } do
//$   once("cast/from_" .. o.type .. ".c")
//$   if o.scale then
//$     once("cast/from_" .. o.scale.type .. ".c")
//$     if o.scale.zeros then once("dequantize/zero_" .. o.type .. ".c") end
//$   end
//$ end
//$ if dequantizes(a) or dequantizes(b) then
//$   once("cast/to_" .. multiplied .. ".c")
//$   once("cast/from_" .. multiplied .. ".c")
//$ end
//$ once("cast/from_" .. d.type .. ".c")
//$ once("cast/to_" .. d.type .. ".c")

//$ include "host/gemm_run.c"

//$ if follows then
//$ include "host/gemm_activate.c"
//$ if copies then
struct result;
//$ end

//$ elseif back then
//$ include "host/gemm_gradient.c"
//$ if copies then
struct result;
//$ end

//$ end

//$ include "common/scales.c"

/* An operand of one group. */
struct operand {
    const void *data;
    long long first;  /* its first element, among all of `data` */
    long long stride; /* elements from one row to the next */
    const void *sf;
    struct scale_place scales;
    float global; /* of the second level, else 1 */
};

/* The operands of one group's sums. */
struct stretch {
    int k;
    struct operand a, b;
//$ if gathers then
    struct rows rows; /* of a */
//$ end
};

/* One group's product. */
struct product {
    int m, n;
    long long k; /* of all stretches */
    struct stretch stretch[MICROBATCHES];
    int stretches;
//$ if follows then
    struct follow follow;
//$ if copies then
    const struct result *result;
//$ end
//$ elseif back then
    struct back back;
//$ if copies then
    const struct result *result;
//$ end
//$ else
    const d_element *c; /* or null */
    d_element *d;
    long long c_row, d_row;
    const float *alpha, *beta; /* null for 1 */
    const int *scatter; /* the row of all of D that has each, or null: in order */
    const unsigned long long *addresses; /* of rows of D, 0: none; or null */
    d_element *first; /* of all of D */
    int all_rows;
//$ end
    const term *a_values, *b_values; /* of each code */
    run_function *run;
};

//$ if follows then
/* The row of b at a position; any row if there is none: its sums are not stored. */
FN int row_of_b(const struct product *p, int place)
{
    const int column = column_at(&p->follow, place);
    return column < 0 ? 0 : column;
}
//$ elseif not back then
//$ include "host/gemm_finish.c"
//$ end

//$ for _, x in ipairs { "a", "b" } do
//$   local o, s = all[x], all[x].scale
/* Element (row, k). */
FN term value_$(x)(const struct product *p, const struct stretch *t, long long row, long long k)
{
//$   local line, column = "row", "k"
//$   if o.major == "mn" then line, column = column, line end
    const long long at = t->$(x).first + $(line) * t->$(x).stride + $(column);
    const $(x)_element *const data = t->$(x).data;

//$   if o.bits == 4 then
    return p->$(x)_values[data[at / 2] >> at % 2 * 4 & 15];
//$   elseif o.bits <= 8 then
    return p->$(x)_values[data[at]];
//$   else
    (void)p;
    return from_$(o.type)(data[at]);
//$   end
}

/* `steps` summands of a row from (row, k) on, `apart` from one to the next. */
FN void load_run_$(x)(const struct product *p, const struct stretch *t, term *out, int apart,
                   long long row, long long k, int steps)
{
//$   if dequantizes(o) then
    float scale = 0$(s.zeros and ", zero = 0" or "");

    for (int i = 0; i < steps; i++) {
//$ local along = s.span == "block" and s.k
//$ if o.major == "mn" then along = s.lines end -- of steps of k
        if (i == 0$(along and " || (k + i) % " .. along .. " == 0" or ""))
//$ if s.zeros then
        {
            const unsigned word = scale_$(x)(t->$(x).sf, &t->$(x).scales, row, k + i);
            scale = from_$(s.type)(word);
            zero = (float)zero_$(o.type)(word);
        }
        out[i * apart] = from_$(multiplied)(to_$(multiplied)(
            mul_rn(value_$(x)(p, t, row, k + i) - zero, scale)));
//$ else
            scale = scale_$(x)(t->$(x).sf, &t->$(x).scales, row, k + i);
        out[i * apart] =
            from_$(multiplied)(to_$(multiplied)(mul_rn(value_$(x)(p, t, row, k + i), scale)));
//$ end
    }
//$   else
    for (int i = 0; i < steps; i++)
        out[i * apart] = value_$(x)(p, t, row, k + i);
//$   end
}

//$ end
/* The row of a for row `row` of the group; -1: there is none. */
FN int row_of_a(const struct stretch *t, int row)
{
    return t->rows.pairs ? row_at(&t->rows, row) : row;
}

/* Rows of a, a run of k each, one after the other; rows that are missing are zero. */
static void pack_a(term packed[BLOCK_M][TILE_K], const struct product *p,
                   const struct stretch *t, int m, long long k, int rows, int steps)
{
//$ if gathers then
    for (int r = 0; r < rows; r++) {
        const int row = row_of_a(t, m + r);

        if (row >= 0)
            load_run_a(p, t, packed[r], 1, row, k, steps);
        for (int i = 0; row < 0 && i < steps; i++)
            packed[r][i] = 0;
    }
//$ else
    for (int r = 0; r < rows; r++)
        load_run_a(p, t, packed[r], 1, m + r, k, steps);
//$ end
    for (int r = rows; r % TILE_M; r++)
        for (int i = 0; i < steps; i++)
            packed[r][i] = 0;
}

/* Rows of b, a run of k each, side by side; rows that are missing are zero. */
static void pack_b(term packed[TILE_K][TILE_N], const struct product *p,
                   const struct stretch *t, int n, long long k, int rows, int steps)
{
    for (int r = 0; r < rows; r++)
        load_run_b(p, t, &packed[0][r], TILE_N, $(follows and "row_of_b(p, n + r)" or "n + r"), k,
                   steps);
    for (int i = 0; i < steps; i++)
        for (int r = rows; r < TILE_N; r++)
            packed[i][r] = 0;
}

/* Sums of up to BLOCK_M x BLOCK_N elements of d. */
struct sums {
    int m, n, rows, columns; /* the block */
    term part[BLOCK_N / TILE_N][BLOCK_M][TILE_N];
    float whole[BLOCK_M][BLOCK_N];
//$ if apart then
    float total[BLOCK_M][BLOCK_N]; /* with factors, of all stretches so far */
//$ end
};

/* Add the partial sums, which end before k, and begin new ones. */
static void promote(struct sums *s, const struct product *p, const struct stretch *t, long long k)
{
    float a[BLOCK_M], b[BLOCK_N];

    (void)p, (void)t, (void)k;
//$ if gathers and weighs(a) then
    for (int r = 0; r < s->rows; r++) {
        const int row = row_of_a(t, s->m + r);

        a[r] = row < 0 ? 0 : scale_a(t->a.sf, &t->a.scales, row, k - 1);
    }
//$ else
    for (int r = 0; r < s->rows; r++)
        a[r] = $(weighs(a) and "scale_a(t->a.sf, &t->a.scales, s->m + r, k - 1)" or "1");
//$ end
    for (int j = 0; j < s->columns; j++)
//$ local row = follows and "row_of_b(p, s->n + j)" or "s->n + j"
        b[j] = $(weighs(b) and "scale_b(t->b.sf, &t->b.scales, " .. row .. ", k - 1)" or "1");
    for (int r = 0; r < s->rows; r++)
        for (int j = 0; j < s->columns; j++)
            s->whole[r][j] += (a[r] * b[j]) * (float)s->part[j / TILE_N][r][j % TILE_N];
    __builtin_memset(s->part, 0, sizeof s->part);
}

/* Factors of whole sums, the first or another. Without tokens there need be no scales. */
static void weigh(struct sums *s, const struct product *p, const struct stretch *t, int first)
{
    float b[BLOCK_N];

    (void)p;
    for (int j = 0; j < s->columns; j++)
//$ if factors(b) then
        b[j] = t->k ? scale_b(t->b.sf, &t->b.scales, $(row), 0) : 1;
//$ else
        b[j] = t->b.global;
//$ end
    for (int r = 0; r < s->rows; r++) {
//$ if factors(a) and gathers then
        const int row = row_of_a(t, s->m + r);
        const float a = t->k && row >= 0 ? scale_a(t->a.sf, &t->a.scales, row, 0) : 1;
//$ elseif factors(a) then
        const float a = t->k ? scale_a(t->a.sf, &t->a.scales, s->m + r, 0) : 1;
//$ else
        const float a = t->a.global;
//$ end

        for (int j = 0; j < s->columns; j++) {
            const float sum = (a * b[j]) * s->whole[r][j];
            s->total[r][j] = first ? sum : s->total[r][j] + sum;
        }
    }
    __builtin_memset(s->whole, 0, sizeof s->whole);
}

/* $(follows and "The code below the sums" or "Alpha, beta, and the rounding"). */
static void store_block(const struct sums *s, const struct product *p)
{
//$ local sum = apart and "total" or "whole"
//$ if back then
    follow_block(&p->back, s->$(sum)[0], BLOCK_N, s->m, s->n, s->rows, s->columns);
//$ else
    for (int r = 0; r < s->rows; r++) {
//$ if follows then
        follow_row(&p->follow, s->$(sum)[r], s->m + r, s->n, s->columns);
//$ else
        const long long row = s->m + r;
        d_element *const d = row_of_d(p, s->m + r);

        for (int j = 0; d && j < s->columns; j++)
            d[s->n + j] = finish(p, s->$(sum)[r][j], p->c ? p->c + row * p->c_row + s->n + j : 0);
//$ end
    }
//$ end
}

/* Add one stretch of k. */
static void add_stretch(struct sums *s, const struct product *p, const struct stretch *t)
{
    term a[BLOCK_M][TILE_K], b[TILE_K][TILE_N];

    for (long long k = 0; k < t->k; k += TILE_K) {
        const int steps = t->k - k < TILE_K ? (int)(t->k - k) : TILE_K;
        pack_a(a, p, t, s->m, k, s->rows, steps);
        for (int j = 0; j < s->columns; j += TILE_N) {
            const int width = s->columns - j < TILE_N ? s->columns - j : TILE_N;
            pack_b(b, p, t, s->n + j, k, width, steps);
            for (int r = 0; r < s->rows; r += TILE_M)
                p->run(s->part[j / TILE_N] + r, a + r, b, steps);
        }
        if (k + steps == t->k || (CHUNK && (k + steps) % CHUNK == 0))
            promote(s, p, t, k + steps);
    }
}

/* Up to BLOCK_M x BLOCK_N elements of d, from d[m,n] on. */
static void multiply_block(const struct product *p, int m, int n)
{
    struct sums s = {
        .m = m,
        .n = n,
        .rows = p->m - m < BLOCK_M ? p->m - m : BLOCK_M,
        .columns = p->n - n < BLOCK_N ? p->n - n : BLOCK_N,
    };

    for (int i = 0; i < p->stretches; i++) {
        add_stretch(&s, p, &p->stretch[i]);
//$ if apart then
        weigh(&s, p, &p->stretch[i], i == 0);
//$ end
    }
    store_block(&s, p);
}

//$ if copies then
//$ include "host/gemm_copies.c"

//$ end
//$ include "host/gemm_group.c"

/* The next group of one product: where it is among the tokens, and in its copies. */
static void next_group(struct scale_group *g, const struct microbatch *part, int group, int groups)
{
    const unsigned int total = (unsigned int)part->k;

    g->number = group;
    g->first += (g->length + ALIGNED - 1) / ALIGNED;
    g->start = part->offsets ? cut_to_rows(size_at(part->offsets, part->sizes_bytes, group), total)
                             : g->start + g->length;
    g->length = cut_to_rows(group_length(part->first_dims, part->offsets, part->sizes_bytes, group),
                            total - (unsigned int)g->start);
    if (g->first + (g->length + ALIGNED - 1) / ALIGNED >
        (total + (ALIGNED - 1ll) * groups) / ALIGNED)
        g->length = 0; /* groups that overlap have no copy */
}

/* Worker `worker` of `workers`. */
void $(name)(void *const *params, int worker, int workers)
{
    //$ include "host/params.c"
    /* Without merging there is one part, as the other parameters say. */
    const struct microbatch whole = { .a = a, .b = b, .first_dims = first_dims, .offsets = offsets,
                                .a_sf = a_sf, .b_sf = b_sf, .a_global = a_global,
                                .b_global = b_global, .a_stride = a_stride,
                                .b_stride = b_stride, .a_sf_stride = a_sf_stride,
                                .b_sf_stride = b_sf_stride, .sizes_bytes = sizes_bytes,
                                .k = $(ragged == "k" and "k" or "m") };
    const struct microbatch *const part = microbatch_count ? microbatches->part : &whole;
    const int count = microbatch_count ? microbatch_count : 1;
    struct scale_group g[MICROBATCHES];
//$ if copies then
    struct result result = {
        .w = { .input = IN_$(d.type == "bf16" and "BF16" or d.type == "f16" and "F16" or "F32"),
               .row = { d, d_stride, (sf_element *)row_sf },
               .column = { column, column_stride, (sf_element *)column_sf },
               //$ local half = back and "n * 2" or "n / 2"
               .all = { m, GATED >> activation & 1 ? $(half) : n, groups } },
    };
//$ end
    long long next = 0;
//$ if gathers then
    const struct scale_group all_tokens = { .length = tokens, .k = k }; /* of a, in order */
//$ end
//$ for _, x in ipairs { "a", "b" } do
    term $(x)_values[256];
//$ end

    //$ include "common/noop.c"
//$ for _, x in ipairs { "a", "b" } do
//$   if all[x].bits <= 8 then
    for (unsigned code = 0; code < $(all[x].bits == 4 and 16 or 256); code++)
//$     local zero = all[x].scale and all[x].scale.zeros and ", 0" or all[x].zero
        $(x)_values[code] = (term)from_$(all[x].type)(code$(zero));
//$   end
//$ end
    for (int i = 0; i < count && worker == 0; i++)
        if (check_sizes(part[i].first_dims, part[i].offsets, part[i].sizes_bytes, groups,
                        (unsigned int)part[i].k, error)) {
            error[4] = (unsigned int)i;
            break;
        }
    for (int i = 0; i < count; i++)
        g[i] = (struct scale_group){ .k = k };
    for (int i = 0; i < groups; i++) {
        for (int j = 0; j < count; j++)
            next_group(&g[j], &part[j], i, groups);
//$ if follows or back then
        const long long start = g[0].start;
//$ end
        struct product p = {
            .m = $(ragged == "k" and "m" or "(int)g[0].length"),
//$ if follows then
            //$ include "host/gemm_follow.c"
//$ elseif back then
            .n = n,
            //$ include "host/gemm_back.c"
//$ else
            .n = n,
//$ for _, x in ipairs { "c", "d" } do
//$   local pitch = ragged == "k" and "" or " + g[0].start * " .. x .. "_stride"
            .$(x) = place($(x), (const void *const *)$(x)_pointers, i,
                       i * $(x)_group_stride$(pitch), sizeof(d_element)),
//$ end
            .c_row = c_stride,
            .d_row = d_stride,
            .alpha = alpha ? alpha + i * scalar_step : 0,
            .beta = beta ? beta + i * scalar_step : 0,
            .scatter = scatter ? scatter + g[0].start : 0,
            .addresses = addresses,
            .first = d,
            .all_rows = m,
//$ end
            .stretches = count,
            .a_values = a_values,
            .b_values = b_values,
            .run = choose_run(),
        };
//$ if follows then
        p.n = count_places(&p.follow);
//$ end
        for (int j = 0; j < count; j++) {
            const struct microbatch *const of = &part[j];
            struct stretch *const t = &p.stretch[j];

//$ if ragged == "k" then
            /* After its end zeros, or their transform. */
            t->k = (int)round_up(g[j].length, ALIGNED);
//$ else
            t->k = k;
//$ end
//$ if gathers then
            t->rows = (struct rows){ gather ? gather + g[j].start : 0, topk, tokens };
//$ end
            p.k += t->k;
//$ for _, x in ipairs { "a", "b" } do
//$   local o = all[x]
            t->$(x) = (struct operand){
                .data = of->$(x),
//$   if ragged == "k" then
                .first = g[j].first * ALIGNED,
//$   elseif x == "a" and gathers then
                .first = gather ? 0 : g[j].start * a_stride,
//$   elseif x == "a" then
                .first = g[j].start * a_stride,
//$   else
                .first = i * b_group_stride,
//$   end
                .stride = of->$(x)_stride,
                .sf = of->$(x)_sf,
                .global = $(o.scale and o.scale.global and "of->" .. x .. "_global[i]" or "1"),
            };
//$   if x == "a" and gathers then
            t->a.scales = place_a(gather ? &all_tokens : &g[j], m, of->a_sf_stride,
                                  a_sf_group_stride);
//$   elseif o.scale then
            t->$(x).scales = place_$(x)(&g[j], $(x == "a" and "m" or "n"), of->$(x)_sf_stride,
                                   $(x)_sf_group_stride);
//$   end
//$ end
        }
//$ if copies then
        result.g = (struct group){ i, (unsigned int)start, p.m, (int)g[0].first };
        p.result = &result;
//$ end
//$ if gathers then
        if (worker == 0 && gather)
            check_rows(&p.stretch[0].rows, (unsigned int)g[0].start, p.m, error);
//$ end
        multiply_group(&p, &next, worker, workers);
    }
}
