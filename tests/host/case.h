/*
** case.h: one grouped problem with its sizes, its data and its expected result.
**
** Shared by the host tests and the GPU suite. The layout of the groups is
** fixed first (qt_case_layout), then the data are drawn (qt_data_make), then
** the float64 product is computed (qt_data_reference); any D that a backend
** wrote can be compared with it (qt_compare).
**
** Everything that no kernel may use is NaN: rows of A outside every group, the
** columns between rows, and D before the run. So a wrong address shows up as a
** NaN in D, and an element that was not written as the poison that it held.
*/
#ifndef QT_CASE_H
#define QT_CASE_H

#include <stddef.h>
#include <stdint.h>

#include "quern.h"

/* How the caller tells the groups' places. */
enum qt_form {
    QT_FIRST,   /* first_dims alone: groups one behind the other */
    QT_OFFSETS, /* offsets alone: the first group need not start at row 0 */
    QT_BOTH,    /* both, with gaps between the groups */
    QT_FORMS
};

/*
** Normal values test the rounding. Small integers make every product and every
** partial sum exact, so that a result must be right to the bit whatever the
** order of the sums is.
*/
enum qt_fill { QT_NORMAL, QT_INTEGER };

#define QT_POISON 0xFF /* a byte; repeated, a NaN in BF16, F16 and F32 */

struct qt_case {
    const char *what; /* the name in messages */
    int groups;
    int64_t m, n, k;
    int sizes_type; /* QUERN_I32 or QUERN_I64 */
    int form;       /* enum qt_form */
    int fill;       /* enum qt_fill */
    int64_t a_pad;  /* elements between two rows of A, of B and of D */
    int64_t b_pad;
    int64_t d_pad;
    uint64_t seed;
    int64_t start[QUERN_MAX_GROUPS + 1]; /* [groups]: where the last one ends */
    int64_t length[QUERN_MAX_GROUPS];
};

/* Lengths of groups that have broken kernels before. */
struct qt_pattern {
    const char *name;
    int groups;
    int count; /* of the lengths, repeated for more groups */
    int64_t length[12];
    int64_t random; /* where count is 0: uniform in [0, random] */
};
extern const struct qt_pattern qt_patterns[];
extern const int qt_npatterns;

struct qt_data {
    uint16_t *a; /* [m, k + a_pad] */
    uint16_t *b; /* [groups, n, k + b_pad] */
    void *first; /* [groups] of sizes_type */
    void *offsets;
    size_t a_bytes, b_bytes, first_bytes, offsets_bytes;
    double *ref; /* [m, n], or NULL; rows outside the groups are 0 */
};

/* ORDER: splitmix64, so that a seed gives the same data on any machine. */
uint64_t qt_random(uint64_t *state);
int64_t qt_random_below(uint64_t *state, int64_t bound);

uint16_t qt_bf16(float value); /* to nearest even; a NaN stays one */
float qt_f32(uint16_t bf16);

/* Place the groups of a pattern; sets groups, start, length and m. */
void qt_case_layout(struct qt_case *, const struct qt_pattern *);

size_t qt_d_bytes(const struct qt_case *, int d_type);

/* 0, or -1 when memory ran out; `data` may be freed in both cases. */
int qt_data_make(const struct qt_case *, struct qt_data *data);
int qt_data_reference(const struct qt_case *, struct qt_data *data,
                      int threads);
void qt_data_free(struct qt_data *);

/* Write starts and lengths as the caller's arrays; `first` or `offsets` may be
   NULL. QT_OFFSETS and QT_BOTH write groups + 1 offsets. */
void qt_sizes_write(const struct qt_case *, void *first, void *offsets);

/* Set one element of such an array. */
void qt_sizes_set(void *array, int sizes_type, int index, int64_t value);

struct qt_verdict {
    double error;   /* |d - ref| / |ref|; NaN fails */
    double rounded; /* the same for the reference, rounded once */
    char text[256]; /* "" if d is right, else the first thing wrong */
};

/* 1 if all of D is as promised, the rows outside the groups included. */
int qt_compare(const struct qt_case *, const struct qt_data *data, int d_type,
               const void *d, struct qt_verdict *verdict);

/* Fill the arguments of a run that differ between cases: strides, bytes,
   and the type of the sizes. `args` comes from quern_describe. */
void qt_args_set(const struct qt_case *, struct quern_args *args);

/* ------------------------------------------------------------- lying sizes */

/* One wrong entry in otherwise right sizes, and what must be reported. */
struct qt_lie {
    const char *name;
    int form;
    int in_offsets; /* the array with the wrong entry: offsets, else first */
    int index;
    int64_t value;
    int past_m;   /* value counts from m */
    int only_i64; /* the value does not fit into int32 */
    int group;    /* the first group that breaks a rule */
};
extern const struct qt_lie qt_lies[];
extern const int qt_nlies;

/* The case that the table is written for: 6 groups of 16 rows, m = 120. */
void qt_lie_case(struct qt_case *, const struct qt_lie *, int sizes_type);

/* Put the lie into arrays that qt_sizes_write filled. */
void qt_lie_apply(const struct qt_case *, const struct qt_lie *, void *first,
                  void *offsets);

#endif
