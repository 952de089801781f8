//$ -- SPDX-License-Identifier: Apache-2.0
/*
** fp32 arithmetic in which every rounding is written, with the same bits on host and device: to
** nearest even, denormals kept, no product fused into a sum unless fma_rn says so. The sign and
** payload of a NaN are not part of the promise.
*/
//$ if arch == "host" then
//$   -- Compile with -ffp-contract=off.
FN unsigned bits_of(float x)
{
    const union { float f; unsigned u; } v = { .f = x };
    return v.u;
}

FN float float_of(unsigned bits)
{
    const union { unsigned u; float f; } v = { .u = bits };
    return v.f;
}

FN float add_rn(float x, float y) { return x + y; }
FN float mul_rn(float x, float y) { return x * y; }
FN float rcp_rn(float x) { return 1 / x; } /* of x within 2^-125 .. 2^125, or NaN */

/*
** x * y + z rounded once. The product is exact in double; a sum that is not is made odd, so that
** rounding it to fp32 cannot see a tie that is none.
*/
FN float fma_rn(float x, float y, float z)
{
    const double product = (double)x * y;
    union { double f; unsigned long long u; } sum = { .f = product + z };
    const double back = sum.f - product;
    const double rest = (product - (sum.f - back)) + (z - back); /* NaN where the sum is infinite */

    if ((rest < 0 || rest > 0) && !(sum.u & 1))
        sum.u += (rest > 0) == (sum.f > 0) ? 1 : -1;
    return (float)sum.f;
}

FN float magnitude(float x) { return float_of(bits_of(x) & 0x7fffffffu); }

/* x within -most .. most; NaN becomes most. */
FN float clamp(float x, float most)
{
    const float v = x < most ? x : most;
    return v > -most ? v : -most;
}

/* x within least .. most; NaN stays. */
FN float bounded(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;
}
//$ else
FN unsigned bits_of(float x) { return __float_as_uint(x); }
FN float float_of(unsigned bits) { return __uint_as_float(bits); }
FN float add_rn(float x, float y) { return __fadd_rn(x, y); }
FN float mul_rn(float x, float y) { return __fmul_rn(x, y); }
FN float fma_rn(float x, float y, float z) { return __fmaf_rn(x, y, z); }
FN float magnitude(float x) { return fabsf(x); }

//$ if op == "fprop" or op == "dgrad" then
/*
** 1 / x for less than __fdiv_rn, of x within 2^-125 .. 2^125, or NaN. The same as __frcp_rn for
** these, without its branch for others, whose call costs a product its registers.
*/
FN float rcp_rn(float x)
{
    float y;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return __fmaf_rn(y, -__fmaf_rn(x, y, -1), y);
}
//$ else
FN float rcp_rn(float x) { return __frcp_rn(x); } /* 1 / x */
//$ end

/* x within -most .. most; NaN becomes most. */
FN float clamp(float x, float most) { return fmaxf(fminf(x, most), -most); }

/* x within least .. most; NaN stays. */
FN float bounded(float x, float least, float most)
{
    float v;

    asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(x), "f"(least));
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(v) : "f"(most));
    return v;
}
//$ end
