//$ -- SPDX-License-Identifier: Apache-2.0
//$ local fn = arch == "host" and "static" or "FN"
/* Record the first pair that names no expert. */
$(fn) void report(const struct route *r, unsigned int pair, unsigned int *error)
{
    const unsigned long long value = (unsigned long long)index_at(r, (int)pair);

    error[1] = pair;
    error[2] = (unsigned int)value;
    error[3] = (unsigned int)(value >> 32);
    error[0] = INDEX_ERROR;
}

/* The same if a chunk has one. */
$(fn) void report_first(const struct route *r, const unsigned int *counters, int chunks,
                        unsigned int *error)
{
    for (int i = 0; i < chunks; i++) {
        const unsigned int pair = counters[i * (r->groups + 1) + r->groups];

        if (pair == ~0u)
            continue;
        report(r, pair, error);
        return;
    }
}
