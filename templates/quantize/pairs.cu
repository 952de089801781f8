//$ -- SPDX-License-Identifier: Apache-2.0
//$ local packed = input.bits == 16
/*
** The largest magnitudes, of values as a thread holds them: features f and f + 1 of 32 rows. NaN
** loses against any number.
*/
FN float larger(float a, float b)
{
    return fmaxf(a, b);
}

//$ if packed then
/* Both halves at once: magnitudes, and the larger ones. */
typedef unsigned magnitudes;

FN magnitudes magnitudes_of(packed v)
{
    magnitudes both;

    asm("abs.$(input.type)x2 %0, %1;" : "=r"(both) : "r"(v));
    return both;
}

FN magnitudes larger_pair(magnitudes a, magnitudes b)
{
    magnitudes most;

    asm("max.$(input.type)x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}

FN float low_of(magnitudes m) { return larger(lo_of(m), 0); }
FN float high_of(magnitudes m) { return larger(hi_of(m), 0); }
//$ else
typedef packed magnitudes;

FN magnitudes magnitudes_of(packed v) { return pack(fabsf(v.lo), fabsf(v.hi)); }

FN magnitudes larger_pair(magnitudes a, magnitudes b)
{
    return pack(larger(a.lo, b.lo), larger(a.hi, b.hi));
}

FN float low_of(magnitudes m) { return larger(m.lo, 0); }
FN float high_of(magnitudes m) { return larger(m.hi, 0); }
//$ end
