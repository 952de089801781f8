/*
** d = alpha * a * b^T + beta * c for each group, on the host, of quantized copies.
**
**   a  $(a.type) [m, k], b $(b.type) [n, k], contiguous along k
**   d  $(d.type) [m, n], contiguous along n; c the same, or null for none
**
//$ if ragged == "k" then
** Groups split k: the tokens of both column copies, where each group begins at a multiple of 128.
//$ else
** Groups split the rows of a, d and c; b has a matrix for each group.
//$ end
//$ -- What a scale becomes follows from what shares it and how it is stored.
//$ local function of_block(o) return o.scale and o.scale.span == "block" end
//$ local function expands(o) return of_block(o) and o.scale.type ~= "f32" end
//$ local function weighs(o) return of_block(o) and o.scale.type == "f32" end
//$ local function factors(o) return o.scale and not of_block(o) end
//$ local function gcd(x, y) while y > 0 do x, y = y, x % y end return x end
//$ local integers = a.type == "i8" and b.type == "i8" and not expands(a) and not expands(b)
//$ local chunk = integers and promote == 0 and 131072 or promote
//$ for _, o in ipairs { a, b } do
//$   if weighs(o) then chunk = gcd(chunk, o.scale.k) end
//$ end
//$ local run = chunk > 0 and gcd(chunk, 128) or 128
//$ local all = { a = a, b = b }
//$ for _, x in ipairs { "a", "b" } do
//$   if not all[x].scale then
**   $(x)  has no scales: its values are summed as they are
//$   elseif expands(all[x]) then
**   $(x)  is expanded: value * scale, rounded to bf16, is what is summed
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
** At the end (factor of a * factor of b) * sum, alpha, + beta * c, and one rounding to the type of
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
    BLOCK_M = 16 * TILE_M, /* what one worker computes at a time */
    BLOCK_N = 4 * TILE_N,
    ALIGNED = 128 /* a group's tokens begin at multiples of it in column copies */
};
typedef $(codes[a.type] or "unsigned char") a_element;
typedef $(codes[b.type] or "unsigned char") b_element;
typedef $(storage[d.type]) d_element;
typedef $(integers and "int" or "float") term; /* of a sum */

//$ include "common/sizes.c"

//$ include "common/check_sizes.c"

//$ once "cast/arith.c"
//$ for _, o in ipairs { a, b } do
//$   once("cast/from_" .. o.type .. ".c")
//$   if o.scale then
//$     once("cast/from_" .. o.scale.type .. ".c")
//$   end
//$ end
//$ if expands(a) or expands(b) then
//$   once "cast/to_bf16.c"
//$   once "cast/from_bf16.c"
//$ end
//$ include("host/load_" .. d.type .. ".c")

//$ include("host/store_" .. d.type .. ".c")

//$ include "host/gemm_run.c"

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

/* One group's product. */
struct product {
    int m, n, k;
    struct operand a, b;
    const d_element *c; /* or null */
    d_element *d;
    long long c_row, d_row;
    const float *alpha, *beta; /* null for 1 */
    const term *a_values, *b_values; /* of each code */
    run_function *run;
};

//$ include "host/gemm_finish.c"

//$ for _, x in ipairs { "a", "b" } do
//$   local o, s = all[x], all[x].scale
/* Element (row, k). */
FN term value_$(x)(const struct product *p, long long row, long long k)
{
    const long long at = p->$(x).first + row * p->$(x).stride + k;
    const $(x)_element *const data = p->$(x).data;

//$   if o.bits == 4 then
    return p->$(x)_values[data[at / 2] >> at % 2 * 4 & 15];
//$   elseif o.bits <= 8 then
    return p->$(x)_values[data[at]];
//$   else
    return from_$(o.type)(data[at]);
//$   end
}

/* `steps` summands of a row from (row, k) on, `apart` from one to the next. */
FN void load_run_$(x)(const struct product *p, term *out, int apart, long long row, long long k,
                   int steps)
{
//$   if expands(o) then
    float scale = 0;

    for (int i = 0; i < steps; i++) {
        if (i == 0 || (k + i) % $(s.k) == 0)
            scale = scale_$(x)(p->$(x).sf, &p->$(x).scales, row, k + i);
        out[i * apart] = from_bf16(to_bf16(mul_rn(value_$(x)(p, row, k + i), scale)));
    }
//$   else
    for (int i = 0; i < steps; i++)
        out[i * apart] = value_$(x)(p, row, k + i);
//$   end
}

//$ end
/* Rows of a, a run of k each, one behind the other; rows that are missing are zero. */
static void pack_a(term packed[BLOCK_M][TILE_K], const struct product *p, int m, long long k,
                   int rows, int steps)
{
    for (int r = 0; r < rows; r++)
        load_run_a(p, packed[r], 1, m + r, k, steps);
    for (int r = rows; r % TILE_M; r++)
        for (int i = 0; i < steps; i++)
            packed[r][i] = 0;
}

/* Rows of b, a run of k each, side by side; rows that are missing are zero. */
static void pack_b(term packed[TILE_K][TILE_N], const struct product *p, int n, long long k,
                   int rows, int steps)
{
    for (int r = 0; r < rows; r++)
        load_run_b(p, &packed[0][r], TILE_N, n + r, k, steps);
    for (int i = 0; i < steps; i++)
        for (int r = rows; r < TILE_N; r++)
            packed[i][r] = 0;
}

/* Sums of up to BLOCK_M x BLOCK_N elements of d. */
struct sums {
    int m, n, rows, columns; /* the block */
    term part[BLOCK_N / TILE_N][BLOCK_M][TILE_N];
    float whole[BLOCK_M][BLOCK_N];
};

/* Add the partial sums, which end before k, and begin new ones. */
static void promote(struct sums *s, const struct product *p, long long k)
{
    float a[BLOCK_M], b[BLOCK_N];

    (void)p, (void)k;
    for (int r = 0; r < s->rows; r++)
        a[r] = $(weighs(a) and "scale_a(p->a.sf, &p->a.scales, s->m + r, k - 1)" or "1");
    for (int j = 0; j < s->columns; j++)
        b[j] = $(weighs(b) and "scale_b(p->b.sf, &p->b.scales, s->n + j, k - 1)" or "1");
    for (int r = 0; r < s->rows; r++)
        for (int j = 0; j < s->columns; j++)
            s->whole[r][j] += (a[r] * b[j]) * (float)s->part[j / TILE_N][r][j % TILE_N];
    __builtin_memset(s->part, 0, sizeof s->part);
}

/* Factors of whole sums, alpha, beta, and the rounding. Of no tokens there need be no scales. */
static void store_block(const struct sums *s, const struct product *p)
{
    float b[BLOCK_N];

    for (int j = 0; j < s->columns; j++)
//$ if factors(b) then
        b[j] = p->k ? scale_b(p->b.sf, &p->b.scales, s->n + j, 0) : 1;
//$ else
        b[j] = p->b.global;
//$ end
    for (int r = 0; r < s->rows; r++) {
        const long long row = s->m + r;
//$ if factors(a) then
        const float a = p->k ? scale_a(p->a.sf, &p->a.scales, row, 0) : 1;
//$ else
        const float a = p->a.global;
//$ end

        for (int j = 0; j < s->columns; j++)
            p->d[row * p->d_row + s->n + j] =
                finish(p, (a * b[j]) * s->whole[r][j],
                       p->c ? p->c + row * p->c_row + s->n + j : 0);
    }
}

/* Up to BLOCK_M x BLOCK_N elements of d, from d[m,n] on. */
static void multiply_block(const struct product *p, int m, int n)
{
    term a[BLOCK_M][TILE_K], b[TILE_K][TILE_N];
    struct sums s = {
        .m = m,
        .n = n,
        .rows = p->m - m < BLOCK_M ? p->m - m : BLOCK_M,
        .columns = p->n - n < BLOCK_N ? p->n - n : BLOCK_N,
    };

    for (long long k = 0; k < p->k; k += TILE_K) {
        const int steps = p->k - k < TILE_K ? (int)(p->k - k) : TILE_K;
        pack_a(a, p, m, k, s.rows, steps);
        for (int j = 0; j < s.columns; j += TILE_N) {
            const int width = s.columns - j < TILE_N ? s.columns - j : TILE_N;
            pack_b(b, p, n + j, k, width, steps);
            for (int r = 0; r < s.rows; r += TILE_M)
                p->run(s.part[j / TILE_N] + r, a + r, b, steps);
        }
        if (k + steps == p->k || (CHUNK && (k + steps) % CHUNK == 0))
            promote(&s, p, k + steps);
    }
    store_block(&s, p);
}

//$ include "host/gemm_group.c"

/* Worker `worker` of `workers`. */
void $(name)(void *const *params, int worker, int workers)
{
//$ for _, p in ipairs(params) do
    $(p.type) const $(p.name) UNUSED = *($(p.type) const *)params[$(p.index)];
//$ end
    const unsigned int total = (unsigned int)$(ragged == "k" and "k" or "m");
    struct scale_group g = { .k = k };
    long long next = 0;
//$ for _, x in ipairs { "a", "b" } do
    term $(x)_values[256];
//$ end

//$ for _, x in ipairs { "a", "b" } do
//$   if all[x].bits <= 8 then
    for (unsigned code = 0; code < $(all[x].bits == 4 and 16 or 256); code++)
        $(x)_values[code] = (term)from_$(all[x].type)(code);
//$   end
//$ end
    if (worker == 0)
        check_sizes(first_dims, offsets, sizes_bytes, groups, total, error);
    for (int i = 0; i < groups; i++) {
        g.number = i;
        g.first += (g.length + ALIGNED - 1) / ALIGNED;
        g.start = offsets ? cut_to_rows(size_at(offsets, sizes_bytes, i), total)
                          : g.start + g.length;
        g.length = cut_to_rows(group_length(first_dims, offsets, sizes_bytes, i),
                               total - (unsigned int)g.start);
        if (g.first + (g.length + ALIGNED - 1) / ALIGNED >
            (total + (ALIGNED - 1ll) * groups) / ALIGNED)
            g.length = 0; /* groups that overlap have no copy */
        struct product p = {
//$ if ragged == "k" then
            .m = m,
            .k = (int)round_up(g.length, ALIGNED), /* zeros, or what a transform made of them */
//$ else
            .m = (int)g.length,
            .k = k,
//$ end
            .n = n,
//$ for _, x in ipairs { "a", "b" } do
//$   local o = all[x]
            .$(x) = {
                .data = $(x),
//$   if ragged == "k" then
                .first = g.first * ALIGNED,
//$   elseif x == "a" then
                .first = g.start * a_stride,
//$   else
                .first = i * b_group_stride,
//$   end
                .stride = $(x)_stride,
                .sf = $(x)_sf,
                .global = $(o.scale and o.scale.global and x .. "_global[i]" or "1"),
            },
//$ end
//$ for _, x in ipairs { "c", "d" } do
//$   local pitch = ragged == "k" and "" or " + g.start * " .. x .. "_stride"
            .$(x) = place($(x), (const void *const *)$(x)_pointers, i,
                       i * $(x)_group_stride$(pitch), sizeof(d_element)),
//$ end
            .c_row = c_stride,
            .d_row = d_stride,
            .alpha = alpha ? alpha + i * scalar_step : 0,
            .beta = beta ? beta + i * scalar_step : 0,
            .a_values = a_values,
            .b_values = b_values,
            .run = choose_run(),
        };
//$ for _, x in ipairs { "a", "b" } do
//$   if all[x].scale then
        p.$(x).scales = place_$(x)(&g, $(x == "a" and "m" or "n"), $(x)_sf_stride,
                               $(x)_sf_group_stride);
//$   end
//$ end
        multiply_group(&p, &next, worker, workers);
    }
}
