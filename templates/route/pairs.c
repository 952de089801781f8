//$ -- SPDX-License-Identifier: Apache-2.0
//$ local fn = arch == "host" and "static" or "FN"
enum { MOST_GROUPS = 1024, NO_ROW = -1, BAD_INDEX = -2, INDEX_ERROR = 4 /* COUPLED: errors */ };
enum { MOST_CHUNKS = 256, LEAST = 1024, ALIGN = 256 }; /* COUPLED: chunks */

/* The experts of a run's pairs, token by token, and which of them are here. */
struct route {
    const void *index;
    int bytes; /* 8: int64, else int32 */
    int pairs, first, groups, experts;
};

$(fn) long long index_at(const struct route *r, int pair)
{
    return r->bytes == 8 ? ((const long long *)r->index)[pair] : ((const int *)r->index)[pair];
}

/* The group of a pair; NO_ROW: of another rank or dropped, BAD_INDEX: of no expert. */
$(fn) int group_of(const struct route *r, int pair)
{
    const long long expert = index_at(r, pair);

    if (expert > r->experts)
        return BAD_INDEX;
    return expert < r->first || expert >= r->first + r->groups ? NO_ROW : (int)expert - r->first;
}

//$ if arch ~= "host" then
enum { TOGETHER = 4 }; /* pairs of a thread whose experts are read together */

/* The groups of a thread's pairs i, i + step, .. before `end`; NO_ROW for those after. */
$(fn) void groups_of(const struct route *r, int i, int step, int end, int group[TOGETHER])
{
#pragma unroll
    for (int j = 0; j < TOGETHER; j++)
        group[j] = i + j * step < end ? group_of(r, i + j * step) : NO_ROW;
}

//$ end
/* Chunks that `workers` count, the same in both launches. */
$(fn) int count_chunks(int pairs, int workers)
{
    const int most = workers < MOST_CHUNKS ? workers : MOST_CHUNKS;
    const int whole = (pairs + LEAST - 1) / LEAST;

    return whole < 1 ? 1 : whole < most ? whole : most;
}

/* The first pair of a chunk; that of the one after the last is `pairs`. */
$(fn) int chunk_begin(int pairs, int chunks, int chunk)
{
    const int each = (pairs + chunks - 1) / chunks;
    const long long begin = (long long)chunk * ((each + ALIGN - 1) / ALIGN * ALIGN);

    return begin < pairs ? (int)begin : pairs;
}
