/*
** Group sizes as the caller gave them: never trusted, so each is cut to the rows of the buffer
** before the first address is formed from it. `bytes` is 4 or 8, for int32 or int64 arrays.
*/
//$ local fn = arch == "host" and "static" or "DEVICE"
$(fn) long long size_at(const void *sizes, int bytes, int i)
{
    return bytes == 8 ? ((const long long *)sizes)[i] : ((const int *)sizes)[i];
}

$(fn) long long group_length(const void *first_dims, const void *offsets, int bytes, int group)
{
    if (first_dims)
        return size_at(first_dims, bytes, group);
    /* Unsigned: a lying pair of offsets may be any two numbers. */
    return (long long)((unsigned long long)size_at(offsets, bytes, group + 1) -
                       (unsigned long long)size_at(offsets, bytes, group));
}

$(fn) unsigned int cut_to_rows(long long value, unsigned int rows)
{
    return value < 0 ? 0 : value > (long long)rows ? rows : (unsigned int)value;
}

enum { SIZE_NEGATIVE = 1, SIZE_PAST_END = 2, SIZE_OVERLAP = 3 }; /* COUPLED: errors */

/* The rule that a group breaks, 0 if none; groups before it end at `end`. */
$(fn) int size_error(long long start, long long length, unsigned int end, unsigned int rows)
{
    if (length < 0 || start < 0)
        return SIZE_NEGATIVE;
    if (start > (long long)rows || length > (long long)rows - start)
        return SIZE_PAST_END;
    /* An empty group overlaps nothing, wherever it starts. */
    return length > 0 && start < (long long)end ? SIZE_OVERLAP : 0;
}

/* Record the first group that breaks a rule: code, group, low and high word of the value. */
$(fn) void check_sizes(const void *first_dims, const void *offsets, int bytes, int groups,
                       unsigned int rows, unsigned int *error)
{
    unsigned int end = 0;

    for (int group = 0; group < groups; group++) {
        const long long length = group_length(first_dims, offsets, bytes, group);
        const long long start = offsets ? size_at(offsets, bytes, group) : (long long)end;
        const int code = size_error(start, length, end, rows);
        if (code) {
            const long long value = code == SIZE_OVERLAP || start < 0 ? start : length;
            error[1] = (unsigned int)group;
            error[2] = (unsigned int)value;
            error[3] = (unsigned int)((unsigned long long)value >> 32);
            error[0] = (unsigned int)code;
            return;
        }
        if (length > 0)
            end = (unsigned int)(start + length);
    }
}
