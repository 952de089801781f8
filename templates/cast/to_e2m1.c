//$ once "cast/to_narrow.c"
/* fp32 to E2M1, in the low four bits: saturating, NaN 6. */
FN unsigned to_e2m1(float x)
{
    return to_narrow(x, 6, 4, 1, 127);
}

/* Two of them in a byte; lo, the even element, in the low half. */
FN unsigned to_e2m1_x2(float lo, float hi)
{
    return to_e2m1(lo) | to_e2m1(hi) << 4;
}
