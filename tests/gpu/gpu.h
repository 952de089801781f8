/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: the suite: what it runs, what it counts, and one run of one kernel. */
#pragma once

#include <stdint.h>

#include "gpu_driver.h"
#include "support/case.h"
#include "internal.h"

enum {
    GPU_MAX_KERNELS = 4096,
    GPU_MAX_VARIANTS = 1024,
    GPU_MAX_CHOICES = 256,  /* of one variant */
    GPU_MAX_FAILURES = 200, /* kept with their text; all are counted */
    GPU_GUARD = 4096,       /* bytes on both sides of each buffer */
    GPU_WIDE_GUARD = 1 << 20,
    GPU_TIMEOUT = 30 /* seconds until a kernel counts as hung */
};

/* A kernel for this GPU. */
struct gpu_kernel {
    const struct qn_kernel *kernel;
    int dropped; /* it cannot be compiled for use: it spills */
    int runs;    /* that were right */
};

/* Kernels that take the same operands and do the same with the product; the
   ops among them differ only by name, but where a recipe scales operands. */
struct gpu_variant {
    const struct qn_recipe *recipe; /* that scales A or B, else NULL */
    int type, d_type, a_major, b_major, ragged;
    int epilogue;                        /* enum qn_epilogue */
    unsigned ops;                        /* bit: enum quern_op */
    int count, kernels[GPU_MAX_CHOICES]; /* indices in gpu_kernels */
};

/* The runner of a problem: a kernel by name, or the model's choice. */
struct gpu_choice {
    const char *label;
    struct gpu_kernel *kernel; /* NULL: the model chooses */
    int op;
    int dequantize; /* enum quern_dequantize; PASS, FP8: the model chooses
                       products */
};

struct gpu_failure {
    const char *family;
    char text[512];
};

struct gpu_counts {
    int passed, failed, skipped;
    int refused; /* problems that a kernel does not take, with its reason */
};

struct gpu_options {
    const char *json, *only, *family, *commit;
    const char *cache;   /* as in struct quern_open_options */
    const char *specs;   /* a folder of them, or NULL */
    const char *digests; /* a file, or NULL */
    int quick, list, sanitize, stop, random, alike;
    double seconds; /* of a family; then it takes up no more lines; 0: never */
    uint64_t seed;
};

struct gpu_family {
    const char *name, *what;
    void (*run)(void);
    struct gpu_counts counts;
    double seconds;
    int ran;
    int apart; /* of no kernel of products: left out under --only */
};

extern struct gpu_options gpu_options;
extern struct quern_context *gpu_context;
extern struct gpu_device gpu_device;
extern struct gpu_kernel gpu_kernels[GPU_MAX_KERNELS];
extern int gpu_nkernels;
extern struct gpu_variant gpu_variants[GPU_MAX_VARIANTS];
extern int gpu_nvariants;
extern int gpu_threads; /* of the host, for references */

/* Run one(i, user) for each i below `count`, in their order but on so many
   threads, this one among them, and wait for all. */
void gpu_spread(int count, void (*one)(int i, void *user), void *user);

/* ------------------------------------------------------- gpu_main: counting */

/* Count one run of the family in progress; a text means failed. */
void gpu_record(const char *failure);
void gpu_refused(void);
void gpu_skip(const char *why);

/* Is the time over that --seconds gives the family? The rest is skipped. */
int gpu_late(void);

/* Count a line that was skipped as late, or has a result: "" is passed. */
void gpu_record_line(const char *text, int late, const char *result);

/* Write what is known and end with status 1: the device can't go on. */
_Noreturn void gpu_lost(const char *text);

/* ----------------------------------------------- gpu_variant: what is there */

/* The kernels and recipes that there are: quern's own, and those of --specs. */
const struct quern_registry *gpu_registry(void);

/* Is it of the folder that --specs names, if one is? For families of no kernel
   of products: the others have a run without. */
int gpu_variant_wants(const struct qn_recipe *);

/* All kernels of the registry for this GPU that `only` (may be NULL) matches,
   but those with an activation and those that quantize; into variants. */
void gpu_variant_list(const char *only);

/* Put the `wanted` kernels for this GPU that pass --only, one of so many
   with --quick, into `list`, which has room for `most`. Returns how many. */
int gpu_variant_pick(int (*wanted)(const struct qn_kernel *), int every,
                     const struct qn_kernel **list, int most);

/* The kernels of a variant; before them the model's choice for each op, if
   `models`. Returns how many. */
int gpu_variant_choices(const struct gpu_variant *, int models,
                        struct gpu_choice choices[GPU_MAX_CHOICES]);

/* The dequantize= that a problem of this kernel names: enum
   quern_dequantize. */
int gpu_variant_dequantize(const struct qn_kernel *);

/* The recipe of a kernel whose A or B is scaled, else NULL. */
const struct qn_recipe *gpu_variant_recipe(const struct qn_kernel *);

/* Does --only name one kernel in full? Then no other runs, in no strategy. */
int gpu_variant_alone(void);

/* Types, layout, ragged axis and recipe of a case. */
void gpu_variant_case(const struct gpu_variant *, struct qt_case *);

/* The i-th epilogue that kernels of one (enum qn_epilogue), or those of the
   variant, serve. C of GPU_APART is not part of D. */
enum { GPU_APART = 4 };
const struct qt_epilogue *gpu_epilogue(int epilogue, int i);
const struct qt_epilogue *gpu_variant_epilogue(const struct gpu_variant *,
                                               int i);

/* The kernel of that name, NULL if there is none for this GPU. --only does
   not restrict it: a dequantize pass may need it. */
struct gpu_kernel *gpu_variant_kernel(const char *name);

/* The axes that are not ragged: n, k, m as far as they are free. */
void gpu_variant_sides(struct qt_case *, int64_t x, int64_t y, int64_t z);

/* ------------------------------------------------------ gpu_buffer: memory */

/* Device memory between two guards of poison. */
struct gpu_buffer {
    gpu_address memory, data;
    size_t bytes, guard;
    int size_class; /* of the memory, which is used again */
};

/* All end the suite when the driver fails: nothing could follow. */
void gpu_buffer_make(struct gpu_buffer *, size_t bytes, size_t guard);
void gpu_buffer_upload(const struct gpu_buffer *, const void *from);
void gpu_buffer_download(const struct gpu_buffer *, void *to);
void gpu_buffer_poison(const struct gpu_buffer *); /* the guards too */
/* All NaN, except for the bytes that must be zero before the first run. */
void gpu_buffer_workspace(const struct gpu_buffer *);
void gpu_buffer_free(struct gpu_buffer *);

/* NULL, or the bytes written: the guards hold poison as before. */
const char *gpu_buffer_guarded(const struct gpu_buffer *, const char *name);

/* End the suite if a driver call failed. */
void gpu_must(int code, const char *what);

/* Wait for a stream; a hung or crashed kernel ends the suite with `what`. */
void gpu_wait(void *stream, const char *what);
void gpu_capture_begin(void *stream);
/* The graph, to be launched; NULL if a captured call refused with `code`. */
void *gpu_capture_end(void *stream, int code);

/* --------------------------------------------------- gpu_case: one problem */

/* Device memory of a problem, shared by all kernels that run it. */
enum gpu_part {
    GPU_A,
    GPU_B,
    GPU_C,
    GPU_FIRST,
    GPU_OFFSETS,
    GPU_ALPHA,
    GPU_BETA,
    GPU_A_SF,
    GPU_B_SF,
    GPU_A_GLOBAL,
    GPU_B_GLOBAL,
    GPU_A_POINTERS,
    GPU_B_POINTERS,
    GPU_C_POINTERS,
    GPU_PARTS
};

struct gpu_case {
    struct qt_case c;
    struct qt_data data;
    struct gpu_buffer parts[GPU_PARTS];
    size_t d_guard;
};

/* One run's output side: two at once need two. */
struct gpu_run {
    struct gpu_buffer d, d_pointers, workspace;
    struct quern_plan *plan;
    struct gpu_kernel *kernel; /* that the plan chose */
    struct quern_args args;
    void *stream;
    char label[400]; /* case and kernel, for messages */
};

/* Draw the data, compute the reference, copy to the device. `d_guard` bytes
   will are on both sides of D. */
void gpu_case_open(struct gpu_case *, size_t d_guard);
void gpu_case_close(struct gpu_case *);

/* The bytes on the host that a part is a copy of. */
const void *gpu_case_source(const struct gpu_case *, int part);

/* Plan `choice` for the case. Returns its code; gpu_run_close also
   after a failure. */
int gpu_run_open(struct gpu_run *, const struct gpu_case *,
                 const struct gpu_choice *choice, int sms);
void gpu_run_close(struct gpu_run *);

/* Open a variant's case: normal values in groups of a few rows, k being `k`
   where it is free. */
void gpu_case_begin(struct gpu_case *, const char *what, int index, int64_t k);

/* D as before a run: poison, or what is added to. */
void gpu_run_reset(struct gpu_run *, const struct gpu_case *);

/* Reset D and queue the product. NULL, or why it failed. */
const char *gpu_run_start(struct gpu_run *, const struct gpu_case *);

/* Wait, check sizes, guards and D against the reference. */
const char *gpu_run_finish(struct gpu_run *, const struct gpu_case *);

/* With --digests, a line for what the run left. */
void gpu_run_digest(const struct gpu_run *, const struct gpu_case *,
                    const void *from, size_t bytes);

/* Only the guards of every buffer of the run. */
const char *gpu_run_guarded(const struct gpu_run *, const struct gpu_case *);

/* D of one run that is only on its stream, to be freed; nothing is run where
   something is `bad` already. */
void *gpu_run_result(struct gpu_run *, const struct gpu_case *,
                     const char **bad);

/* A sentence that lives until the next one. */
const char *gpu_text(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Count a run that could not be opened: as refused if a kernel's rule says so,
   else as failed. */
void gpu_run_unopened(const struct gpu_run *, int code);

/* Count one run that was opened, right if there is no text. */
void gpu_run_record(const struct gpu_run *, const char *bad);

/* Open, start, finish, close, record. 0 if the kernel does not take it. */
int gpu_case_run(const struct gpu_case *, const struct gpu_choice *, int sms);

/* The same for each choice of a variant, with a number of SMs that changes. */
void gpu_case_run_all(struct gpu_case *, const struct gpu_variant *, int index);

/* ------------------------------------------------ gpu_job: jobs of the CLI */

struct qn_job;
struct qn_memory;

/* Compare a run's `memory` with the next one's. NULL, or the error. */
const char *gpu_job_repeat(struct qn_job *, const struct qn_memory *memory);

/* NULL, or the difference; `text` has room for it. `forget` makes outputs as
   before any run: 0 if it could. */
/* Outputs against the oracle's. */
const char *gpu_job_judge(struct qn_job *, const char *when, char *text,
                          size_t size);
/* Other sizes on the device with the same workspace. */
const char *gpu_job_resize(struct qn_job *, int (*forget)(struct qn_job *),
                           char *text, size_t size);
/* Invalid sizes are reported, and do not affect the next run. */
const char *gpu_job_bad_size(struct qn_job *, int (*forget)(struct qn_job *),
                             char *text, size_t size);

enum { GPU_JOBS = 5 }; /* at most, of a kernel */

/* A family of jobs: problems of each kernel of a kind. */
struct gpu_jobs {
    const char *what, *none; /* said where no kernel is of this kind */
    int each, every;         /* problems of a kernel; --quick: kernels apart */
    const struct qt_pattern *many; /* of every fourth problem; or NULL */
    int (*wanted)(const struct qn_kernel *);
    void (*line)(const struct qn_kernel *, const struct qt_case *, int turn,
                 char *line, size_t size);
    int (*forget)(struct qn_job *); /* the outputs */
    /* After the first run was judged. NULL, or the failure. */
    const char *(*go_through)(struct qn_job *, const struct qn_kernel *,
                              char *text, size_t size);
};

/* Run and count them; the last one of each kernel by replays, one thread. */
void gpu_jobs_run(const struct gpu_jobs *family);

/* ------------------------------------------------------------- the families */
void gpu_compile(void);
void gpu_torture(void);
void gpu_random(void);
void gpu_tails(void);
void gpu_large(void);
void gpu_many(void);
void gpu_empty(void);
void gpu_bad_sizes(void);
void gpu_graphs(void);
void gpu_replays(void);
void gpu_repeats(void);
void gpu_streams(void);
void gpu_sms(void);
void gpu_queue(void);
void gpu_refusals(void);
void gpu_cublaslt(void);
void gpu_casts(void);
void gpu_activate(void);
void gpu_epilogues(void);
void gpu_fuse(void);
void gpu_gather(void);
void gpu_lora(void);
void gpu_scatter(void);
void gpu_mlp(void);
void gpu_moe(void);
void gpu_step(void);
void gpu_nans(void);
void gpu_tune(void);
void gpu_scales(void);
void gpu_requantize(void);
void gpu_coverage(void);
void gpu_sanitized(void); /* instead of all others under --sanitize */
