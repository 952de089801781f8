/* SPDX-License-Identifier: Apache-2.0 */
/* region.c: the memory of a run, to check that outputs overlap nothing
   else. */
#include "base/region.h"
#include "base/error.h"

#include <stdint.h>

/* Unsigned differences cannot overflow: that from the higher address to the
   lower is larger than any region. */
int qn_region_meets(const struct qn_region *a, const struct qn_region *b)
{
    const uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;

    return (y - x < a->bytes || x - y < b->bytes) && x && y && a->bytes &&
           b->bytes;
}

/* Two names of one address, with the same content. */
static int are_same(const struct qn_region *a, const struct qn_region *b)
{
    return a->alike && a->alike == b->alike &&
           (a->alike < 0 || a->data == b->data);
}

int qn_region_check(const struct qn_region *list, int count)
{
    for (int i = 0; i < count; i++) {
        if (!list[i].written || !list[i].data)
            continue;
        for (int j = 0; j < count; j++)
            if (j != i && qn_region_meets(&list[i], &list[j]) &&
                !are_same(&list[i], &list[j]))
                return qn_error_set(QUERN_EINVAL, "%s overlaps %s",
                                    list[i].name, list[j].name);
    }
    return QUERN_OK;
}

/* The matrix of a group; no data where it is not used. */
static struct qn_region matrix_at(const struct qn_matrices *m, int group,
                                  const unsigned char *rows)
{
    const int used = m->all || rows[group];

    return (struct qn_region){m->name, used ? m->pointers[group] : NULL,
                              m->bytes, m->written, m->alike};
}

static int check_matrices(const struct qn_matrices *m, int groups,
                          const unsigned char *rows)
{
    for (int g = 0; g < groups; g++) {
        if ((m->all || rows[g]) && !m->pointers[g])
            return qn_error_set(QUERN_EINVAL,
                                "%s.pointers[%d] is NULL: group %d needs its "
                                "matrix",
                                m->name, g, g);
        if ((uintptr_t)matrix_at(m, g, rows).data % m->alignment)
            return qn_error_set(QUERN_EINVAL,
                                "%s.pointers[%d] is %p: the matrix of group %d "
                                "must be at a multiple of %zu",
                                m->name, g, m->pointers[g], g, m->alignment);
    }
    return QUERN_OK;
}

/* A written matrix, and the matrices of one operand. */
static int check_apart(const struct qn_region *x, int group,
                       const struct qn_matrices *m, int groups,
                       const unsigned char *rows)
{
    for (int g = 0; g < groups; g++) {
        const struct qn_region y = matrix_at(m, g, rows);

        if (g == group && (x->name == y.name || are_same(x, &y)))
            continue;
        if (qn_region_meets(x, &y))
            return qn_error_set(QUERN_EINVAL,
                                "%s.pointers[%d] overlaps %s.pointers[%d]",
                                x->name, group, y.name, g);
    }
    return QUERN_OK;
}

int qn_region_matrices(const struct qn_matrices *list, int count, int groups,
                       const unsigned char *rows,
                       const struct qn_region *regions, int nregions)
{
    int code = QUERN_OK;

    for (int i = 0; i < count && !code; i++)
        code = check_matrices(&list[i], groups, rows);
    for (int i = 0; i < count && !code; i++)
        for (int g = 0; g < groups && !code; g++) {
            const struct qn_region x = matrix_at(&list[i], g, rows);

            for (int j = 0; j < nregions; j++)
                if ((x.written || regions[j].written) &&
                    qn_region_meets(&x, &regions[j]))
                    return qn_error_set(QUERN_EINVAL,
                                        "%s.pointers[%d] overlaps %s", x.name,
                                        g, regions[j].name);
            for (int j = 0; j < count && x.written && !code; j++)
                code = check_apart(&x, g, &list[j], groups, rows);
        }
    return code;
}
