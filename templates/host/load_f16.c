/* fp16 to fp32: exact. */
typedef unsigned short element;

static float load(element x)
{
    const unsigned int sign = (x & 0x8000u) << 16, magnitude = x & 0x7fffu;
    union { unsigned int u; float f; } v = { .u = magnitude << 13 };

    if (magnitude >= 0x7c00u)
        v.u += 0x70000000u; /* infinity and NaN keep the largest exponent */
    else
        v.f *= 0x1p112f; /* moves the exponent's bias from 15 to 127, denormals too */
    v.u |= sign;
    return v.f;
}
