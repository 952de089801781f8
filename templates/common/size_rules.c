//$ -- SPDX-License-Identifier: Apache-2.0
//$ local fn = arch == "host" and "static" or "FN"
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
