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
