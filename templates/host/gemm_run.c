//$ -- SPDX-License-Identifier: Apache-2.0
/* sum[r][j] += a[r][i] * b[i][j] over a run of k, in order. */
typedef void run_function(term sum[TILE_M][TILE_N], term a[TILE_M][TILE_K],
                          term b[TILE_K][TILE_N], int steps);

//$ for _, version in ipairs { { "plain", 4 }, { "avx2", 8 }, { "avx512f", 16 } } do
//$   local target, width = version[1], version[2]
//$   if target == "avx2" then
#ifdef __x86_64__
//$   end
//$   if target ~= "plain" then
__attribute__((target("$(target)")))
//$   end
static void run_$(target)(term sum[TILE_M][TILE_N], term a[TILE_M][TILE_K],
                          term b[TILE_K][TILE_N], int steps)
{
    typedef term vector __attribute__((vector_size(4 * $(width)), aligned(4), may_alias));
    vector kept[TILE_M][TILE_N / $(width)]; /* in registers */

    __builtin_memcpy(kept, sum, sizeof kept);
    for (int i = 0; i < steps; i++)
#pragma GCC unroll 8
        for (int j = 0; j < TILE_N / $(width); j++)
#pragma GCC unroll 8
            for (int r = 0; r < TILE_M; r++)
                kept[r][j] += a[r][i] * *(const vector *)&b[i][j * $(width)];
    __builtin_memcpy(sum, kept, sizeof kept);
}

//$ end
#endif

static run_function *choose_run(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return run_avx512f;
    if (__builtin_cpu_supports("avx2"))
        return run_avx2;
#endif
    return run_plain;
}
