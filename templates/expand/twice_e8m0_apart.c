/*
** Scales as both halves of a word of bf16, 2^126 times what they are, as expand_e2m1_apart_twice
** wants them: up to code MOST_E8M0_APART, which stands for 2; bf16 has no larger ones.
*/
enum { MOST_E8M0_APART = 128 };

FN unsigned twice_e8m0_apart(unsigned code)
{
    return code * 0x00800080 + 0x3f003f00;
}
