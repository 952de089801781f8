/* SPDX-License-Identifier: Apache-2.0 */
/* rebased.c: MXFP4 for a recipe that multiplies weights as e4m3, relative to
   the largest scale within 128 values of k: it must hold each value. */
#include "pack/pack.h"

#include "base/error.h"

#include <stdlib.h>

enum {
    CHUNK = 1 << 20,
    FOUR = 4,   /* scales of 128 values */
    BYTES = 16, /* of a block's codes */
    REACH = 14  /* COUPLED: as */
};

/* Is each value of a block a number of e4m3 if its scale is so many powers of
   two further down than REACH? 0.5 is the least one of all at REACH. */
static int fits(const unsigned char codes[BYTES], int further)
{
    static const int halves[] = {0, 1, 2, 3, 4, 6, 8, 12};
    const int odd = further > 3 ? 15 : (1 << further) - 1;

    for (int i = 0; i < 2 * BYTES; i++)
        if (halves[codes[i / 2] >> i % 2 * 4 & 7] & odd)
            return 0;
    return 1;
}

static int refuse(const struct qn_pack *pack, const struct qn_pack_check *check,
                  uint64_t block, int scale, int most)
{
    const uint64_t blocks = (uint64_t)check->value;
    const uint64_t rows = (uint64_t)check->tensor->t->shape[1];
    const uint64_t row = block / blocks;

    return qn_checkpoint_wrong(
        pack->checkpoint, check->tensor,
        "expert %llu, row %llu, block %llu: its scale is %d and another one "
        "within 128 values of k is %d, and recipe %s multiplies e4m3, which "
        "holds each value only down to %d; w4a16_mxfp4 has no such rule",
        (unsigned long long)(row / rows), (unsigned long long)(row % rows),
        (unsigned long long)(block % blocks), scale, most, pack->recipe,
        most - REACH);
}

/* Up to four scales, of the block `first` and those after it. */
static int try_four(const struct qn_pack *pack,
                    const struct qn_pack_check *check, uint64_t first,
                    const unsigned char *scales, int count)
{
    unsigned char codes[BYTES];
    int most = 0, code = QUERN_OK;

    for (int i = 0; i < count; i++)
        most = scales[i] > most ? scales[i] : most;
    for (int i = 0; i < count && !code; i++) {
        const int further = most - REACH - scales[i];
        const uint64_t block = first + (uint64_t)i;

        if (further <= 0)
            continue;
        code = qn_checkpoint_read(pack->checkpoint, check->codes, BYTES * block,
                                  codes, BYTES);
        if (!code && !fits(codes, further))
            code = refuse(pack, check, block, scales[i], most);
    }
    return code;
}

int qn_rebased_try(const struct qn_pack *pack,
                   const struct qn_pack_check *check)
{
    const uint64_t bytes = check->tensor->t->bytes;
    const uint64_t blocks = (uint64_t)check->value;
    unsigned char *chunk = malloc(CHUNK);
    uint64_t first = 0, end = 0; /* of the scales in the chunk */
    int code = chunk ? QUERN_OK : qn_error_memory();

    for (uint64_t at = 0, count; at < bytes && !code; at += count) {
        count = blocks - at % blocks < FOUR ? blocks - at % blocks : FOUR;
        if (at + count > end) {
            first = at;
            end = bytes - at < CHUNK ? bytes : at + CHUNK;
            code = qn_checkpoint_read(pack->checkpoint, check->tensor, at,
                                      chunk, end - at);
        }
        if (!code)
            code = try_four(pack, check, at, chunk + (at - first), (int)count);
    }
    free(chunk);
    return code;
}
