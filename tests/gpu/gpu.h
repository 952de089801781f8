/*
** gpu.h: the suite: what it runs, what it counts, and one run of one kernel.
*/
#ifndef GPU_H
#define GPU_H

#include <stdint.h>

#include "gpu_driver.h"
#include "host/case.h"
#include "registry.h"

enum {
    GPU_MAX_CHOICES = 512,
    GPU_MAX_FAILURES = 200, /* kept with their text; all are counted */
    GPU_GUARD = 4096,       /* bytes on both sides of each buffer */
    GPU_WIDE_GUARD = 1 << 20,
    GPU_TIMEOUT = 30 /* seconds until a kernel counts as hung */
};

/* What is run for a problem: a kernel by name, or the model's choice. */
struct gpu_choice {
    const char *label;
    const struct qn_kernel *kernel; /* NULL: the model chooses */
    int d_type;
};

struct gpu_failure {
    const char *family;
    char text[512];
};

struct gpu_counts {
    int passed, failed, skipped;
};

struct gpu_options {
    const char *json, *only, *commit;
    int quick, list, sanitize;
    uint64_t seed;
};

struct gpu_family {
    const char *name, *what;
    void (*run)(void);
    struct gpu_counts counts;
    double seconds;
};

extern struct gpu_options gpu_options;
extern struct quern_context *gpu_context;
extern struct gpu_device gpu_device;
extern struct gpu_choice gpu_choices[GPU_MAX_CHOICES];
extern int gpu_nchoices;
extern int gpu_threads; /* of the host, for references */

/* ------------------------------------------------------- gpu_main: counting */

/* Count one run of the family that is under way; a text means failed. */
void gpu_record(const char *failure);
void gpu_skip(const char *why);

/* Write what is known and end with status 1: the device can't go on. */
_Noreturn void gpu_lost(const char *text);

/* ------------------------------------------------------ gpu_buffer: memory */

/* Device memory between two guards of poison. */
struct gpu_buffer {
    gpu_address memory, data;
    size_t bytes, guard;
};

/* Both end the suite when the driver fails: nothing could follow. */
void gpu_buffer_make(struct gpu_buffer *, size_t bytes, size_t guard);
void gpu_buffer_upload(const struct gpu_buffer *, const void *from);
void gpu_buffer_download(const struct gpu_buffer *, void *to);
void gpu_buffer_poison(const struct gpu_buffer *); /* the guards too */
void gpu_buffer_zero(const struct gpu_buffer *);
void gpu_buffer_free(struct gpu_buffer *);

/* NULL, or what was written: the guards hold poison as before. */
const char *gpu_buffer_guarded(const struct gpu_buffer *, const char *name);

/* End the suite if a driver call failed. */
void gpu_must(int code, const char *what);

/* Wait for a stream; a hung or crashed kernel ends the suite with `what`. */
void gpu_wait(void *stream, const char *what);

/* --------------------------------------------------- gpu_case: one problem */

/* A problem on the device, shared by all kernels that run it. */
struct gpu_case {
    struct qt_case c;
    struct qt_data data;
    struct gpu_buffer a, b, first, offsets;
    size_t d_guard;
};

/* One run's output side: two at once need two. */
struct gpu_run {
    struct gpu_buffer d, workspace;
    struct quern_plan *plan;
    struct quern_args args;
    void *stream;
    char label[256]; /* case and kernel, for messages */
};

/* Draw the data, compute the reference, copy to the device. `d_guard` bytes
   will lie on both sides of D. */
void gpu_case_open(struct gpu_case *, size_t d_guard);
void gpu_case_close(struct gpu_case *);

/* Plan `choice` for the case. Returns quern_plan's code; gpu_run_close also
   after a failure. */
int gpu_run_open(struct gpu_run *, const struct gpu_case *,
                 const struct gpu_choice *choice, int sms);
void gpu_run_close(struct gpu_run *);

/* Poison D and queue the product. NULL, or why it failed. */
const char *gpu_run_start(struct gpu_run *);

/* Wait, check sizes, guards and D against the reference. */
const char *gpu_run_finish(struct gpu_run *, const struct gpu_case *);

/* Only the guards of every buffer of the run. */
const char *gpu_run_guarded(const struct gpu_run *, const struct gpu_case *);

/* A sentence that lives until the next one. */
const char *gpu_text(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Open, start, finish, close, record. */
void gpu_case_run(const struct gpu_case *, const struct gpu_choice *, int sms);

/* The same for each choice, with a number of SMs that changes. */
void gpu_case_run_all(struct gpu_case *, int index);

/* ------------------------------------------------------------- the families */
void gpu_torture(void);
void gpu_random(void);
void gpu_tails(void);
void gpu_large(void);
void gpu_empty(void);
void gpu_lies(void);
void gpu_graphs(void);
void gpu_repeats(void);
void gpu_streams(void);
void gpu_sms(void);
void gpu_refusals(void);
void gpu_sanitized(void); /* instead of all others under --sanitize */

#endif
