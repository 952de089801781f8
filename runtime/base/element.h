/* SPDX-License-Identifier: Apache-2.0 */
/* element.h: one element of an operand to and from fp32. */
#pragma once

#include "internal.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Can elements of this type be stored and loaded here? */
static inline int qn_element_known(int type)
{
    return type == QUERN_BF16 || type == QUERN_F16 || type == QUERN_F32;
}

static inline float qn_element_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t qn_element_to_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Rounds to nearest even; a NaN stays one. */
static inline uint16_t qn_element_bf16(float value)
{
    const uint32_t bits = qn_element_to_bits(value);

    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Exact, denormals too. */
static inline float qn_element_from_f16(uint16_t x)
{
    const uint32_t magnitude = x & 0x7FFF, sign = (uint32_t)(x & 0x8000) << 16;
    const float scaled = qn_element_from_bits(magnitude << 13) * 0x1p112f;
    const uint32_t bits = magnitude < 0x7C00 ? qn_element_to_bits(scaled)
                                             : magnitude << 13 | 0x70000000;

    return qn_element_from_bits(bits | sign);
}

/* Rounds to nearest even; 65520 and above become infinity. */
static inline uint16_t qn_element_f16(float value)
{
    const uint32_t bits = qn_element_to_bits(value);
    const uint32_t magnitude = bits & 0x7FFFFFFF;
    const uint32_t sign = bits >> 16 & 0x8000;
    uint32_t result;

    if (magnitude > 0x7F800000)
        result = 0x7E00;
    else if (magnitude >= 0x477FF000)
        result = 0x7C00;
    else if (magnitude < 0x38800000) /* fp32 itself rounds at 2^-24 */
        result = qn_element_to_bits(qn_element_from_bits(magnitude) + 0.5f) -
                 0x3F000000;
    else
        result = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    return (uint16_t)(sign | result);
}

static inline float qn_element_load(const void *data, int type, size_t i)
{
    if (type == QUERN_BF16)
        return qn_element_from_bits((uint32_t)((const uint16_t *)data)[i]
                                    << 16);
    if (type == QUERN_F16)
        return qn_element_from_f16(((const uint16_t *)data)[i]);
    return ((const float *)data)[i];
}

static inline void qn_element_store(void *data, int type, size_t i, float value)
{
    if (type == QUERN_BF16)
        ((uint16_t *)data)[i] = qn_element_bf16(value);
    else if (type == QUERN_F16)
        ((uint16_t *)data)[i] = qn_element_f16(value);
    else
        ((float *)data)[i] = value;
}
