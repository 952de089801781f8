//$ -- SPDX-License-Identifier: Apache-2.0
//$ local packed = input.bits == 16
/*
//$ local how = packed and "as the input has them" or "in fp32"
** Two neighbouring features of a row, $(how).
*/
//$ if packed then
typedef unsigned held;

FN held hold(unsigned lo, unsigned hi) { return lo | hi << 16; }
//$ if input.type == "bf16" then
FN float lo_of(held v) { return float_of(v << 16); }
FN float hi_of(held v) { return float_of(v & 0xffff0000u); }
//$ else
FN float lo_of(held v) { return from_f16(v & 0xffff); }
FN float hi_of(held v) { return from_f16(v >> 16); }
//$ end
//$ else
struct __align__(8) held_pair { float lo, hi; };
typedef struct held_pair held;

FN held hold(float lo, float hi)
{
    const held v = { lo, hi };
    return v;
}
FN float lo_of(held v) { return v.lo; }
FN float hi_of(held v) { return v.hi; }
//$ end

/*
** A tile's values lie in shared memory, row after row, with zeros where the group has none. A
** thread is concerned with 32 of them: its two features in each of its rows.
*/
enum { LINE = TILE_N / 2, TILE_VALUES = TILE_M * LINE };

/* Row r of those that begin at v. */
FN held value(const held *v, int r)
{
    return v[r * LINE];
}
