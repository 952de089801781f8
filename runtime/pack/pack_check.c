/* SPDX-License-Identifier: Apache-2.0 */
/* pack_check.c: rules that values of a checkpoint must obey to be packed. */
#include "pack/pack.h"

#include "base/error.h"
#include "base/grow.h"

#include <stdlib.h>
#include <stdio.h>

enum { CHUNK = 1 << 20 };

static int add(struct qn_pack *pack, struct qn_pack_check check)
{
    struct qn_pack_check *checks =
        qn_grow(pack->checks, pack->nchecks, sizeof *checks);

    if (!checks)
        return qn_error_memory();
    pack->checks = checks;
    checks[pack->nchecks++] = check;
    return QUERN_OK;
}

/* No NaN among floats whose largest finite ones are below `value`. */
static int is_number(const struct qn_pack_check *check, uint64_t index,
                     uint32_t element)
{
    (void)index;
    return (element & ((UINT64_C(1) << (check->bits - 1)) - 1)) <=
           (uint64_t)check->value;
}

int qn_pack_check_numbers(struct qn_pack *pack,
                          const struct qn_checkpoint_tensor *tensor)
{
    static const int64_t largest[QN_ST_COUNT] = {
        [QN_ST_F8_E4M3] = 0x7e,
        [QN_ST_F16] = 0x7c00,
        [QN_ST_BF16] = 0x7f80,
        [QN_ST_F32] = 0x7f800000,
    };

    return add(pack, (struct qn_pack_check){
                         .tensor = tensor,
                         .bits = qn_safetensors_bits(tensor->t->type),
                         .value = largest[tensor->t->type],
                         .holds = is_number,
                         .rule = "a scale is NaN"});
}

static int is_power(const struct qn_pack_check *check, uint64_t index,
                    uint32_t element)
{
    (void)check;
    (void)index;
    return element != 255;
}

int qn_pack_check_e8m0(struct qn_pack *pack,
                       const struct qn_checkpoint_tensor *tensor)
{
    return add(pack, (struct qn_pack_check){.tensor = tensor,
                                            .bits = 8,
                                            .holds = is_power,
                                            .rule = "a scale is 255, which is "
                                                    "NaN"});
}

static int is_value(const struct qn_pack_check *check, uint64_t index,
                    uint32_t element)
{
    (void)index;
    return element == (uint32_t)check->value;
}

int qn_pack_check_zeros(struct qn_pack *pack,
                        const struct qn_checkpoint_tensor *tensor, int code)
{
    return add(pack, (struct qn_pack_check){
                         .tensor = tensor,
                         .bits = 4,
                         .value = code,
                         .holds = is_value,
                         .rule = "a zero point is not the %lld that the recipe "
                                 "has for all; --recipe names one that stores "
                                 "them, such as w4a16_int4_zeros"});
}

static int is_less(const struct qn_pack_check *check, uint64_t index,
                   uint32_t element)
{
    (void)index;
    return element < (uint32_t)check->value;
}

int qn_pack_check_more_zeros(struct qn_pack *pack,
                             const struct qn_checkpoint_tensor *tensor)
{
    return add(pack, (struct qn_pack_check){
                         .tensor = tensor,
                         .bits = 4,
                         .value = 15,
                         .holds = is_less,
                         .rule = "a zero point is one more than its element, "
                                 "and 16 is no code: readers of this format "
                                 "take it for 16 or for 0"});
}

static int is_ordered(const struct qn_pack_check *check, uint64_t index,
                      uint32_t element)
{
    return element == index / (uint64_t)check->value;
}

int qn_pack_check_order(struct qn_pack *pack,
                        const struct qn_checkpoint_tensor *tensor,
                        int64_t group)
{
    return add(pack, (struct qn_pack_check){
                         .tensor = tensor,
                         .bits = 32,
                         .value = group,
                         .holds = is_ordered,
                         .rule = "input feature i must have the scale i / "
                                 "%lld; features in another order (desc_act) "
                                 "are not supported"});
}

/* Two integers in words; those of 64 bits have two each. */
static int is_shape(const struct qn_pack_check *check, uint64_t index,
                    uint32_t element)
{
    const unsigned each = check->tensor->t->type == QN_ST_I64 ? 2 : 1;
    const uint64_t value = (uint64_t)check->value;

    return element == (index % each        ? 0
                       : index / each == 0 ? (uint32_t)(value >> 32)
                                           : (uint32_t)value);
}

int qn_pack_check_shape(struct qn_pack *pack,
                        const struct qn_checkpoint_tensor *tensor, int64_t rows,
                        int64_t columns)
{
    return add(pack,
               (struct qn_pack_check){
                   .tensor = tensor,
                   .bits = 32,
                   .value = (int64_t)((uint64_t)rows << 32 | (uint64_t)columns),
                   .holds = is_shape,
                   .rule = "it must be the shape of the codes"});
}

int qn_pack_check_nothing(struct qn_pack *pack,
                          const struct qn_checkpoint_tensor *tensor)
{
    return add(pack, (struct qn_pack_check){.tensor = tensor,
                                            .bits = 8,
                                            .holds = is_value,
                                            .rule = "a bias of such experts "
                                                    "must be zero"});
}

int qn_pack_check_same(struct qn_pack *pack,
                       const struct qn_checkpoint_tensor *tensor,
                       const struct qn_checkpoint_tensor *other)
{
    return add(pack, (struct qn_pack_check){
                         .tensor = tensor,
                         .other = other,
                         .bits = 32,
                         .rule = "the gate's and the up projection's must be "
                                 "equal: an operand has one for each expert"});
}

int qn_pack_check_rebased(struct qn_pack *pack,
                          const struct qn_checkpoint_tensor *scales,
                          const struct qn_checkpoint_tensor *codes)
{
    return add(pack, (struct qn_pack_check){.tensor = scales,
                                            .codes = codes,
                                            .value = scales->t->shape[2]});
}

static uint32_t element_of(const unsigned char *bytes, uint64_t i, int bits)
{
    uint32_t value = 0;

    if (bits == 4)
        return bytes[i / 2] >> i % 2 * 4 & 15;
    for (int b = bits / 8; b--;)
        value = value << 8 | bytes[i * (uint64_t)(bits / 8) + (uint64_t)b];
    return value;
}

static int broken(const struct qn_pack *pack, const struct qn_pack_check *check,
                  uint64_t index, uint32_t element)
{
    char rule[256];

    snprintf(rule, sizeof rule, check->rule, (long long)check->value);
    return qn_checkpoint_wrong(
        pack->checkpoint, check->tensor, "%s: element %llu is %lld", rule,
        (unsigned long long)index,
        check->bits == 32 ? (long long)(int32_t)element : (long long)element);
}

static int try_chunk(const struct qn_pack *pack,
                     const struct qn_pack_check *check, uint64_t at,
                     const unsigned char *bytes, uint64_t count)
{
    const uint64_t first = at * 8 / (uint64_t)check->bits;
    const uint64_t elements = count * 8 / (uint64_t)check->bits;

    for (uint64_t i = 0; i < elements; i++) {
        const uint32_t element = element_of(bytes, i, check->bits);

        if (!check->holds(check, first + i, element))
            return broken(pack, check, first + i, element);
    }
    return QUERN_OK;
}

/* Two scalars with the same bits? */
static int try_same(const struct qn_pack *pack,
                    const struct qn_pack_check *check)
{
    unsigned char one[4], two[4];
    int code =
        qn_checkpoint_read(pack->checkpoint, check->tensor, 0, one, sizeof one);

    if (!code)
        code = qn_checkpoint_read(pack->checkpoint, check->other, 0, two,
                                  sizeof two);
    if (code || element_of(one, 0, 32) == element_of(two, 0, 32))
        return code;
    return qn_checkpoint_wrong(pack->checkpoint, check->tensor,
                               "it is not that of '%s'; %s",
                               check->other->t->name, check->rule);
}

static int try_check(const struct qn_pack *pack,
                     const struct qn_pack_check *check, unsigned char *chunk)
{
    const uint64_t bytes = check->tensor->t->bytes;
    int code = QUERN_OK;

    if (check->other)
        return try_same(pack, check);
    if (check->codes)
        return qn_rebased_try(pack, check);
    for (uint64_t at = 0; at < bytes && !code; at += CHUNK) {
        const uint64_t left = bytes - at, count = left < CHUNK ? left : CHUNK;

        code = qn_checkpoint_read(pack->checkpoint, check->tensor, at, chunk,
                                  count);
        if (!code)
            code = try_chunk(pack, check, at, chunk, count);
    }
    return code;
}

int qn_pack_check(const struct qn_pack *pack)
{
    unsigned char *chunk = malloc(CHUNK);
    int code = chunk ? QUERN_OK : qn_error_memory();

    for (int i = 0; i < pack->nchecks && !code; i++)
        code = try_check(pack, &pack->checks[i], chunk);
    free(chunk);
    return code;
}
