//$ -- SPDX-License-Identifier: Apache-2.0
/* One group's matrix: allocated separately, or `bytes` after the one of the group before. */
FN const void *matrix_of(const void *first, const void *const *pointers, long long bytes,
                         int group)
{
    return pointers ? pointers[group] : (const char *)first + group * bytes;
}
