//$ -- SPDX-License-Identifier: Apache-2.0
/* The bits of magnitudes are ordered as these are; those of NaN come last and are left out. */
FN unsigned int amax_of(const float *values, int count)
{
    unsigned int most = 0;

    for (int i = 0; i < count; i++) {
        const unsigned int bits = bits_of(values[i]) & 0x7fffffffu;
        if (bits <= 0x7f800000u && bits > most)
            most = bits;
    }
    return most;
}
