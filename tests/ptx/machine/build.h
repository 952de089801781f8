/* SPDX-License-Identifier: Apache-2.0 */
/* build.h: a program while it is parsed. */
#pragma once

#include "machine.h"

enum { PX_MAX_OPERANDS = 320 };

struct px_name {
    const char *name;
    int scope;
    char kind; /* 'r'egister, 'p'redicate, 's'ymbol */
    char wide;
    char shared; /* a symbol of shared memory */
    int32_t at;
    int count;      /* of registers NAME0, NAME1, ...; 0: one of that name */
    uint64_t value; /* of a symbol */
};

struct px_label {
    const char *name;
    int scope, pc;
};

struct px_build {
    struct px_program *program;
    char *at; /* where the text is read */
    int line, outer;
    struct px_name *names;
    int nnames, room_names;
    struct px_label *labels;
    int nlabels, room_labels;
    int *parents; /* of scopes */
    int nscopes, room_scopes;
    int scope;
    int room_ops, room_constants, room_variables;
    size_t room_args;
    /* of the current statement */
    const char *mnemonic;
    struct px_operand operand[PX_MAX_OPERANDS];
    int noperands;
    int naddresses;
    char shape[PX_MAX_OPERANDS]; /* for each: '{' begins a vector, ... */
    struct px_op *op;
};

/* Enlarge *array to hold one more; PX_FAULT without memory. */
int px_grow(void *array, int count, int *room, size_t size);

/* An offset in the register file. */
int32_t px_build_place(struct px_build *b, int bytes);
/* The offset of a value in all lanes; wide: 0 32 bits, 1 64 bits, 2 a
   predicate. */
int32_t px_build_constant(struct px_build *b, uint64_t value, int wide);
/* As that, of an address of shared memory. */
int32_t px_build_shared(struct px_build *b, uint64_t value, int wide);

/* declare.c: the rest of a declaration. */
int px_declare_registers(struct px_build *b, char *at);
int px_declare_param(struct px_build *b, char *at);
int px_declare_shared(struct px_build *b, char *at, int is_extern);
int px_declare_variable(struct px_build *b, char *at);
/* Before a kernel's text: shared memory that it declares. */
void px_declare_ahead(struct px_build *b, const char *text);

/* operands.c: a number; 0 if it is none. */
int px_number(const char *word, uint64_t *value);
/* The operands of a statement, up to its end. */
int px_operands_read(struct px_build *b, char *text);

/* opcodes.c: give the instruction its function and its arguments. */
int px_opcode(struct px_build *b);

/* Give operand i of the statement to the instruction, as `type` says: 'r' 32
   bits, 'd' 64 bits, 'p' a predicate. PX_FAULT if it is none. */
int px_give(struct px_build *b, int i, char type);
/* An address, of 32 or 64 bits. */
int px_give_address(struct px_build *b, int i);
int px_bad(const struct px_build *b, const char *why);

/* families.c: instructions whose name has parts; PX_NEXT if the name is not of
   the family, PX_EXIT if it is done. */
typedef int px_setup(struct px_build *b);
px_setup px_setup_memory, px_setup_convert, px_setup_compare, px_setup_move,
    px_setup_async, px_setup_matrix, px_setup_warp, px_setup_barrier,
    px_setup_map, px_setup_tensor;

/* A row of the table of plain instructions. */
struct px_row {
    const char *name, *types;
    int (*run)(struct px_warp *, const struct px_op *, uint32_t mask);
    char meet;
};
/* values.c, floats.c: ended by a row without name. */
extern const struct px_row px_rows_integer[], px_rows_float[], px_rows_pair[],
    px_rows_warp[], px_rows_control[];
