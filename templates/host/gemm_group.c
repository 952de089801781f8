//$ -- SPDX-License-Identifier: Apache-2.0
//$ local copies = epilogue == "copies" or epilogue == "gradient_copies"
//$ local adds = epilogue ~= "activate" and epilogue ~= "gradient" and not copies
/*
** Deal out the blocks of a group to the workers; `next` counts those of all groups.
//$ if adds then
** If nothing is added, d stays the same to the bit.
//$ end
*/
static void multiply_group(const struct product *p, long long *next, int worker, int workers)
{
//$ if adds then
    if (p->k == 0 && p->c == p->d && !p->beta)
        return;
//$ end
//$ if copies then
//$ local results = epilogue == "copies" and "p->follow.results" or "width_of(&p->back)"
    for (int m = 0; m < p->m; m += TILE)
        for (int n = 0; n < $(results); n += TILE)
            if ((*next)++ % workers == worker)
                quantize_tile(p, m, n);
//$ else
    for (long long m = 0; m < p->m; m += BLOCK_M)
        for (long long n = 0; n < p->n; n += BLOCK_N)
            if ((*next)++ % workers == worker)
                multiply_block(p, (int)m, (int)n);
//$ end
}

/*
** The start of a group's operand: a matrix of its own, or `elements` into the one buffer.
** Null stays null.
*/
static void *place(const void *data, const void *const *pointers, int group, long long elements,
                   int bytes)
{
    if (pointers)
        return (void *)pointers[group];
    return data ? (char *)data + elements * bytes : 0;
}
