//$ -- SPDX-License-Identifier: Apache-2.0
/* The destination of the quantized tensors, laid out as quantize does, and the scales of the
   groups' rows. */
struct copies {
    float *row_sf;        /* [results / 128][rows with padding] */
    long long row_stride; /* rows with padding */
    unsigned char *column; /* [results][column_stride], or null: not wanted */
    long long column_stride;
    float *column_sf; /* [128s of rows][results] */
    int results;
    const struct memory *memory;
};
