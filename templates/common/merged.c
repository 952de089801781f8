//$ -- SPDX-License-Identifier: Apache-2.0
/* One of the products that a launch merges, as the runtime has it. COUPLED: microbatches */
struct microbatch {
    const void *a, *b, *first_dims, *offsets;
    const void *a_sf, *b_sf;
    const float *a_global, *b_global;
    long long a_stride, b_stride, a_sf_stride, b_sf_stride;
    int sizes_bytes, k;
};

struct microbatches {
    struct microbatch part[MICROBATCHES];
};
