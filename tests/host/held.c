/* SPDX-License-Identifier: Apache-2.0 */
/* held.c: is it seen when a copy does not hold what it was made of, where it is
   said to be? */
#include "oracle/fidelity.h"
#include "host.h"

#include "oracle/cast.h"
#include "base/context.h"

#include <stdio.h>

enum { ROWS = 200, FEATURES = 144, GROUPS = 3 };

/* The first values of a tensor are not small by this seed: lines that share
   scales are judged by the average line. */
static const struct qn_options options = {.seed = 4};

/* Made by the library itself; `copy` is what the judge checks. */
struct made {
    struct qn_cast cast;
    struct qn_fidelity f;
    int64_t starts[GROUPS];
    struct qn_tensor copy;
    size_t bytes, sf_bytes;
    double tolerance;
};

static void make(struct made *m, const char *recipe, const char *of,
                 const char *copy)
{
    const int kind = *copy == 'r' ? QUERN_ROWWISE : QUERN_COLUMNWISE;
    const int arg = *copy == 'r' ? QUERN_ARG_ROWWISE : QUERN_ARG_COLUMNWISE;
    struct qn_quantization q;
    char text[128];

    memset(m, 0, sizeof *m);
    snprintf(text, sizeof text, "quantize %s of=%s g=3 m=%d k=%d copies=%s%s",
             recipe, of, ROWS, FEATURES, copy,
             *of == 'w' ? "" : " split=130,0,60");
    assert_int_equal(qn_quantize_parse(host_ctx, text, &q), QUERN_OK);
    assert_int_equal(qn_cast_begin_host(&m->cast, &options, host_ctx, &q), 0);
    assert_int_equal(qn_call_run(&m->cast.call), QUERN_OK);
    m->starts[1] = m->starts[2] = m->cast.sizes[0];
    m->copy = qn_cast_copy(&m->cast, kind);
    m->bytes = m->cast.call.memory[arg].bytes;
    m->sf_bytes = m->cast.call.memory[arg + 1].bytes;
    m->f = (struct qn_fidelity){.q = q,
                                .recipe = qn_context_recipe(host_ctx, recipe),
                                .numbers =
                                    m->cast.call.memory[QUERN_ARG_INPUT].data,
                                .copy = &m->copy,
                                .starts = m->starts,
                                .sizes = m->cast.sizes};
    assert_int_equal(qn_fidelity_tolerance(host_ctx, &m->f, 1, &m->tolerance),
                     QUERN_OK);
}

static int held(const struct made *m)
{
    double error;
    int fine = 0;

    assert_int_equal(qn_fidelity_judge(&m->f, m->tolerance, 64, &error, &fine),
                     QUERN_OK);
    return fine;
}

/* A recipe's copy with values, or scales, one place off, as a cast with another
   stride leaves them; put back afterwards. */
static void disturb(struct made *m, void *data, size_t bytes, size_t by)
{
    char *place = data, *before = malloc(bytes);

    if (bytes > 2 * by) {
        memcpy(before, place, bytes);
        memmove(place + by, before, bytes - by);
        if (held(m))
            fail_msg("%s, of=%d, copies=%d: %zu bytes, moved by %zu, pass",
                     m->f.q.recipe, m->f.q.of, m->f.q.copies, bytes, by);
        memcpy(place, before, bytes);
    }
    free(before);
}

static void judge(const char *recipe, const char *of, const char *copy)
{
    struct made m;

    make(&m, recipe, of, copy);
    if (!held(&m))
        fail_msg("%s of=%s copies=%s: a right copy fails", recipe, of, copy);
    disturb(&m, m.copy.data, m.bytes, 16);
    /* swapped scales, and one wrong scale */
    if (m.sf_bytes > 64) {
        if (*of != 'w') /* neighbours in squares are nearly alike */
            disturb(&m, m.copy.sf, m.sf_bytes, 4);
        memset(m.copy.sf, 0, 4);
        if (held(&m))
            fail_msg("%s of=%s copies=%s: a wrong scale passes", recipe, of,
                     copy);
    }
    qn_call_free(&m.cast.call);
}

TEST(test_fidelity)
{
    static const char *const recipes[] = {"fp8_tensor", "fp8_row", "fp8_block",
                                          "mxfp8",      "mxfp4",   "nvfp4"};
    static const char *const ofs[] = {"x", "w", "dy"};

    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        for (int of = 0; of < 3; of++) {
            judge(recipes[i], ofs[of], "rowwise");
            judge(recipes[i], ofs[of], "columnwise");
        }
}

/* Padding of a group is zero. */
TEST(test_fidelity_of_padding)
{
    struct made m;

    make(&m, "mxfp8", "x", "columnwise");
    assert_true(held(&m));
    ((unsigned char *)m.copy.data)[131] = 0x38;
    assert_false(held(&m));
    qn_call_free(&m.cast.call);
}
