//$ include "common/parts.c"

/* Maps of each one's A and B as they lie in memory. */
struct part_maps {
    struct {
        tensor_map a, b;
    } part[PARTS];
};
