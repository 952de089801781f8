/* SPDX-License-Identifier: Apache-2.0 */
/*
** sample.c: sampled rows of D, and their expected values.
**
** Each group's sampled rows are a product of their own: those rows of A, all of
** the group's B. One oracle gives it to the host backend as a problem of one
** group; the other computes it here, in double.
*/
#include "oracle/sample.h"

#include <stdlib.h>
#include <string.h>

#include "oracle/adapted.h"
#include "oracle/copies.h"
#include "base/element.h"
#include "base/error.h"
#include "base/random.h"
#include "base/types.h"
#include "problem/geometry.h"
#include "product/plan.h"
#include "oracle/layer_reference.h"

/* -------------------------------------------------------------------- rows */

static int64_t rows_of(const struct qn_job *job, int group)
{
    return qn_job_length(job, QUERN_AXIS_M, group);
}

/*
** How many rows to sample. Some 4e9 products take a few seconds in double on
** one core.
*/
static int64_t affordable(const struct qn_job *job, int64_t all, int64_t most)
{
    const double row = qn_job_flops(job) / 2 / (double)(all + 1) + 1;
    const double rows = 4e9 / row + 16;

    if (most > 0 && (double)most < rows)
        return most < all ? most : all;
    return rows < (double)all ? (int64_t)rows : all;
}

static int compare_rows(const void *a, const void *b)
{
    const struct qn_sample_row *x = a, *y = b;

    if (x->group != y->group)
        return x->group - y->group;
    return (x->row > y->row) - (x->row < y->row);
}

static void add_row(struct qn_sample *s, int group, int64_t row)
{
    s->rows[s->count++] = (struct qn_sample_row){.group = group, .row = row};
}

/* The groups' first and last rows, while there is room for half of `most`. */
static void take_edges(const struct qn_job *job, int64_t most,
                       struct qn_sample *s)
{
    for (int g = 0; g < job->problem.groups && s->count < most / 2; g++) {
        if (rows_of(job, g) > 0)
            add_row(s, g, 0);
        if (rows_of(job, g) > 1)
            add_row(s, g, rows_of(job, g) - 1);
    }
}

/* The n-th row of all groups. */
static void add_numbered(const struct qn_job *job, int64_t number,
                         struct qn_sample *s)
{
    int g = 0;

    while (number >= rows_of(job, g))
        number -= rows_of(job, g++);
    add_row(s, g, number);
}

/* Sort the rows; one that was drawn twice counts once. */
static void drop_twins(const struct qn_job *job, struct qn_sample *s)
{
    int64_t kept = 0;

    qsort(s->rows, (size_t)s->count, sizeof *s->rows, compare_rows);
    for (int64_t i = 0; i < s->count; i++)
        if (kept == 0 || compare_rows(&s->rows[kept - 1], &s->rows[i]))
            s->rows[kept++] = s->rows[i];
    s->count = kept;
    for (int64_t i = 0; i < s->count; i++) {
        s->rows[i].at = s->elements;
        s->elements += qn_job_columns(job, s->role, s->rows[i].group);
    }
}

int qn_sample_take(const struct qn_job *job, int role, int64_t most,
                   struct qn_sample *s)
{
    uint64_t state = 7;
    int64_t all = 0;

    memset(s, 0, sizeof *s);
    s->role = role;
    for (int g = 0; g < job->problem.groups; g++)
        all += rows_of(job, g);
    most = affordable(job, all, most);
    s->rows = calloc((size_t)most + 2, sizeof *s->rows);
    if (!s->rows)
        return qn_error_memory();
    if (most == all) {
        for (int g = 0; g < job->problem.groups; g++)
            for (int64_t i = 0; i < rows_of(job, g); i++)
                add_row(s, g, i);
    } else {
        take_edges(job, most, s);
        while (s->count < most)
            add_numbered(job, (int64_t)(qn_random_next(&state) % (uint64_t)all),
                         s);
    }
    drop_twins(job, s);
    return QUERN_OK;
}

/* ------------------------------------------------------------------- parts */

/* The sampled rows of one group. */
struct part {
    const struct qn_job *job;
    const struct qn_sample_row *rows;
    int64_t count;
    int group;
    int role;                       /* whose rows */
    int64_t n, k;                   /* n: their columns */
    int64_t depth;                  /* k, and the adapters' rank */
    double *missed;                 /* squares of lora_t: errors, values */
    const struct qn_decode *decode; /* of A and B, where these are copies */
    int sums;                       /* dprob is wanted, a value for each row, */
    const struct qn_sample_row *sampled; /* of which this is the first, and */
    double *squares;                     /* the sum of its squared terms */
};

/* The next group that has some; 0 after the last. `*next` begins at 0. */
static int next_part(const struct qn_job *job, const struct qn_sample *s,
                     int64_t *next, struct part *part)
{
    if (*next == s->count)
        return 0;
    *part = (struct part){
        .job = job,
        .rows = s->rows + *next,
        .group = s->rows[*next].group,
        .role = s->role,
    };
    while (*next < s->count && s->rows[*next].group == part->group) {
        part->count++;
        ++*next;
    }
    part->n = qn_job_columns(job, s->role, part->group);
    part->k = qn_job_length(job, QUERN_AXIS_K, part->group);
    return 1;
}

/* From one element of A or B to the next along k. */
static size_t step_of(const struct qn_job *job, int role)
{
    const struct qn_geometry *g = &job->operands[role];

    return g->inner == QUERN_AXIS_K ? 1 : (size_t)g->columns;
}

/* C's value before a run: of its own memory, or D's. */
static float c_value(const struct part *p, int64_t i, int64_t j)
{
    const struct qn_job *job = p->job;
    const int role =
        job->problem.beta == QUERN_BETA_ANY ? QN_ROLE_C : QN_ROLE_D;
    const int64_t at = qn_job_element(job, role, p->group, p->rows[i].row, j);

    return qn_element_load(job->call.host[qn_job_arg(role)],
                           job->problem.d_type, (size_t)at);
}

/* -------------------------------------------------------- the host backend */

/* The same elements in the order [rows, k]. */
static void *gather_a(const struct part *p)
{
    const struct qn_job *job = p->job;
    const int type = job->operands[QN_ROLE_A].type;
    const size_t step = step_of(job, QN_ROLE_A);
    void *a = malloc((size_t)(p->count * p->k) * 4 + 64);

    for (int64_t i = 0; a && i < p->count; i++) {
        const size_t from =
            (size_t)qn_job_element(job, QN_ROLE_A, p->group, p->rows[i].row, 0);
        for (int64_t k = 0; k < p->k; k++)
            qn_element_store(a, type, (size_t)(i * p->k + k),
                             qn_element_load(job->call.host[QUERN_ARG_A], type,
                                             from + (size_t)k * step));
    }
    return a;
}

/* D before the run, or C: [rows, n]. */
static void *gather_c(const struct part *p)
{
    void *c = malloc((size_t)(p->count * p->n) * 4 + 64);

    for (int64_t i = 0; c && i < p->count; i++)
        for (int64_t j = 0; j < p->n; j++)
            qn_element_store(c, p->job->problem.d_type, (size_t)(i * p->n + j),
                             c_value(p, i, j));
    return c;
}

/* One group whose k is ragged, so that it may be 0; rows as they come. */
static void set_small(const struct part *p, struct qn_problem *problem)
{
    *problem = p->job->problem;
    problem->groups = 1;
    problem->m = p->count;
    problem->n = p->n;
    problem->k = p->k;
    problem->ragged = QUERN_AXIS_K;
    problem->a_major = QUERN_MAJOR_K;
    problem->alignment = 2;
    problem->pointers = problem->outside = 0;
    problem->gather = problem->topk = 0;
    problem->tokens = 0;
    problem->scatter = 0;
    problem->split[0] = '\0';
}

/* A and C gathered row by row; B stays where it is, in rows of all groups. */
static void point_small(const struct part *p, void *a, void *d,
                        struct quern_args *args)
{
    const struct qn_job *job = p->job;
    const struct qn_geometry *g = &job->operands[QN_ROLE_B];
    const size_t at = (size_t)qn_job_element(job, QN_ROLE_B, p->group, 0, 0);

    args->of[QUERN_ARG_A].data = a;
    args->of[QUERN_ARG_LENGTHS].data = (void *)&p->k;
    args->of[QUERN_ARG_LENGTHS].type = QUERN_I64;
    args->of[QUERN_ARG_B].data = (char *)job->call.host[QUERN_ARG_B] +
                                 at * (size_t)qn_type_bits(g->type) / 8;
    args->of[QUERN_ARG_B].stride = g->columns;
    args->of[QUERN_ARG_D].data = d;
    if (job->problem.beta == QUERN_BETA_ANY)
        args->of[QUERN_ARG_C].data = d;
    if (job->problem.alpha)
        args->of[QUERN_ARG_ALPHA].data = (void *)&job->factors[0][p->group];
    if (job->problem.beta == QUERN_BETA_ANY)
        args->of[QUERN_ARG_BETA].data = (void *)&job->factors[1][p->group];
}

/* D comes out in place of C. */
static int run_small(const struct part *p, void *a, void *d)
{
    _Alignas(64) unsigned char workspace[QN_WORKSPACE_BYTES] = {0};
    struct quern_plan_options host = QUERN_PLAN_OPTIONS_INIT;
    struct qn_line line = {.kind = QN_LINE_PRODUCT};
    struct qn_call call = {.rows = 0};
    int code;

    host.backend = QUERN_BACKEND_HOST;
    set_small(p, &line.of.product);
    code = qn_call_plan(&call, p->job->call.ctx, &line, &host);
    if (!code) {
        point_small(p, a, d, &call.args);
        call.args.of[QUERN_ARG_WORKSPACE].data = workspace;
        code = quern_run(call.plan, &call.args, NULL);
    }
    if (!code)
        code = quern_check(call.plan, &call.args, NULL);
    qn_call_free(&call);
    return code;
}

int qn_sample_host(const struct qn_job *job, const struct qn_sample *s,
                   double *reference)
{
    int code = QUERN_OK;
    struct part p;

    for (int64_t next = 0; !code && next_part(job, s, &next, &p);) {
        void *a = gather_a(&p);
        void *d = job->problem.beta == QUERN_BETA_ZERO
                      ? malloc((size_t)(p.count * p.n) * 4 + 64)
                      : gather_c(&p);

        code = a && d ? QUERN_OK : qn_error_memory();
        if (!code && p.n > 0)
            code = run_small(&p, a, d);
        for (int64_t i = 0; !code && i < p.count * p.n; i++)
            reference[p.rows[0].at + i] =
                qn_element_load(d, job->problem.d_type, (size_t)i);
        free(a);
        free(d);
    }
    return code;
}

/* ------------------------------------------------------------------ float64 */

/* A row of A or B inside a group, as doubles. */
static void load_run(const struct part *p, int role, int64_t row, double *out)
{
    const struct qn_job *job = p->job;
    const size_t at = (size_t)qn_job_element(job, role, p->group, row, 0);
    const size_t step = step_of(job, role);

    if (job->operands[role].sf.scaling && job->operands[role].gathered) {
        qn_decode_row(&p->decode[role], 0, qn_job_token(job, p->group, row),
                      out);
        return;
    }
    if (job->operands[role].sf.scaling) {
        qn_decode_row(&p->decode[role], p->group, row, out);
        return;
    }
    for (int64_t k = 0; k < p->k; k++)
        out[k] =
            qn_element_load(job->call.host[qn_job_arg(role)],
                            job->operands[role].type, at + (size_t)k * step);
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

/* The factor of sampled row i; 1 without. */
static double probability_of(const struct part *p, int64_t i)
{
    const struct qn_job *job = p->job;
    const float *all = job->call.host[QUERN_ARG_PROB];

    return all ? (double)all[job->starts[p->group] + p->rows[i].row] : 1;
}

/* alpha * sum + bias, or + beta * C */
static double finish(const struct part *p, double sum, int64_t i, int64_t j)
{
    const struct qn_problem *problem = &p->job->problem;
    const float *bias = p->job->call.host[QUERN_ARG_BIAS];

    if (problem->alpha)
        sum *= (double)p->job->factors[0][p->group];
    if (problem->bias)
        sum += (double)bias[p->group * problem->n + j] *
               (problem->activation ? 1 : probability_of(p, i));
    if (problem->beta == QUERN_BETA_ONE)
        sum += (double)c_value(p, i, j);
    if (problem->beta == QUERN_BETA_ANY)
        sum += (double)p->job->factors[1][p->group] * (double)c_value(p, i, j);
    return sum;
}

/* dgrad back through an activation: the product's column for column j of D. */
static int64_t result_of(const struct qn_problem *p, int64_t j)
{
    const int64_t run = p->interleave ? p->interleave : p->n;

    return qn_geometry_halves(p) ? j / (2 * run) * run + j % run : j;
}

/* The value of P in row i, of operand `second` of a result. */
static double given(const struct part *p, int64_t i, int64_t result, int second)
{
    const struct qn_job *job = p->job;
    const struct qn_problem *problem = &job->problem;
    const int64_t run = problem->interleave ? problem->interleave : problem->n;
    int64_t column = result;

    if (qn_geometry_halves(problem))
        column = result / run * 2 * run + result % run + second * run;
    return (double)qn_element_load(
        job->call.host[QUERN_ARG_PRE], problem->d_type,
        (size_t)qn_job_element(job, QN_ROLE_P, p->group, p->rows[i].row,
                               column));
}

/* D's element in column j of row i from dh, or that column's part of dprob. */
static double went_back(const struct part *p, double dh, int64_t i, int64_t j)
{
    const struct qn_job *job = p->job;
    const struct qn_problem *problem = &job->problem;
    const struct qn_layer_numbers constants = {.limit = job->call.args.limit,
                                               .slope = job->call.args.slope,
                                               .shift = job->call.args.shift};
    const int64_t run = problem->interleave ? problem->interleave : problem->n;
    const int64_t result = p->sums ? j : result_of(problem, j);
    const double a = given(p, i, result, 0), b = given(p, i, result, 1);

    if (p->sums)
        return dh * qn_layer_reference_activate(&constants, problem->activation,
                                                a, b);
    return dh * probability_of(p, i) *
           qn_layer_reference_gradient(&constants, problem->activation, a, b,
                                       qn_geometry_halves(problem) &&
                                           j / run % 2);
}

/* The columns of the product that make column j: one, or the two operands of
   an activation. Returns how many. */
static int columns_of(const struct part *p, int64_t j, int64_t columns[2])
{
    const struct qn_problem *problem = &p->job->problem;
    const int64_t run =
        problem->interleave ? problem->interleave : problem->n / 2;

    columns[0] = j;
    if (qn_geometry_backward(problem)) {
        columns[0] = p->sums ? j : result_of(problem, j);
        return 1;
    }
    if (p->role != QN_ROLE_D || !qn_geometry_halves(problem))
        return 1;
    columns[0] = j / run * 2 * run + j % run;
    columns[1] = columns[0] + run;
    return 2;
}

/* D's element from them. */
static double activated(const struct part *p, const double x[2], int64_t i)
{
    const struct qn_job *job = p->job;
    const struct qn_layer_numbers constants = {.limit = job->call.args.limit,
                                               .slope = job->call.args.slope,
                                               .shift = job->call.args.shift};

    if (p->role != QN_ROLE_D || !job->problem.activation)
        return x[0];
    return qn_layer_reference_activate(&constants, job->problem.activation,
                                       x[0], x[1]) *
           probability_of(p, i);
}

/* One more term of row i's sum, and its square. */
static void add_term(const struct part *p, int64_t i, double term,
                     double *reference)
{
    const int64_t row = p->rows + i - p->sampled;

    reference[row] += term;
    p->squares[row] += term * term;
}

/* A column of B, and after it that of the adapters. */
static void load_b(const struct part *p, int64_t column, double *b)
{
    load_run(p, QN_ROLE_B, column, b);
    if (p->depth > p->k)
        qn_adapted_column(p->job, p->group, column, b + p->k);
}

/* A sampled row of A, and after it the row of lora_t as it was made, whose
   error is noted. */
static int load_a(const struct part *p, int64_t row, double *a)
{
    double expected[256], *const t = a + p->k;
    int code;

    load_run(p, QN_ROLE_A, row, a);
    if (p->depth == p->k)
        return QUERN_OK;
    qn_adapted_expect(p->job, p->group, a, p->k, expected);
    code = qn_adapted_made(p->job, p->group, row, t);
    for (int64_t r = 0; r < p->depth - p->k && !code; r++) {
        p->missed[0] += (t[r] - expected[r]) * (t[r] - expected[r]);
        p->missed[1] += expected[r] * expected[r];
    }
    return code;
}

/* Column j of all rows; `b` has room for two rows of B. */
static void refer_column(const struct part *p, int64_t j, const double *a,
                         double *b, double *reference)
{
    int64_t columns[2];
    const int count = columns_of(p, j, columns);

    for (int c = 0; c < count; c++)
        load_b(p, columns[c], b + c * p->depth);
    for (int64_t i = 0; i < p->count; i++) {
        double x[2] = {0};

        for (int c = 0; c < count; c++)
            x[c] = finish(p, dot(a + i * p->depth, b + c * p->depth, p->depth),
                          i, columns[c]);
        if (!qn_geometry_backward(&p->job->problem))
            reference[p->rows[i].at + j] = activated(p, x, i);
        else if (!p->sums)
            reference[p->rows[i].at + j] = went_back(p, x[0], i, j);
        else
            add_term(p, i, went_back(p, x[0], i, j), reference);
    }
}

/* Column by column, so that B is read once. */
static int refer_part(const struct part *p, double *reference)
{
    double *a = malloc((size_t)(p->count * p->depth) * sizeof *a + 1);
    double *b = malloc((size_t)p->depth * 2 * sizeof *b + 1);
    int code = a && b ? QUERN_OK : qn_error_memory();

    for (int64_t i = 0; !code && i < p->count; i++)
        code = load_a(p, p->rows[i].row, a + i * p->depth);
    for (int64_t j = 0; !code && j < p->n; j++)
        refer_column(p, j, a, b, reference);
    free(a);
    free(b);
    return code;
}

/* Nothing is shared with any kernel. */
static int refer(const struct qn_job *job, const struct qn_sample *s,
                 double *squares, double *missed, double *reference)
{
    struct qn_decode decode[2];
    void *memory[2][3] = {{NULL}};
    int code = QUERN_OK;
    struct part p;

    for (int role = QN_ROLE_A; role <= QN_ROLE_B && !code; role++)
        if (job->operands[role].sf.scaling)
            code = qn_copies_decode(job, role, &decode[role], memory[role]);
    for (int64_t next = 0; !code && next_part(job, s, &next, &p);) {
        p.decode = decode;
        p.sums = squares != NULL;
        p.squares = squares;
        p.sampled = s->rows;
        if (p.sums)
            p.n = job->problem.n;
        if (job->operands[QN_ROLE_A].sf.scaling)
            p.k = qn_decode_length(&decode[QN_ROLE_A], p.group);
        p.depth = p.k + job->problem.lora;
        p.missed = missed;
        code = refer_part(&p, reference);
    }
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++)
        qn_copies_free(memory[role]);
    return code;
}

int qn_sample_float64(const struct qn_job *job, const struct qn_sample *s,
                      double missed[2], double *reference)
{
    return refer(job, s, NULL, missed, reference);
}

int qn_sample_dprob(const struct qn_job *job, const struct qn_sample *s,
                    double *reference, double *squares)
{
    memset(reference, 0, (size_t)s->count * sizeof *reference);
    memset(squares, 0, (size_t)s->count * sizeof *squares);
    return refer(job, s, squares, NULL, reference);
}
