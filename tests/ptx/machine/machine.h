/* SPDX-License-Identifier: Apache-2.0 */
/*
** machine.h: a GPU that runs the PTX of one kernel, in any order that the
** kernel permits.
**
** A warp has a file of registers: 32 lanes of 4 or 8 bytes for each register,
** constant and special register, a 32-bit mask for each predicate. An operand
** of a decoded instruction is a byte offset in that file.
*/
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { PX_LANES = 32, PX_BARRIERS = 16, PX_MBARRIERS = 128, PX_RANKS = 16 };
#define PX_ALL 0xffffffffu

/* Windows of the generic address space; host memory has higher addresses. */
#define PX_SHARED ((uint64_t)0x10 << 32)
#define PX_PARAM  ((uint64_t)0x11 << 32)
/* Shared memory of a kernel begins here, after the bytes of the hardware. */
enum { PX_SHARED_START = 1024 };
/* Above an address: a CTA's rank of its cluster, from this number on, so that
   pairs differ in one bit; 0: the own CTA. */
enum { PX_RANK_SHIFT = 24, PX_FIRST_RANK = 2 };

struct px_warp;

/* The result of an instruction's function: how the warp goes on. */
enum {
    PX_NEXT,  /* go on */
    PX_JUMP,  /* the part's pc is set */
    PX_WAIT,  /* try this one again once its count (px_wait_for) changes */
    PX_YIELD, /* go on, but let others run */
    PX_EXIT,  /* these lanes end */
    PX_FAULT  /* px_fault has the reason */
};

/* Which lanes must be together. */
enum { PX_APART, PX_MEET_ALL, PX_MEET_MASK };

struct px_op {
    int (*run)(struct px_warp *, const struct px_op *, uint32_t mask);
    const int32_t *arg;
    const char *text;
    int64_t offset; /* added to the address */
    int32_t guard;  /* a predicate; -1 for none */
    uint32_t guard_not;
    int target; /* of a branch */
    int line;   /* of the kernel's file */
    int outer;  /* where that was inlined */
    short nargs;
    short vector;                   /* elements */
    short size;                     /* bytes of an element */
    short sub;                      /* by instruction */
    char space;                     /* 's'hared, 'g'lobal, 'p'aram, 'a'ny */
    char is_signed, is_float, wide; /* wide: registers have 8 bytes */
    char meet;
    char branch;
    char is_product; /* wgmma */
    char is_pair;    /* a copy with .cta_group::2 */
    char is_traced;
};

enum { PX_MAX_PARAMS = 64 };

struct px_special {
    int which;
    int32_t at;
};

struct px_constant {
    uint64_t value;
    int32_t at;
    int wide;
    int shared; /* an address of shared memory */
};

struct px_program {
    const char *name; /* in the text */
    char *text;       /* the PTX, cut into pieces */
    struct px_op *ops;
    int nops;
    int32_t *args;
    size_t nargs;
    struct px_constant *constants;
    int nconstants;
    struct px_special special[40];
    int nspecial;
    struct {
        int offset, bytes;
    } params[PX_MAX_PARAMS];
    int nparams, param_bytes;
    void **variables;
    int nvariables;
    int shared_bytes; /* from PX_SHARED_START on: static, then dynamic */
    size_t file_bytes;
    int32_t sink; /* a register that is only written */
    int max_threads, min_ctas;
    uint32_t most_registers; /* that a setmaxnreg asks for: ptxas begins with
                                no more */
    int products;            /* has wgmma */
    int tensor;              /* has tcgen05: of one CTA 1, of a pair 2 */
    int waits;               /* has griddepcontrol.wait */
};

/* Special registers. */
enum {
    PX_TID_X,
    PX_TID_Y,
    PX_TID_Z,
    PX_NTID_X,
    PX_NTID_Y,
    PX_NTID_Z,
    PX_CTAID_X,
    PX_CTAID_Y,
    PX_CTAID_Z,
    PX_NCTAID_X,
    PX_NCTAID_Y,
    PX_NCTAID_Z,
    PX_LANEID,
    PX_WARPID,
    PX_CLUSTER_RANK,
    PX_CLUSTER_SIZE,
    PX_SMID,
    PX_NSMID,
    PX_CLUSTER_CTAID_X,
    PX_CLUSTER_CTAID_Y,
    PX_CLUSTER_CTAID_Z,
    PX_CLUSTER_NCTAID_X,
    PX_CLUSTER_NCTAID_Y,
    PX_CLUSTER_NCTAID_Z,
    PX_CLUSTERID_X,
    PX_CLUSTERID_Y,
    PX_CLUSTERID_Z,
    PX_NCLUSTERID_X,
    PX_NCLUSTERID_Y,
    PX_NCLUSTERID_Z
};

/* Lanes of a warp that are at one instruction. */
struct px_part {
    int pc;
    uint32_t mask;
    int state;             /* PX_RUN, ... */
    const uint64_t *wakes; /* it waits until this count changes */
    uint64_t stamp;        /* the count when it began to wait */
    uint64_t ticket;       /* of the barrier that it has arrived at; 0: none */
    int is_hasty;          /* a wait that may fail does */
};
enum { PX_RUN, PX_BLOCKED, PX_APART_YET };

enum { PX_COPIES = 4096, PX_GROUPS = 1 << 16 };

/* cp.async of one instruction, not landed yet. */
struct px_copy {
    uint32_t mask;
    uint64_t when; /* of its issue */
    int bytes, line;
    uint64_t from[PX_LANES];
    uint32_t to[PX_LANES];
    int taken[PX_LANES];      /* bytes read; the rest is 0 */
    uint32_t group[PX_LANES]; /* the thread's batch */
};

struct px_warp {
    unsigned char *file;
    struct px_cta *cta;
    int number; /* in its CTA */
    uint32_t live;
    uint32_t waited; /* for launches before this one */
    int parts, current;
    struct px_part part[PX_LANES];
    struct px_copy *copies; /* in flight, in order */
    int ncopies, room;
    uint32_t copy_group[PX_LANES]; /* batches that are committed */
    uint32_t bulk_group[PX_LANES];
    uint64_t stores; /* that a bulk group counts: steps of their landing */
    uint64_t mma_issued, mma_landed;
    uint64_t mma_group[64]; /* issued until the end of batch i % 64 */
    uint64_t mma_groups;
    uint64_t mma_known;       /* that were waited for */
    struct px_register *uses; /* of registers; hazard.c */
    uint32_t waits;           /* tcgen05.wait::ld */
    int is_loading;           /* after a tcgen05.ld, before its wait */
    struct px_tensor *tensor; /* with tcgen05; tensor.h */
    uint32_t fences;          /* wgmma.fence */
    uint32_t registers;       /* of a thread; setmaxnreg */
    uint64_t fenced[PX_LANES];
    uint64_t met;             /* when its lanes were last at one instruction */
    uint64_t known[PX_LANES]; /* fenced, as of then */
    uint64_t cluster_ticket;
    uint32_t random;
    int apart; /* so many choices more of parts are random */
};

/* Those who wait at a barrier hear this; order.h. */
struct px_heard {
    uint32_t n, *arrived, *complete;
};

struct px_mbarrier {
    struct px_heard heard;
    uint32_t address;
    uint32_t expected, pending;
    int64_t bytes; /* that have not arrived */
    uint32_t phase;
    uint64_t changes; /* phases, of all barriers that were here */
};

struct px_barrier {
    struct px_heard heard;
    uint32_t arrived, expected;
    uint64_t generation;
};

struct px_cta {
    struct px_cluster *cluster;
    int rank;
    uint32_t id[3];
    unsigned char *shared;
    uint32_t shared_bytes;
    struct px_warp *warps;
    int nwarps, live_warps;
    struct px_barrier barrier[PX_BARRIERS];
    struct px_mbarrier mbarrier[PX_MBARRIERS]; /* free: address 0 */
    uint8_t *mbarrier_at;     /* by its address / 8: its number from 1 on */
    struct px_unit *units;    /* of shared memory; hazard.c */
    struct px_issued *issued; /* by warpgroup; wgmma.c */
    struct px_tmem *tmem;     /* tensor.h */
    uint32_t registers;       /* that setmaxnreg may take */
};

struct px_cluster {
    int live_warps, size;
    struct px_heard heard;
    uint32_t arrived;
    uint64_t generation;
    struct px_cta cta[PX_RANKS];
};

struct px_launch {
    const struct px_program *program;
    uint32_t grid[3], block[3], cluster[3];
    uint32_t dynamic_bytes;
    void **params;
};

/* Misreadings of the instruction set, to try tests with. X(id, $PTX_MISREAD) */
#define PX_MISREADINGS(X)                                                      \
    X(PX_TRUE, "")                                                             \
    X(PX_NO_SWIZZLE, "swizzle")        /* 16-byte units stay in place */       \
    X(PX_LOW_SWIZZLE, "low_swizzle")   /* by the bits next to them */          \
    X(PX_NOT_TURNED, "turned")         /* operands of wgmma are k-major */     \
    X(PX_STRIDES, "strides")           /* leading and stride exchanged */      \
    X(PX_ALL_ROWS, "rows")             /* each warp has rows 0 to 15 */        \
    X(PX_PARITY, "parity")             /* waits for the other phase */         \
    X(PX_OWN_BARRIER, "own_barrier")   /* multicast counts on one */           \
    X(PX_OWN_MEMORY, "own_memory")     /* multicast is for the own CTA */      \
    X(PX_OUTSIDE, "outside")           /* boxes keep bytes outside */          \
    X(PX_DIMENSIONS, "dimensions")     /* coordinates y, z exchanged */        \
    X(PX_FRAGMENT, "fragment")         /* registers 1, 2 of A exchanged */     \
    X(PX_MATRIX, "matrix")             /* ldmatrix: .trans is ignored */       \
    X(PX_STORED, "stored")             /* stmatrix: halves exchanged */        \
    X(PX_HALVES, "halves")             /* cvt of pairs: a is the lower */      \
    X(PX_OLD_SUM, "old_sum")           /* wgmma reads sums not wanted */       \
    X(PX_EARLY_PHASE, "early_phase")   /* a phase ends without bytes */        \
    X(PX_FIRST_COPIES, "first_copies") /* wait_group counts the oldest */      \
    X(PX_PLAIN_ADD, "plain_add")       /* reduce is a store */                 \
    X(PX_SCALE_ROWS, "scale_rows")     /* rows 8 to 15 have A's first lanes */ \
    X(PX_SCALE_BYTES, "scale_bytes")   /* byte-id is ignored */                \
    X(PX_SCALE_LANES, "scale_lanes")   /* mma: thread-id is ignored */         \
    X(PX_SCALE_BLOCKS, "scale_blocks") /* mma: a row's scales turned round */  \
    X(PX_SCALE_TYPE, "scale_type")     /* the other type */                    \
    X(PX_SCALE_SIDES, "scale_sides")   /* scales of A for B */                 \
    X(PX_ONE_PART, "one_part")         /* tcgen05.cp to 32 lanes only */       \
    X(PX_PAIR_COLUMNS, "pair_columns") /* halves of B exchanged */             \
    X(PX_PAIR_ROWS, "pair_rows")       /* rows of D in turns */                \
    X(PX_PAIR_BARRIER, "pair_barrier") /* .cta_group::2 counts on the own */
enum {
#define PX_ID(id, text) id,
    PX_MISREADINGS(PX_ID)
#undef PX_ID
        PX_MISREAD_COUNT
};

/* A machine with its settings; one launch at a time. */
struct px_machine {
    const struct px_launch *launch;
    unsigned char *params;
    uint64_t events; /* counts events that may end a wait */
    uint64_t clock;  /* of writes, fences and issued copies */
    uint64_t steps, most_steps;
    uint64_t launches;
    uint32_t random;
    uint32_t late;   /* of 256 chances, how often a copy does not land yet */
    uint32_t leader; /* which lane is elected */
    int misread;     /* of PX_MISREADINGS */
    int waits;       /* no global memory before griddepcontrol.wait */
    int trace;
    int leaves;   /* a CTA may end before its stores have read its memory */
    int resident; /* CTAs that run at once */
    char fault[2000];
};
extern struct px_machine px_machine;
static inline int px_misreads(int id)
{
    return px_machine.misread == id;
}

/* The current part waits for something that changes this count, instead of any
   event. */
static inline int px_wait_for(struct px_warp *w, const uint64_t *count)
{
    w->part[w->current].wakes = count;
    return PX_WAIT;
}

/* A warp's operand, by the argument's number. */
#define PX_AT(w, type, i) ((type *)(void *)((w)->file + op->arg[i]))

/* The address that px_give_address took, with its offset. */
static inline uint64_t px_address(struct px_warp *w, const struct px_op *op,
                                  int i, int lane)
{
    const uint64_t base =
        op->wide ? PX_AT(w, uint64_t, i)[lane] : PX_AT(w, uint32_t, i)[lane];

    return base + (uint64_t)op->offset;
}

static inline uint32_t px_random(uint32_t *state)
{
    uint32_t x;

    *state = *state * 747796405u + 2891336453u;
    x = ((*state >> ((*state >> 28) + 4)) ^ *state) * 277803737u;
    return x >> 22 ^ x;
}

#define PX_EACH(mask)                                                          \
    for (int i = 0; i < PX_LANES; i++)                                         \
        if ((mask) >> i & 1)

/* fault.c: the first one stays. */
int px_fault(const struct px_warp *w, const struct px_op *op, int lane,
             const char *format, ...) __attribute__((format(printf, 4, 5)));
int px_fault_plain(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
/* With $PTX_TRACE: the warp did `op` with `mask`, or what it is about came. */
void px_fault_trace(const struct px_warp *w, const struct px_op *op,
                    uint32_t mask, const char *what);

/* parse.c: NULL with px_machine.fault if the text is not understood. Takes the
   text, which it frees with the program. */
struct px_program *px_parse(char *text);
void px_program_free(struct px_program *program);

/* opcodes.c */
struct px_operand {
    char kind;   /* 'r'egister, 'i'mmediate, 'p'redicate, 'l'abel, 's'ymbol */
    char wide;   /* of a register */
    char shared; /* a symbol of shared memory */
    char not ;
    int32_t at;
    uint64_t value;
    const char *name;
};
struct px_parser;

/* memory.c: the host's address of `size` bytes at an address of `space`; NULL
   after a fault. */
unsigned char *px_memory_at(struct px_warp *w, const struct px_op *op,
                            char space, uint64_t address, unsigned size,
                            int lane);
/* Shared memory at an address that may name another CTA of the cluster. */
unsigned char *px_memory_shared(struct px_warp *w, const struct px_op *op,
                                uint64_t address, unsigned size, int lane,
                                struct px_cta **owner);
/* Global memory: a buffer that the driver gave out. */
unsigned char *px_memory_global(struct px_warp *w, const struct px_op *op,
                                uint64_t address, uint64_t size, int lane);
int px_memory_add(uint64_t base, size_t bytes);
int px_memory_remove(uint64_t base);

/* registers.c: a warp's file with constants and special registers, the others
   poisoned; the next warp gets it, or it ends with the program. PX_FAULT. */
int px_registers_take(struct px_warp *w);
void px_registers_give(struct px_warp *w);
void px_registers_clear(void);

/* barrier.c */
/* After a warp has ended: those that wait for all wait for fewer. */
void px_barrier_recheck(struct px_cta *cta);
struct px_mbarrier *px_barrier_find(struct px_warp *w, const struct px_op *op,
                                    struct px_cta *cta, uint32_t address,
                                    int lane);
/* Does a shared address name this CTA, or none? */
int px_barrier_is_own(const struct px_cta *cta, uint32_t address);
void px_barrier_complete(struct px_mbarrier *barrier, int64_t bytes);
/* One arrival of a thread; of a commit, with all that its warp had heard. */
int px_barrier_arrive(struct px_warp *w, const struct px_op *op,
                      uint64_t address, int lane, const uint32_t *heard);

/* async.c: copies and products in flight. */
void px_async_clear(void);
int px_async_pending(void);
int px_async_land(void); /* any one; PX_WAIT if none can; PX_FAULT */
int px_async_cta_end(struct px_warp *w); /* PX_FAULT if some are in flight */
struct px_tile;                          /* tma.c */
struct px_async {
    struct px_warp *warp;
    const struct px_op *op;
    int lane, stage;
    uint32_t group;                 /* of bulk stores */
    char store;                     /* counts in bulk groups */
    uint64_t order;                 /* of products of a warp or a queue */
    uint64_t when;                  /* by the machine's clock */
    int (*land)(struct px_async *); /* PX_NEXT when done, PX_WAIT: once more */
    struct px_tile *tile;
    uint64_t *queue; /* of a thread of tcgen05: how many have landed */
    void *work;      /* freed with it */
    uint32_t word[8];
};
struct px_async *px_async_add(struct px_warp *w, const struct px_op *op,
                              int lane, int (*land)(struct px_async *));

/* schedule.c: run a launch to its end. */
int px_schedule_run(const struct px_launch *launch);

/* formats.c: 16, 8, 6 and 4 bits as floats, and back; bits above those of the
   type are not read. */
float px_float_of_half(uint16_t bits);
float px_float_of_e4m3(uint8_t bits);
float px_float_of_e5m2(uint8_t bits);
float px_float_of_e3m2(uint8_t bits);
float px_float_of_e2m3(uint8_t bits);
float px_float_of_e2m1(uint8_t bits);
uint16_t px_half_of(double x);
uint16_t px_bf16_of(double x);
static inline float px_float_of_bf16(uint16_t bits)
{
    union {
        uint32_t u;
        float f;
    } x = {(uint32_t)bits << 16};

    return x.f;
}
enum {
    PX_F16,
    PX_BF16,
    PX_E4M3,
    PX_E5M2,
    PX_S8,
    PX_TF32,   /* fp32, of which products take the upper 19 bits */
    PX_E3M2,   /* in a byte, below two bits of 0 */
    PX_E2M3,   /* as that */
    PX_E2M1,   /* in a byte, between two bits of 0 on each side */
    PX_E2M1X2, /* two in a byte, the first in the lower half */
    PX_TYPES
};
void px_mma_decode(float *to, const void *from, int count, int type);
/* c[m][n] += a[m][k] * b[k][n], one step of k after the other */
void px_mma_multiply(float *c, const float *a, const float *b, int m, int n,
                     int k);
