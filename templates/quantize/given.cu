//$ -- SPDX-License-Identifier: Apache-2.0
//$ local plain = form == "plain" and input.type ~= "copy"
//$ include "quantize/packed.cu"

/* The source of values. */
struct source {
    const void *in;
//$ if plain and of == "w" then
    const void *const *pointers; /* or each group's matrix, and where rows are decides as well */
//$ end
    long long in_stride;
    int paired; /* several neighbours can be read at once */
//$ if params.gather then
    const int *gather; /* null, or the pair of each row, whose token is the row to read */
    int topk;
//$ end
//$ if form ~= "plain" then
    const void *saved;
    long long saved_stride;
    const float *probability;
    int activation, interleave;
    float limit, slope, shift;
//$ end
//$ if input.type == "copy" then
    const unsigned char *row;
    long long row_stride;
    const sf_element *row_sf;
    const float *row_global;
//$ end
    struct shape all;
};

//$ if input.type ~= "copy" then
typedef $(input.bits == 16 and "unsigned short" or "float") in_element;
//$ end
