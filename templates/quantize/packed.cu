//$ -- SPDX-License-Identifier: Apache-2.0
//$ local halves = input.bits == 16
/*
//$ local how = halves and "as the input has them" or "in fp32"
** Two neighbouring features of a row, $(how).
*/
//$ if halves then
typedef unsigned packed;

FN packed pack(unsigned lo, unsigned hi) { return lo | hi << 16; }
//$ if input.type == "bf16" then
FN float lo_of(packed v) { return float_of(v << 16); }
FN float hi_of(packed v) { return float_of(v & 0xffff0000u); }
//$ else
FN float lo_of(packed v) { return from_f16(v & 0xffff); }
FN float hi_of(packed v) { return from_f16(v >> 16); }
//$ end
//$ else
struct __align__(8) packed_pair { float lo, hi; };
typedef struct packed_pair packed;

FN packed pack(float lo, float hi)
{
    const packed v = { lo, hi };
    return v;
}
FN float lo_of(packed v) { return v.lo; }
FN float hi_of(packed v) { return v.hi; }
//$ end

/*
** A tile's values are in shared memory, row after row, with zeros where the group has none. A
** thread is concerned with 32 of them: its two features in each of its rows.
*/
enum { LINE = TILE_N / 2, TILE_VALUES = TILE_M * LINE };

/* Row r of those that begin at v. */
FN packed value(const packed *v, int r)
{
    return v[r * LINE];
}
