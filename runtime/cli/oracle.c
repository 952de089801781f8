/*
** oracle.c: is a result right?
*/
#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "error.h"
#include "random.h"
#include "types.h"

/* Rows of D that are looked at, in order, and how many each group has. */
struct sample {
    int64_t *rows;
    int64_t count;
    int64_t sizes[QUERN_MAX_GROUPS];
};

/* Tolerances of products of 16-bit values summed in fp32, by the type of D. */
static double tolerance(int d_type, int64_t k)
{
    switch (d_type) {
    case QUERN_BF16:
        return 4e-3;
    case QUERN_F16:
        return 6e-4;
    }
    return fmax(1e-5, 2e-9 * (double)k);
}

/* ------------------------------------------------------------------- sample */

/*
** How many rows to look at. Some 4e9 products take a few seconds in double on
** one core.
*/
static int64_t affordable(const struct qn_job *job, int64_t most)
{
    const double row = (double)job->problem.n * (double)job->problem.k + 1;
    const int64_t rows = (int64_t)(4e9 / row) + 16;

    if (most > 0 && most < rows)
        return most;
    return rows;
}

static int compare_rows(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The groups' first and last rows, while there is room for half of `most`. */
static void take_edges(const struct qn_job *job, int64_t most, struct sample *s)
{
    int64_t start = 0;

    for (int g = 0; g < job->problem.groups && s->count < most / 2; g++) {
        const int64_t size = job->sizes[g];
        if (size > 0)
            s->rows[s->count++] = start;
        if (size > 1)
            s->rows[s->count++] = start + size - 1;
        start += size;
    }
}

/* Sort the rows; one that was drawn twice is looked at once. */
static void drop_twins(struct sample *s)
{
    int64_t kept = 0;

    qsort(s->rows, (size_t)s->count, sizeof *s->rows, compare_rows);
    for (int64_t i = 0; i < s->count; i++)
        if (kept == 0 || s->rows[kept - 1] != s->rows[i])
            s->rows[kept++] = s->rows[i];
    s->count = kept;
}

/* How many sampled rows lie in each group; groups lie one behind the other. */
static void count_groups(const struct qn_job *job, struct sample *s)
{
    int64_t end = 0, i = 0;

    for (int g = 0; g < job->problem.groups; g++) {
        const int64_t first = i;
        end += job->sizes[g];
        while (i < s->count && s->rows[i] < end)
            i++;
        s->sizes[g] = i - first;
    }
}

/* The same rows on every machine: a result is judged alike everywhere. */
static int take_sample(const struct qn_job *job, int64_t most, struct sample *s)
{
    uint64_t state = 7;

    memset(s, 0, sizeof *s);
    most = affordable(job, most);
    if (most > job->rows)
        most = job->rows;
    s->rows = calloc((size_t)most + 2, sizeof *s->rows);
    if (!s->rows)
        return qn_error_memory();
    if (most == job->rows) {
        for (; s->count < most; s->count++)
            s->rows[s->count] = s->count;
    } else {
        take_edges(job, most, s);
        while (s->count < most)
            s->rows[s->count++] =
                (int64_t)(qn_random_next(&state) % (uint64_t)job->rows);
        drop_twins(s);
    }
    count_groups(job, s);
    return QUERN_OK;
}

/* --------------------------------------------------------------- references */

/* The sampled rows of A, one behind the other. */
static void *gather_a(const struct qn_job *job, const struct sample *s)
{
    const size_t row = job->need.args.a.bytes / (size_t)job->problem.m;
    char *rows = malloc(row * (size_t)s->count + 1);

    for (int64_t i = 0; rows && i < s->count; i++)
        memcpy(rows + row * (size_t)i,
               (const char *)job->a + row * (size_t)s->rows[i], row);
    return rows;
}

/* The sampled rows as a problem of their own, through the host backend. */
static int run_host(const struct qn_job *job, const struct sample *s, void *a,
                    void *d)
{
    const struct quern_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct quern_problem problem = job->problem;
    struct quern_description need;
    struct quern_plan *plan = NULL;
    void *workspace = NULL;
    int code;

    problem.m = s->count;
    problem.split[0] = '\0';
    code = quern_describe(job->ctx, &problem, &need);
    if (!code)
        code = quern_plan(job->ctx, &problem, &host, &plan);
    if (!code && !(workspace = aligned_alloc(256, 4096)))
        code = qn_error_memory();
    if (code)
        goto done;
    memset(workspace, 0, 4096);
    need.args.a.data = a;
    need.args.b.data = job->b;
    need.args.d.data = d;
    need.args.a.first_dims = s->sizes;
    need.args.a.sizes_type = QUERN_I64;
    need.args.workspace = workspace;
    code = quern_run(plan, &need.args, NULL);
    if (!code)
        code = quern_check(plan, &need.args, NULL);
done:
    quern_plan_free(plan);
    free(workspace);
    return code;
}

/* The reference as doubles, [count, n]. */
static int refer_host(const struct qn_job *job, const struct sample *s,
                      double *reference)
{
    const size_t values = (size_t)s->count * (size_t)job->problem.n;
    void *a = gather_a(job, s), *d = malloc(values * sizeof(float) + 1);
    int code = a && d ? run_host(job, s, a, d) : qn_error_memory();

    for (size_t i = 0; i < values && !code; i++)
        reference[i] = qn_element_load(d, job->problem.d_type, i);
    free(a);
    free(d);
    return code;
}

/* `count` elements, `step` apart, as doubles. */
static void load_run(const void *data, int type, size_t at, size_t step,
                     int64_t count, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = qn_element_load(data, type, at + (size_t)i * step);
}

/* Four sums, because one would wait for itself at every step. */
static double dot(const double *a, const double *b, int64_t count)
{
    double sums[4] = {0};
    int64_t i = 0;

    for (; i + 4 <= count; i += 4)
        for (int j = 0; j < 4; j++)
            sums[j] += a[i + j] * b[i + j];
    for (; i < count; i++)
        sums[0] += a[i] * b[i];
    return sums[0] + sums[1] + (sums[2] + sums[3]);
}

/* One group: `rows` sampled rows of A, in double, with all of B's columns. */
static void refer_group(const struct qn_job *job, int group, const double *a,
                        int64_t rows, double *b, double *reference)
{
    const struct quern_problem *p = &job->problem;
    const size_t n = (size_t)p->n, k = (size_t)p->k;
    const int by_k = p->b_major == QUERN_MAJOR_K;

    for (size_t j = 0; j < n; j++) {
        load_run(job->b, job->need.args.b.type,
                 (size_t)group * n * k + (by_k ? j * k : j), by_k ? 1 : n, p->k,
                 b);
        for (int64_t r = 0; r < rows; r++)
            reference[(size_t)r * n + j] = dot(a + (size_t)r * k, b, p->k);
    }
}

/* The reference in double, [count, n]: nothing shared with any kernel. */
static int refer_float64(const struct qn_job *job, const struct sample *s,
                         double *reference)
{
    const size_t n = (size_t)job->problem.n, k = (size_t)job->problem.k;
    double *a = malloc((size_t)s->count * k * sizeof *a + 1);
    double *b = malloc(k * sizeof *b + 1);
    int64_t row = 0;

    for (int64_t i = 0; a && i < s->count; i++)
        load_run(job->a, job->need.args.a.type, (size_t)s->rows[i] * k, 1,
                 job->problem.k, a + (size_t)i * k);
    for (int g = 0; a && b && g < job->problem.groups; g++) {
        refer_group(job, g, a + (size_t)row * k, s->sizes[g], b,
                    reference + (size_t)row * n);
        row += s->sizes[g];
    }
    free(a);
    free(b);
    return a && b ? QUERN_OK : qn_error_memory();
}

/* -------------------------------------------------------------- judgement */

/* The error over all sampled rows; a NaN makes it NaN. */
static int compare(const struct qn_job *job, const struct sample *s,
                   const double *reference, double *error)
{
    const size_t n = (size_t)job->problem.n;
    const size_t bytes = job->need.args.d.bytes / (size_t)job->problem.m;
    double difference = 0, norm = 0;
    void *row = malloc(bytes + 1);
    int code = row ? QUERN_OK : qn_error_memory();

    for (int64_t i = 0; i < s->count && !code; i++) {
        code = qn_memory_read(&job->d_memory, (size_t)s->rows[i] * bytes, row,
                              bytes);
        for (size_t j = 0; j < n && !code; j++) {
            const double want = reference[(size_t)i * n + j];
            const double gap =
                qn_element_load(row, job->problem.d_type, j) - want;
            difference += gap * gap;
            norm += want * want;
        }
    }
    free(row);
    *error = norm > 0 ? sqrt(difference / norm) : sqrt(difference);
    return code;
}

/* Rows past the last group keep the poison that they had. */
static int look_outside(const struct qn_job *job, int *untouched)
{
    const size_t bytes = job->need.args.d.bytes / (size_t)job->problem.m;
    const size_t start = bytes * (size_t)job->rows;
    const size_t count = job->need.args.d.bytes - start;
    unsigned char *data = malloc(count + 1);
    int code = data ? qn_memory_read(&job->d_memory, start, data, count)
                    : qn_error_memory();

    *untouched = 1;
    for (size_t i = 0; i < count && !code; i++)
        *untouched &= data[i] == QN_MEMORY_POISON;
    free(data);
    return code;
}

/* No byte around any buffer may have changed. */
static int look_at_guards(const struct qn_job *job, int *guards)
{
    const struct qn_memory *all[] = {&job->a_memory, &job->b_memory,
                                     &job->d_memory, &job->sizes_memory,
                                     &job->workspace};
    int code = QUERN_OK;

    *guards = 1;
    for (int i = 0; i < 5 && !code; i++) {
        int intact = 0;
        code = qn_memory_guards(all[i], &intact);
        *guards &= intact;
    }
    return code;
}

int qn_oracle_judge(struct qn_job *job, enum qn_oracle oracle, int64_t most,
                    struct qn_verdict *verdict)
{
    struct sample s;
    double *reference = NULL;
    int code;

    *verdict = (struct qn_verdict){
        .oracle = oracle == QN_ORACLE_HOST ? "host backend" : "float64",
        .tolerance = tolerance(job->problem.d_type, job->problem.k),
    };
    if (job->problem.ragged != QUERN_AXIS_M || job->problem.m == 0)
        return qn_error_set(QUERN_EINVAL,
                            "--check compares rows of a ragged m");
    code = take_sample(job, most, &s);
    if (!code && !(reference = malloc((size_t)(s.count * job->problem.n + 1) *
                                      sizeof *reference)))
        code = qn_error_memory();
    if (!code)
        code = oracle == QN_ORACLE_HOST ? refer_host(job, &s, reference)
                                        : refer_float64(job, &s, reference);
    if (!code)
        code = compare(job, &s, reference, &verdict->error);
    if (!code)
        code = look_outside(job, &verdict->untouched);
    if (!code)
        code = look_at_guards(job, &verdict->guards);
    verdict->rows = s.count;
    verdict->passed = !code && verdict->error <= verdict->tolerance &&
                      verdict->guards && verdict->untouched;
    free(reference);
    free(s.rows);
    return code;
}

void qn_oracle_print(const struct qn_verdict *verdict, char *text, size_t size)
{
    snprintf(text, size,
             "%s: error %.2e (at most %.0e) against %s on %lld rows%s%s",
             verdict->passed ? "passed" : "FAILED", verdict->error,
             verdict->tolerance, verdict->oracle, (long long)verdict->rows,
             verdict->guards ? "" : "; bytes around a buffer were written",
             verdict->untouched ? "" : "; rows of no group were written");
}
