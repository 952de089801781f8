//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Group sizes as the caller gave them: never trusted, so each is cut to the rows of the buffer
** before the first address is formed from it. `bytes` is 4 or 8, for int32 or int64 arrays; less
** than 0 where offsets are inclusive sums: then entry i of the starts is entry i - 1, the first 0.
*/
//$ local fn = arch == "host" and "static" or "FN"
$(fn) long long size_at(const void *sizes, int bytes, int i)
{
    if (bytes < 0 && --i < 0)
        return 0;
    return bytes % 8 == 0 ? ((const long long *)sizes)[i] : ((const int *)sizes)[i];
}

$(fn) long long group_length(const void *first_dims, const void *offsets, int bytes, int group)
{
    if (first_dims)
        return size_at(first_dims, bytes, group);
    /* Unsigned: a stored pair of offsets may be any two values. */
    return (long long)((unsigned long long)size_at(offsets, bytes, group + 1) -
                       (unsigned long long)size_at(offsets, bytes, group));
}

$(fn) unsigned int cut_to_rows(long long value, unsigned int rows)
{
    return value < 0 ? 0 : value > (long long)rows ? rows : (unsigned int)value;
}
