/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c: the descriptor that the runtime reads, from a point's values. */
#include "grid/grid.h"
#include "lua/base.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct qn_kernel, member)

/* An integer field, or a list of `count` of them. */
static const struct {
    const char *name;
    size_t offset;
    int count;
    int least, most;
    int otherwise; /* where a spec does not give it */
    const char *rule;
} rows[] = {
    {"tile", AT(tile), 3, 1, 65536, 0, "3 whole numbers from 1: m, n, k"},
    {"cluster", AT(cluster), 2, 1, 16, 1, "2 whole numbers from 1 to 16"},
    {"stages", AT(stages), 1, 0, 64, 0, "a whole number from 0 to 64"},
    {"threads", AT(threads), 1, 1, 1024, 1, "a whole number from 1 to 1024"},
    {"microbatches", AT(microbatches), 1, 1, QUERN_MAX_MICROBATCHES, 1,
     "a whole number from 1 to 8"},
    {"ctas", AT(ctas), 1, 1, 32, 1, "a whole number from 1 to 32"},
    {"smem", AT(smem), 1, 0, 232448, 0, "a whole number from 0 to 232448"},
    {"a_box", AT(a.box), 2, 1, 256, 0, "2 whole numbers from 1 to 256"},
    {"b_box", AT(b.box), 2, 1, 256, 0, "2 whole numbers from 1 to 256"},
    {"d_box", AT(d.box), 2, 1, 256, 0, "2 whole numbers from 1 to 256"},
    {"a_sf_box", AT(a.sf_box), 2, 1, 256, 0, "2 whole numbers from 1 to 256"},
    {"b_sf_box", AT(b.sf_box), 2, 1, 256, 0, "2 whole numbers from 1 to 256"},
    {"interleave", AT(interleave), 1, 0, 65536, 0,
     "a whole number from 0 to 65536"},
};
enum { INTERLEAVE = sizeof rows / sizeof *rows - 1 };

/* The bytes of a swizzle; 128 where a box is given. */
static const struct {
    const char *name;
    size_t swizzle, box;
} swizzles[] = {
    {"a_swizzle", AT(a.swizzle), AT(a.box)},
    {"b_swizzle", AT(b.swizzle), AT(b.box)},
    {"d_swizzle", AT(d.swizzle), AT(d.box)},
};

/* Words. */
static const struct {
    const char *name;
    size_t offset;
} names[] = {
    {"schedule", AT(schedule)},     {"addend", AT(addend)},
    {"dequantize", AT(dequantize)}, {"becomes", AT(becomes)},
    {"quantize", AT(quantize)},     {"activation", AT(activation)},
};
enum {
    ACTIVATION = sizeof names / sizeof *names - 1,
    QUANTIZE = ACTIVATION - 1
};

/* The axis or derive that gives a value, to blame it on that line. */
static struct qg_location place_of(const struct qg_kernels *kernels,
                                   const char *name)
{
    for (int i = 0; i < kernels->count; i++)
        if (kernels->items[i]->kind <= QG_DERIVE &&
            !strcmp(kernels->items[i]->name, name))
            return kernels->items[i]->word->location;
    return kernels->location;
}

static int wrong(struct qg *q, const struct qg_kernels *kernels,
                 const struct qn_kernel *kernel, const char *name,
                 const char *rule)
{
    qg_diag_note(q, place_of(kernels, name), QG_E_KERNEL_FIELD, name,
                 kernel->name, rule);
    return 1;
}

/* The integer on top of the stack. */
static int in_range(lua_State *L, int least, int most, int *out)
{
    lua_Integer value = lua_tointeger(L, -1);

    if (!lua_isinteger(L, -1) || value < least || value > most)
        return 0;
    *out = (int)value;
    return 1;
}

/* The value on top of the stack into `out`; 0 if it breaks the row's rule. */
static int take(lua_State *L, int row, int *out)
{
    int fine = 1;

    if (rows[row].count == 1)
        return in_range(L, rows[row].least, rows[row].most, out);
    if (!qg_frozen_content(L, -1))
        return 0;
    fine = lua_rawlen(L, -1) == (size_t)rows[row].count;
    for (int i = 0; i < rows[row].count && fine; i++) {
        lua_rawgeti(L, -1, i + 1);
        fine = in_range(L, rows[row].least, rows[row].most, &out[i]);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return fine;
}

/* One field of the descriptor. Returns 0, or 1 and noted. */
static int fill_row(struct qg *q, const struct qg_kernels *kernels,
                    struct qn_kernel *kernel, int row)
{
    int *out = (int *)((char *)kernel + rows[row].offset);
    int error = 0;

    if (lua_getfield(q->L, -1, rows[row].name) == LUA_TNIL)
        for (int i = 0; i < rows[row].count; i++)
            out[i] = rows[row].otherwise;
    else if (!take(q->L, row, out))
        error = wrong(q, kernels, kernel, rows[row].name, rows[row].rule);
    lua_pop(q->L, 1);
    return error;
}

/* A box without a swizzle would make every access a bank conflict, so there is
   one unless the spec says otherwise. */
static int fill_swizzle(struct qg *q, const struct qg_kernels *kernels,
                        struct qn_kernel *kernel, int row)
{
    int *out = (int *)((char *)kernel + swizzles[row].swizzle);
    const int *box = (const int *)((char *)kernel + swizzles[row].box);
    int error = 0;

    if (lua_getfield(q->L, -1, swizzles[row].name) == LUA_TNIL)
        *out = box[0] ? 128 : 0;
    else if (!in_range(q->L, 0, 128, out) ||
             (*out != 0 && *out != 32 && *out != 64 && *out != 128))
        error =
            wrong(q, kernels, kernel, swizzles[row].name, "0, 32, 64 or 128");
    lua_pop(q->L, 1);
    return error;
}

/* A name that the runtime compares; "" where a spec does not give it. */
static int fill_name(struct qg *q, const struct qg_kernels *kernels,
                     struct qn_kernel *kernel, int row)
{
    const char **out = (const char **)((char *)kernel + names[row].offset);
    int type = lua_getfield(q->L, -1, names[row].name), error = 0;
    const char *text = type == LUA_TSTRING ? lua_tostring(q->L, -1) : "";

    if (type != LUA_TSTRING && type != LUA_TNIL)
        error = wrong(q, kernels, kernel, names[row].name, "a name");
    else
        *out = qg_mem_string(q, text, strlen(text));
    lua_pop(q->L, 1);
    return error;
}

/* All fields that a spec gives through axes and derives, so that the runtime
   needs no name to know them. Returns how many errors were noted. */
int qg_describe_fill(struct qg *q, const struct qg_kernels *kernels,
                     struct qn_kernel *kernel)
{
    int errors = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        errors += fill_row(q, kernels, kernel, (int)i);
    for (size_t i = 0; i < sizeof swizzles / sizeof *swizzles; i++)
        errors += fill_swizzle(q, kernels, kernel, (int)i);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        errors += fill_name(q, kernels, kernel, (int)i);
    return errors;
}

/* The same for the variant's own values, as far as a rejected point has
   them. */
int qg_describe_variant(struct qg *q, const struct qg_kernels *kernels,
                        struct qn_kernel *kernel)
{
    return fill_row(q, kernels, kernel, INTERLEAVE) +
           fill_name(q, kernels, kernel, QUANTIZE) +
           fill_name(q, kernels, kernel, ACTIVATION);
}
