//$ -- SPDX-License-Identifier: Apache-2.0
//$ local across = scale and scale.k > 0 and scale.k or 128
//$ local down = scale and scale.rows > 0 and scale.rows or 1
#define FN static inline __attribute__((unused))
enum { IN_COPY, IN_BF16, IN_F16, IN_F32 }; /* types before the cast; COUPLED: types */
enum { PLAIN, FORWARD, BACKWARD };         /* COUPLED: forms */
enum {
    TILE = 128$(scale and "," or "")
//$ if scale then
    ACROSS = $(across), /* values of a line that share a scale */
    DOWN = $(down),     /* lines that share it */
    SF_LINES = $(scale.lines) /* that share a stored one */
//$ end
};

//$ once "cast/arith.c"
//$ for _, type in ipairs { "bf16", "f16", "f32", element.type, scale and scale.type or "f32" } do
//$   once("cast/from_" .. type .. ".c")
//$ end
//$ for _, type in ipairs { "bf16", "f16", "f32" } do
//$   once("cast/to_" .. type .. ".c")
//$ end
//$ if op == "quantize" and scale then
//$   once("cast/to_" .. element.type .. ".c")
//$   if scale.stochastic then
//$     once("cast/to_" .. element.type .. "_stochastic.c")
//$     once "cast/random.c"
//$   end
//$   if scale.type == "e4m3" then
//$     once "cast/to_e4m3.c"
//$   end
//$ end
//$ if op ~= "dequantize" then
//$   if scale and scale.hadamard then
//$     once "cast/hadamard.c"
//$   end
//$   once "cast/activation.c"
//$ end
//$ if of ~= "w" then
//$ include "common/sizes.c"

//$ include "common/check_sizes.c"

//$ end
//$ if scale then
//$ include "quantize/storage.c"

//$ end
//$ include "quantize/shape.c"

//$ if scale then
//$ include "quantize/value.c"

typedef $(scale.code) sf_element;
//$ else
typedef void sf_element; /* there are none */
//$ end

/* One quantized tensor, and the state of its scales. */
struct copy {
    unsigned char *data; /* null: not wanted */
    long long stride;    /* values from one line to the next */
    sf_element *sf;
    float *global;
    unsigned int *amax; /* the largest magnitudes of scales that span more than a tile, or null */
};

/* A run's arguments, for one worker. */
struct work {
    int worker, workers;
    int input, form;
    const void *in;
//$ if of == "w" then
    const void *const *in_pointers; /* each group's matrix, or null */
//$ end
//$ if params.gather then
    const int *gather; /* null, or the pair of each row, whose token is the row to read */
    int topk;
//$ end
    long long in_stride, in_group_stride;
    const void *saved;
    long long saved_stride;
    const float *probability, *bias;
    struct copy row, column;
    float *dbias, *dprob;
    const float *partials, *row_partials; /* of these two, a product's sums */
    int dbias_add; /* 1: dbias is added to */
    int activation, interleave;
    float limit, slope, shift;
    const float *delayed; /* factor, and its inverse */
    float *history;
    const unsigned long long *random;
    void *out;
    long long out_stride;
    int align;
    struct shape all;
};

/* A row of a group among those of all groups. */
FN long long row_of(const struct work *w, const struct group *g, int row)
{
//$ if of == "w" then
    return (long long)g->number * w->all.m + row;
//$ else
    (void)w;
    return g->start + row;
//$ end
}
