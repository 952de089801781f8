/* SPDX-License-Identifier: Apache-2.0 */
/* chance.c: Philox, rounding by chance, and the Hadamard transform. */
#include "numbers.h"

#include <math.h>
#include <stdio.h>

/* ------------------------------------------------------------------- Philox */

/* One round as Salmon et al. draw it: x0 and x2 are multiplied. */
static void philox_round(uint32_t x[4], const uint32_t key[2])
{
    uint64_t p0 = (uint64_t)x[0] * 0xD2511F53u;
    uint64_t p1 = (uint64_t)x[2] * 0xCD9E8D57u;
    uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ x[1] ^ key[0], (uint32_t)p1,
                        (uint32_t)(p0 >> 32) ^ x[3] ^ key[1], (uint32_t)p0};

    memcpy(x, next, sizeof next);
}

static void philox_whole(uint32_t x[4], uint32_t key0, uint32_t key1)
{
    for (uint32_t i = 0; i < 10; i++) {
        uint32_t key[2] = {key0 + i * 0x9E3779B9u, key1 + i * 0xBB67AE85u};

        philox_round(x, key);
    }
}

/* The published answers, in all four words of the counter. */
static void check_published(void)
{
    static const uint32_t rows[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8},
        {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF,
         0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD},
        {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0,
         0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}};

    for (int i = 0; i < 3; i++) {
        uint32_t x[4];

        memcpy(x, rows[i], sizeof x);
        philox_whole(x, rows[i][4], rows[i][5]);
        assert_memory_equal(x, rows[i] + 6, sizeof x);
    }
}

/* A counter of 64 bits; the upper two words are 0. */
TEST(test_philox)
{
    static const uint64_t seeds[] = {
        0, 1, 0xFFFFFFFF, 0x100000000u, 0xA4093822299F31D0u, ~(uint64_t)0};
    enum { SEEDS = sizeof seeds / sizeof *seeds };

    check_published();
    for (int i = 0; i < SEEDS * SEEDS; i++) {
        uint64_t in[2] = {seeds[i / SEEDS], seeds[i % SEEDS]};
        uint32_t x[4] = {(uint32_t)in[1], (uint32_t)(in[1] >> 32), 0, 0};
        unsigned char bytes[16];

        piece(CHANCE, "philox")(in, bytes, 1);
        philox_whole(x, (uint32_t)in[0], (uint32_t)(in[0] >> 32));
        for (int j = 0; j < 16; j++)
            assert_int_equal(bytes[j], x[j / 4] >> (8 * (j % 4)) & 0xFF);
    }
}

/* ------------------------------------------------------- rounding by chance */

/* How many of the 256 bytes take the neighbour that is farther from zero. */
static void check_value(const struct format *f, float x)
{
    unsigned out[256], sign = signbit(x) ? 1u << (f->width - 1) : 0;
    int low = 0, count = f->codes, steps;
    double size = fmin(fabs((double)x), f->most);

    piece_of(CHANCE, "to_", f->name, "_stochastic")(&x, out, 1);
    while (low < count - 1 && format_value(f, low + 1) <= size)
        low++;
    steps = (int)((size - format_value(f, low)) /
                  (format_value(f, low + 1) - format_value(f, low)) * 256);
    for (int byte = 0; byte < 256; byte++) {
        unsigned code = (unsigned)(low + (byte >= 256 - steps)) | sign;

        if (out[byte] != code)
            fail_msg("%s of %a with byte %d: %x instead of %x", f->name,
                     (double)x, byte, out[byte], code);
    }
}

/* Always `code`, for any byte. */
static void check_always(const struct format *f, float x, unsigned code)
{
    unsigned out[256];

    piece_of(CHANCE, "to_", f->name, "_stochastic")(&x, out, 1);
    for (int byte = 0; byte < 256; byte++)
        assert_int_equal(out[byte], code);
}

/* Between all neighbours: at the ends, at each of a few steps and at fp32's
   neighbours of it. Values of the format never move. */
TEST(test_chance)
{
    static const double steps[] = {0, 1, 2, 63, 64, 127, 128, 129, 254, 255};

    for (int i = 0; i < NARROW; i++) {
        const struct format *f = &formats[i];
        unsigned sign = 1u << (f->width - 1);
        int count = f->codes;

        for (int code = 0; code < count - 1; code++) {
            double low = format_value(f, code);
            double gap = format_value(f, code + 1) - low;

            check_always(f, (float)-low, (unsigned)code | sign);
            for (size_t j = 0; j < sizeof steps / sizeof *steps; j++) {
                float x = (float)(low + gap * steps[j] / 256);

                check_value(f, x);
                check_value(f, -nextafterf(x, 1e30f));
                check_value(f, nextafterf(x, 0));
            }
        }
        check_always(f, (float)f->most, (unsigned)count - 1);
        check_always(f, nextafterf((float)f->most, 1e30f), (unsigned)count - 1);
        check_always(f, -INFINITY, ((unsigned)count - 1) | sign);
        check_always(f, NAN, (unsigned)f->nan);
        check_always(f, 0x1p-149f, 0);
        check_always(f, -0x1p-130f, sign);
    }
}

/* ----------------------------------------------------------------- Hadamard */

static const int signs[16] = {1,  1,  1,  -1, 1,  -1, -1, -1,
                              -1, -1, -1, 1,  -1, 1,  -1, -1};

/* Output i of the first `distance` butterflies on x, as a tree: Sylvester's
   matrix has -1 where i and j share an odd number of bits. */
static float butterfly(const float x[16], int i, int distance)
{
    float low, high;

    if (!distance)
        return x[i] * (float)signs[i];
    low = butterfly(x, i & ~distance, distance / 2);
    high = butterfly(x, i | distance, distance / 2);
    return i & distance ? low - high : low + high;
}

static void check_row(const float x[16])
{
    float y[16];

    piece(CHANCE, "hadamard16")(x, y, 1);
    for (int i = 0; i < 16; i++) {
        unsigned code =
            format_round(&formats[FORMATS - 1], butterfly(x, i, 8) * 0.25f);

        assert_int_equal(bits_from(y[i]), code << 16);
    }
}

/* Small whole values give exact sums: those of the matrix itself. */
static void check_matrix(const float x[16])
{
    float y[16];

    piece(CHANCE, "hadamard16")(x, y, 1);
    for (int i = 0; i < 16; i++) {
        int sum = 0;

        for (int j = 0; j < 16; j++)
            sum += (int)x[j] * signs[j] *
                   (__builtin_popcount((unsigned)(i & j)) % 2 ? -1 : 1);
        assert_true(y[i] == (float)sum / 4);
    }
}

TEST(test_hadamard)
{
    float x[16];

    srand(2);
    for (int i = 0; i < 2000; i++) {
        for (int j = 0; j < 16; j++)
            x[j] = (float)(rand() % 15 - 7);
        check_matrix(x);
        for (int j = 0; j < 16; j++)
            x[j] = ldexpf((float)rand() / (float)RAND_MAX - 0.5f,
                          rand() % 40 - 20);
        check_row(x);
    }
    for (int j = 0; j < 16; j++)
        x[j] = (float)signs[j] * 0x1p126f; /* overflows in the last stage */
    check_row(x);
    for (int j = 0; j < 16; j++)
        x[j] = float_from((uint32_t)j * 0x10001);
    check_row(x);
}
