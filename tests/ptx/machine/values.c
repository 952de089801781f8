/* SPDX-License-Identifier: Apache-2.0 */
/* values.c: integers and bits. */
#include "build.h"
#include "lanes.h"

#define INTEGER(X)                                                             \
    X(add_32, uint32_t, a + b)                                                 \
    X(sub_32, uint32_t, a - b)                                                 \
    X(mul_lo_32, uint32_t, a *b)                                               \
    X(add_64, uint64_t, a + b)                                                 \
    X(sub_64, uint64_t, a - b)                                                 \
    X(mul_lo_64, uint64_t, a *b)                                               \
    X(and_32, uint32_t, a &b)                                                  \
    X(or_32, uint32_t, a | b)                                                  \
    X(xor_32, uint32_t, a ^ b)                                                 \
    X(and_64, uint64_t, a &b)                                                  \
    X(or_64, uint64_t, a | b)                                                  \
    X(xor_64, uint64_t, a ^ b)                                                 \
    X(add_16, uint32_t, (uint16_t)(a + b))                                     \
    X(sub_16, uint32_t, (uint16_t)(a - b))                                     \
    X(mul_lo_16, uint32_t, (uint16_t)(a * b))                                  \
    X(min_s32, int32_t, a < b ? a : b)                                         \
    X(max_s32, int32_t, a > b ? a : b)                                         \
    X(min_u32, uint32_t, a < b ? a : b)                                        \
    X(max_u32, uint32_t, a > b ? a : b)                                        \
    X(min_s64, int64_t, a < b ? a : b)                                         \
    X(max_s64, int64_t, a > b ? a : b)                                         \
    X(min_u64, uint64_t, a < b ? a : b)                                        \
    X(max_u64, uint64_t, a > b ? a : b)                                        \
    X(min_u16, uint32_t, (uint16_t)a < (uint16_t)b ? a : b)                    \
    X(max_u16, uint32_t, (uint16_t)a > (uint16_t)b ? a : b)                    \
    X(min_s16, uint32_t, (int16_t)a < (int16_t)b ? a : b)                      \
    X(max_s16, uint32_t, (int16_t)a > (int16_t)b ? a : b)                      \
    X(mul_hi_s32, int32_t, (int32_t)((int64_t)a * b >> 32))                    \
    X(mul_hi_u32, uint32_t, (uint32_t)((uint64_t)a * b >> 32))                 \
    X(mul_hi_u64, uint64_t, (uint64_t)((unsigned __int128)a * b >> 64))        \
    X(mul_hi_s64, int64_t, (int64_t)((__int128)a * b >> 64))                   \
    X(shl_32, uint32_t, b < 32 ? a << b : 0)                                   \
    X(shr_u32, uint32_t, b < 32 ? a >> b : 0)                                  \
    X(shr_s32, int32_t, a >> (((uint32_t)b < 31) ? b : 31))                    \
    X(shl_16, uint32_t, b < 16 ? (uint16_t)(a << b) : 0)                       \
    X(shr_u16, uint32_t, b < 16 ? (uint16_t)a >> b : 0)                        \
    X(shr_s16, uint32_t, (uint16_t)((int16_t)a >> (b < 15 ? b : 15)))          \
    X(div_u32, uint32_t, b ? a / b : PX_ALL)                                   \
    X(rem_u32, uint32_t, b ? a % b : a)                                        \
    X(div_s32, int32_t, b == -1 ? (int32_t) - (uint32_t)a : b ? a / b : -1)    \
    X(rem_s32, int32_t, b == -1 ? 0 : b ? a % b : a)                           \
    X(div_u64, uint64_t, b ? a / b : UINT64_MAX)                               \
    X(rem_u64, uint64_t, b ? a % b : a)                                        \
    X(div_s64, int64_t, b == -1 ? (int64_t) - (uint64_t)a : b ? a / b : -1)    \
    X(rem_s64, int64_t, b == -1 ? 0 : b ? a % b : a)
INTEGER(PX_BINARY)

#define SHIFTED(X)                                                             \
    X(shl_64, uint64_t, uint64_t, uint32_t, b < 64 ? a << b : 0)               \
    X(shr_u64, uint64_t, uint64_t, uint32_t, b < 64 ? a >> b : 0)              \
    X(shr_s64, int64_t, int64_t, uint32_t, a >> (b < 63 ? b : 63))             \
    X(mul_wide_s32, int64_t, int32_t, int32_t, (int64_t)a *b)                  \
    X(mul_wide_u32, uint64_t, uint32_t, uint32_t, (uint64_t)a *b)              \
    X(mul_wide_u16, uint32_t, uint32_t, uint32_t,                              \
      (uint32_t)(uint16_t)a * (uint16_t)b)                                     \
    X(mul_wide_s16, int32_t, uint32_t, uint32_t, (int16_t)a *(int16_t)b)
SHIFTED(PX_TWO)

static inline uint32_t reversed(uint32_t x)
{
    x = (x & 0x55555555) << 1 | (x >> 1 & 0x55555555);
    x = (x & 0x33333333) << 2 | (x >> 2 & 0x33333333);
    x = (x & 0x0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f);
    return __builtin_bswap32(x);
}

/* The highest bit that is set, and how far it is from the top. */
static inline uint32_t highest(uint32_t x)
{
    return x ? 31 - (uint32_t)__builtin_clz(x) : PX_ALL;
}

static inline uint32_t distance(uint32_t x)
{
    return x ? (uint32_t)__builtin_clz(x) : PX_ALL;
}

#define ONE(X)                                                                 \
    X(not_32, uint32_t, uint32_t, ~a)                                          \
    X(not_64, uint64_t, uint64_t, ~a)                                          \
    X(not_16, uint32_t, uint32_t, (uint16_t)~a)                                \
    X(neg_32, uint32_t, uint32_t, -a)                                          \
    X(neg_64, uint64_t, uint64_t, -a)                                          \
    X(neg_16, uint32_t, uint32_t, (uint16_t)-a)                                \
    X(abs_s32, uint32_t, int32_t, a < 0 ? -(uint32_t)a : (uint32_t)a)          \
    X(abs_s64, uint64_t, int64_t, a < 0 ? -(uint64_t)a : (uint64_t)a)          \
    X(same_32, uint32_t, uint32_t, a)                                          \
    X(same_64, uint64_t, uint64_t, a)                                          \
    X(popc_32, uint32_t, uint32_t, (uint32_t)__builtin_popcount(a))            \
    X(clz_32, uint32_t, uint32_t, a ? (uint32_t)__builtin_clz(a) : 32)         \
    X(find_32, uint32_t, uint32_t, highest(a))                                 \
    X(find_s32, uint32_t, int32_t, highest((uint32_t)(a ^ a >> 31)))           \
    X(find_shift_32, uint32_t, uint32_t, distance(a))                          \
    X(brev_32, uint32_t, uint32_t, reversed(a))                                \
    X(to_param_64, uint64_t, uint64_t, a + PX_PARAM)                           \
    X(to_generic_64, uint64_t, uint64_t, a + PX_SHARED)                        \
    X(from_generic_64, uint64_t, uint64_t, a - PX_SHARED)
ONE(PX_UNARY)

static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t how)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t d = 0;

    for (int k = 0; k < 4; k++) {
        uint32_t pick = how >> 4 * k & 15;
        uint32_t byte = bytes >> 8 * (pick & 7) & 255;

        if (pick & 8)
            byte = byte & 128 ? 255 : 0;
        d |= byte << 8 * k;
    }
    return d;
}

static inline uint64_t mask_of(uint32_t length)
{
    return length < 64 ? ((uint64_t)1 << length) - 1 : UINT64_MAX;
}

/* Bits of a from `at` on, with the sign of the highest. */
static inline int32_t field_of(int32_t a, uint32_t at, uint32_t length)
{
    const uint32_t from = at & 255, bits = length & 255;
    const uint32_t above = bits < 32 ? 32 - bits : 0;
    const int32_t low = a >> (from < 32 ? from : 31);

    return bits ? (int32_t)((uint32_t)low << above) >> above : 0;
}

static inline uint64_t inserted(uint64_t a, uint64_t b, uint32_t at,
                                uint32_t length)
{
    const uint64_t mask = mask_of(length & 255);

    at &= 255;
    return at < 64 ? (b & ~(mask << at)) | (a & mask) << at : b;
}

static inline uint32_t looked_up(uint32_t a, uint32_t b, uint32_t c,
                                 uint32_t table)
{
    uint32_t d = 0;

    for (int k = 0; k < 8; k++)
        if (table >> k & 1)
            d |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return d;
}

PX_THREE(mad_lo_32, uint32_t, uint32_t, uint32_t, uint32_t, a *b + c)
PX_THREE(mad_lo_64, uint64_t, uint64_t, uint64_t, uint64_t, a *b + c)
PX_THREE(mad_wide_s32, uint64_t, int32_t, int32_t, uint64_t,
         (uint64_t)((int64_t)a *b) + c)
PX_THREE(mad_wide_u32, uint64_t, uint32_t, uint32_t, uint64_t,
         (uint64_t)a *b + c)
PX_THREE(shf_r_wrap, uint32_t, uint32_t, uint32_t, uint32_t,
         ((uint64_t)b << 32 | a) >> (c & 31))
PX_THREE(shf_l_wrap, uint32_t, uint32_t, uint32_t, uint32_t,
         ((uint64_t)b << 32 | a) << (c & 31) >> 32)
PX_THREE(prmt_32, uint32_t, uint32_t, uint32_t, uint32_t, permuted(a, b, c))
PX_THREE(bfe_u32, uint32_t, uint32_t, uint32_t, uint32_t,
         (b & 255) < 32 ? a >> (b & 255) & mask_of(c & 255) : 0)
PX_THREE(bfe_s32, int32_t, uint32_t, uint32_t, int32_t, field_of(a, b, c))
PX_FOUR(bfi_32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
        inserted(a, b, c, e))
PX_FOUR(bfi_64, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t,
        inserted(a, b, c, e))
PX_FOUR(lop3, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
        looked_up(a, b, c, e))

/* selp d, a, b, p */
#define SELECT(name, T)                                                        \
    static int name(struct px_warp *w, const struct px_op *op, uint32_t mask)  \
    {                                                                          \
        T *d = PX_AT(w, T, 0);                                                 \
        const T *a = PX_AT(w, T, 1), *b = PX_AT(w, T, 2);                      \
        const uint32_t p = *PX_AT(w, uint32_t, 3);                             \
                                                                               \
        PX_EACH (mask)                                                         \
            d[i] = p >> i & 1 ? a[i] : b[i];                                   \
        return PX_NEXT;                                                        \
    }
SELECT(selp_32, uint32_t)
SELECT(selp_64, uint64_t)

/* Predicates: a mask each. */
#define LOGIC(X)                                                               \
    X(and_pred, a &b)                                                          \
    X(or_pred, a | b)                                                          \
    X(xor_pred, a ^ b)
#define PREDICATE(name, value)                                                 \
    static int name(struct px_warp *w, const struct px_op *op, uint32_t mask)  \
    {                                                                          \
        uint32_t *d = PX_AT(w, uint32_t, 0);                                   \
        const uint32_t a = *PX_AT(w, uint32_t, 1);                             \
        const uint32_t b = *PX_AT(w, uint32_t, op->nargs - 1);                 \
                                                                               \
        (void)b;                                                               \
        *d = (*d & ~mask) | ((value)&mask);                                    \
        return PX_NEXT;                                                        \
    }
LOGIC(PREDICATE)
PREDICATE(not_pred, ~a)
PREDICATE(mov_pred, a)

const struct px_row px_rows_integer[] = {
    {"add.s32", "rrr", add_32, 0},
    {"add.u32", "rrr", add_32, 0},
    {"sub.s32", "rrr", sub_32, 0},
    {"sub.u32", "rrr", sub_32, 0},
    {"mul.lo.s32", "rrr", mul_lo_32, 0},
    {"mul.lo.u32", "rrr", mul_lo_32, 0},
    {"add.s64", "ddd", add_64, 0},
    {"add.u64", "ddd", add_64, 0},
    {"sub.s64", "ddd", sub_64, 0},
    {"sub.u64", "ddd", sub_64, 0},
    {"mul.lo.s64", "ddd", mul_lo_64, 0},
    {"mul.lo.u64", "ddd", mul_lo_64, 0},
    {"add.s16", "rrr", add_16, 0},
    {"add.u16", "rrr", add_16, 0},
    {"sub.s16", "rrr", sub_16, 0},
    {"sub.u16", "rrr", sub_16, 0},
    {"mul.lo.s16", "rrr", mul_lo_16, 0},
    {"mul.lo.u16", "rrr", mul_lo_16, 0},
    {"and.b32", "rrr", and_32, 0},
    {"or.b32", "rrr", or_32, 0},
    {"xor.b32", "rrr", xor_32, 0},
    {"and.b16", "rrr", and_32, 0},
    {"or.b16", "rrr", or_32, 0},
    {"xor.b16", "rrr", xor_32, 0},
    {"and.b64", "ddd", and_64, 0},
    {"or.b64", "ddd", or_64, 0},
    {"xor.b64", "ddd", xor_64, 0},
    {"min.s32", "rrr", min_s32, 0},
    {"max.s32", "rrr", max_s32, 0},
    {"min.u32", "rrr", min_u32, 0},
    {"max.u32", "rrr", max_u32, 0},
    {"min.s64", "ddd", min_s64, 0},
    {"max.s64", "ddd", max_s64, 0},
    {"min.u64", "ddd", min_u64, 0},
    {"max.u64", "ddd", max_u64, 0},
    {"min.u16", "rrr", min_u16, 0},
    {"max.u16", "rrr", max_u16, 0},
    {"min.s16", "rrr", min_s16, 0},
    {"max.s16", "rrr", max_s16, 0},
    {"mul.hi.s32", "rrr", mul_hi_s32, 0},
    {"mul.hi.u32", "rrr", mul_hi_u32, 0},
    {"mul.hi.u64", "ddd", mul_hi_u64, 0},
    {"mul.hi.s64", "ddd", mul_hi_s64, 0},
    {"shl.b32", "rrr", shl_32, 0},
    {"shl.b64", "ddr", shl_64, 0},
    {"shl.b16", "rrr", shl_16, 0},
    {"shr.u32", "rrr", shr_u32, 0},
    {"shr.b32", "rrr", shr_u32, 0},
    {"shr.s32", "rrr", shr_s32, 0},
    {"shr.u64", "ddr", shr_u64, 0},
    {"shr.b64", "ddr", shr_u64, 0},
    {"shr.s64", "ddr", shr_s64, 0},
    {"shr.u16", "rrr", shr_u16, 0},
    {"shr.b16", "rrr", shr_u16, 0},
    {"shr.s16", "rrr", shr_s16, 0},
    {"div.u32", "rrr", div_u32, 0},
    {"rem.u32", "rrr", rem_u32, 0},
    {"div.s32", "rrr", div_s32, 0},
    {"rem.s32", "rrr", rem_s32, 0},
    {"div.u64", "ddd", div_u64, 0},
    {"rem.u64", "ddd", rem_u64, 0},
    {"div.s64", "ddd", div_s64, 0},
    {"rem.s64", "ddd", rem_s64, 0},
    {"not.b32", "rr", not_32, 0},
    {"not.b64", "dd", not_64, 0},
    {"not.b16", "rr", not_16, 0},
    {"neg.s32", "rr", neg_32, 0},
    {"neg.s64", "dd", neg_64, 0},
    {"neg.s16", "rr", neg_16, 0},
    {"abs.s32", "rr", abs_s32, 0},
    {"abs.s64", "dd", abs_s64, 0},
    {"popc.b32", "rr", popc_32, 0},
    {"clz.b32", "rr", clz_32, 0},
    {"bfind.u32", "rr", find_32, 0},
    {"bfind.s32", "rr", find_s32, 0},
    {"bfind.shiftamt.u32", "rr", find_shift_32, 0},
    {"brev.b32", "rr", brev_32, 0},
    {"mul.wide.s32", "drr", mul_wide_s32, 0},
    {"mul.wide.u32", "drr", mul_wide_u32, 0},
    {"mul.wide.u16", "rrr", mul_wide_u16, 0},
    {"mul.wide.s16", "rrr", mul_wide_s16, 0},
    {"mad.lo.s32", "rrrr", mad_lo_32, 0},
    {"mad.lo.u32", "rrrr", mad_lo_32, 0},
    {"mad.lo.s64", "dddd", mad_lo_64, 0},
    {"mad.lo.u64", "dddd", mad_lo_64, 0},
    {"mad.wide.s32", "drrd", mad_wide_s32, 0},
    {"mad.wide.u32", "drrd", mad_wide_u32, 0},
    {"shf.r.wrap.b32", "rrrr", shf_r_wrap, 0},
    {"shf.l.wrap.b32", "rrrr", shf_l_wrap, 0},
    {"prmt.b32", "rrrr", prmt_32, 0},
    {"bfe.u32", "rrrr", bfe_u32, 0},
    {"bfe.s32", "rrrr", bfe_s32, 0},
    {"bfi.b32", "rrrrr", bfi_32, 0},
    {"bfi.b64", "dddrr", bfi_64, 0},
    {"lop3.b32", "rrrrr", lop3, 0},
    {"selp.b32", "rrrp", selp_32, 0},
    {"selp.u32", "rrrp", selp_32, 0},
    {"selp.s32", "rrrp", selp_32, 0},
    {"selp.f32", "rrrp", selp_32, 0},
    {"selp.b16", "rrrp", selp_32, 0},
    {"selp.u16", "rrrp", selp_32, 0},
    {"selp.s16", "rrrp", selp_32, 0},
    {"selp.b64", "dddp", selp_64, 0},
    {"selp.u64", "dddp", selp_64, 0},
    {"selp.s64", "dddp", selp_64, 0},
    {"and.pred", "ppp", and_pred, 0},
    {"or.pred", "ppp", or_pred, 0},
    {"xor.pred", "ppp", xor_pred, 0},
    {"not.pred", "pp", not_pred, 0},
    {"mov.pred", "pp", mov_pred, 0},
    {"mov.u32", "rr", same_32, 0},
    {"mov.s32", "rr", same_32, 0},
    {"mov.f32", "rr", same_32, 0},
    {"mov.b16", "rr", same_32, 0},
    {"mov.u16", "rr", same_32, 0},
    {"mov.s16", "rr", same_32, 0},
    {"mov.u64", "dd", same_64, 0},
    {"mov.s64", "dd", same_64, 0},
    {"cvta.to.global.u64", "dd", same_64, 0},
    {"cvta.global.u64", "dd", same_64, 0},
    {"cvta.param.u64", "dd", to_param_64, 0},
    {"cvta.shared.u64", "dd", to_generic_64, 0},
    {"cvta.to.shared.u64", "dd", from_generic_64, 0},
    {NULL, NULL, NULL, 0}};
