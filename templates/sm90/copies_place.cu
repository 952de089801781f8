//$ -- SPDX-License-Identifier: Apache-2.0
//$ local small = a.scale.k == 32
//$ if small then
//$ include("quantize/storage.c", { scale = a.scale })

//$ include("quantize/shape.c", { scale = a.scale, of = "x" })

typedef $(a.scale.code) sf_element;

//$ include("quantize/store_sf.c", { scale = a.scale })

//$ end
/* The destination of the quantized tensors, laid out as quantize does, and the scales of the
   groups' rows. */
struct copies {
//$ if small then
    sf_element *row_sf;
//$ else
    float *row_sf;        /* [results / 128][rows with padding] */
    long long row_stride; /* rows with padding */
//$ end
    unsigned char *column; /* [results][column_stride], or null: not wanted */
    long long column_stride;
//$ if small then
    sf_element *column_sf;
    struct shape all; /* of the results */
//$ else
    float *column_sf; /* [128s of rows][results] */
    int results;
//$ end
    const struct memory *memory;
};
