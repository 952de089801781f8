/* SPDX-License-Identifier: Apache-2.0 */
/* zeros.c: zero points of integers of 4 bits: one for all, which needs no
   memory, or one next to each scale. */
#include "pack/format.h"

#include "base/error.h"

#include <stdlib.h>

enum { CHUNK = 1 << 20, MIDDLE = 8 };

/* How much elements are less than zero points. */
static int less_of(const struct qn_checkpoint *c,
                   const struct qn_format *format)
{
    return c->zeros_as_they_are ? 0 : format->less;
}

int qn_zeros_add(struct qn_pack *pack, struct qn_format_piece *p,
                 struct qn_checkpoint_tensor *zeros,
                 struct qn_pack_layout layout)
{
    const int less = less_of(pack->checkpoint, pack->format);
    const int zero = qn_weight_zero(pack, &p->flip);

    if (zero >= 0)
        return qn_pack_check_zeros(pack, zeros, zero - less);
    p->zeros = zeros;
    p->zero = layout;
    p->zero_add = (unsigned)less;
    return less ? qn_pack_check_more_zeros(pack, zeros) : QUERN_OK;
}

int qn_zeros_none(struct qn_pack *pack, struct qn_format_piece *p)
{
    const int zero = qn_weight_zero(pack, &p->flip);

    if (zero == MIDDLE)
        return QUERN_OK;
    return qn_checkpoint_wrong(
        pack->checkpoint, p->codes,
        "without zero points the code of 0 is 8, and "
        "recipe %s %s; --recipe names another one, such "
        "as w4a16_int4",
        pack->recipe, zero < 0 ? "stores zero points" : "has another one");
}

/* Are all of them the code in the middle? */
static int are_same(const struct qn_checkpoint *c,
                    const struct qn_checkpoint_tensor *zeros, int code,
                    unsigned char *chunk, int *same)
{
    const uint64_t bytes = zeros->t->bytes;
    int error = QUERN_OK;

    *same = 1;
    for (uint64_t at = 0; at < bytes && *same && !error; at += CHUNK) {
        const size_t count = bytes - at < CHUNK ? bytes - at : CHUNK;

        error = qn_checkpoint_read(c, zeros, at, chunk, count);
        for (size_t i = 0; i < count && !error && *same; i++)
            *same = chunk[i] == code * 0x11;
    }
    return error;
}

int qn_zeros_recipe(const struct qn_checkpoint *c,
                    const struct qn_format *format, const char **recipe)
{
    const int code = MIDDLE - less_of(c, format);
    unsigned char *chunk = format->zeros ? malloc(CHUNK) : NULL;
    int error = chunk || !format->zeros ? QUERN_OK : qn_error_memory();
    int same = 1;

    for (int i = 0; chunk && i < c->count && same && !error; i++)
        if (qn_expert_has(c->tensors[i].t->name, format->zeros))
            error = are_same(c, &c->tensors[i], code, chunk, &same);
    free(chunk);
    *recipe = same ? format->recipe : format->stored;
    return error;
}
