/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: global, shared and parameter memory; loads, stores, atomics. */
#include "build.h"
#include "hazard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ buffers */

static struct {
    uint64_t base, bytes;
    int number;
} * buffers;
static int nbuffers, room_buffers, numbers, last_buffer;

int px_memory_add(uint64_t base, size_t bytes)
{
    if (px_grow(&buffers, nbuffers, &room_buffers, sizeof *buffers))
        return PX_FAULT;
    buffers[nbuffers].base = base;
    buffers[nbuffers].bytes = bytes;
    buffers[nbuffers++].number = ++numbers;
    return PX_NEXT;
}

int px_memory_remove(uint64_t base)
{
    for (int i = 0; i < nbuffers; i++)
        if (buffers[i].base == base) {
            buffers[i] = buffers[--nbuffers];
            last_buffer = 0;
            return PX_NEXT;
        }
    return PX_FAULT;
}

/* The buffer before the address, for the message. */
static void fault_outside(struct px_warp *w, const struct px_op *op,
                          uint64_t address, uint64_t size, int lane)
{
    int best = -1;

    for (int i = 0; i < nbuffers; i++)
        if (buffers[i].base <= address &&
            (best < 0 || buffers[i].base > buffers[best].base))
            best = i;
    if (best < 0)
        px_fault(w, op, lane, "address 0x%llx is in no buffer",
                 (unsigned long long)address);
    else
        px_fault(w, op, lane,
                 "%llu bytes at offset %llu of buffer %d, which has %llu "
                 "bytes",
                 (unsigned long long)size,
                 (unsigned long long)(address - buffers[best].base),
                 buffers[best].number, (unsigned long long)buffers[best].bytes);
}

unsigned char *px_memory_global(struct px_warp *w, const struct px_op *op,
                                uint64_t address, uint64_t size, int lane)
{
    if (px_machine.waits && !(w->waited >> lane & 1)) {
        px_fault(w, op, lane,
                 "global memory before griddepcontrol.wait: an earlier launch "
                 "may use it");
        return NULL;
    }
    for (int i = 0; i < nbuffers; i++) {
        int at = i ? i - (i <= last_buffer) : last_buffer;

        if (at >= nbuffers)
            continue;
        if (address - buffers[at].base < buffers[at].bytes &&
            address - buffers[at].base + size <= buffers[at].bytes) {
            last_buffer = at;
            return (unsigned char *)(uintptr_t)address;
        }
    }
    fault_outside(w, op, address, size, lane);
    return NULL;
}

/* ------------------------------------------------------------------- spaces */

unsigned char *px_memory_shared(struct px_warp *w, const struct px_op *op,
                                uint64_t address, unsigned size, int lane,
                                struct px_cta **owner)
{
    const uint32_t rank = (uint32_t)address >> PX_RANK_SHIFT;
    const uint32_t at = (uint32_t)address & ((1u << PX_RANK_SHIFT) - 1);
    struct px_cta *cta = w->cta;

    if (rank) {
        if (rank < PX_FIRST_RANK ||
            (int)rank - PX_FIRST_RANK >= cta->cluster->size) {
            px_fault(w, op, lane,
                     "shared address 0x%x is of no CTA of the "
                     "cluster",
                     (unsigned)address);
            return NULL;
        }
        cta = &w->cta->cluster->cta[rank - PX_FIRST_RANK];
    }
    if (at < PX_SHARED_START || at + size > cta->shared_bytes) {
        px_fault(w, op, lane,
                 "%u bytes at shared address %u; the kernel has %u to %u", size,
                 at, PX_SHARED_START, cta->shared_bytes);
        return NULL;
    }
    if (cta != w->cta && !cta->live_warps) {
        px_fault(w, op, lane, "the CTA of rank %u has ended",
                 rank - PX_FIRST_RANK);
        return NULL;
    }
    if (owner)
        *owner = cta;
    return cta->shared + at;
}

static unsigned char *param_at(struct px_warp *w, const struct px_op *op,
                               uint64_t address, unsigned size, int lane)
{
    const struct px_program *program = px_machine.launch->program;

    if (address + size > (uint64_t)program->param_bytes) {
        px_fault(w, op, lane, "%u bytes at parameter offset %llu", size,
                 (unsigned long long)address);
        return NULL;
    }
    return px_machine.params + address;
}

unsigned char *px_memory_at(struct px_warp *w, const struct px_op *op,
                            char space, uint64_t address, unsigned size,
                            int lane)
{
    if (address % (size & -size)) {
        px_fault(w, op, lane, "address 0x%llx is no multiple of %u",
                 (unsigned long long)address, size & -size);
        return NULL;
    }
    if (space == 'a' && address - PX_SHARED < (uint64_t)1 << 32) {
        space = 's';
        address -= PX_SHARED;
    } else if (space == 'a' && address - PX_PARAM < (uint64_t)1 << 32) {
        space = 'p';
        address -= PX_PARAM;
    }
    if (space == 's')
        return px_memory_shared(w, op, address, size, lane, NULL);
    if (space == 'p')
        return param_at(w, op, address, size, lane);
    return px_memory_global(w, op, address, size, lane);
}

/* -------------------------------------------------------- loads and stores */

/* op->sub: registers of 64 bits. */
static int load(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int n = op->vector, size = op->size;

    PX_EACH (mask) {
        const unsigned char *from = px_memory_at(
            w, op, op->space, px_address(w, op, n, i), (unsigned)(n * size), i);

        if (!from)
            return PX_FAULT;
        for (int k = 0; k < n; k++) {
            uint64_t x = 0;

            memcpy(&x, from + k * size, (size_t)size);
            if (op->is_signed)
                x = (uint64_t)((int64_t)(x << (64 - 8 * size)) >>
                               (64 - 8 * size));
            if (op->sub)
                PX_AT(w, uint64_t, k)[i] = x;
            else
                PX_AT(w, uint32_t, k)[i] = (uint32_t)x;
        }
    }
    return PX_NEXT;
}

static int store(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int n = op->vector, size = op->size;

    px_machine.clock++;
    PX_EACH (mask) {
        unsigned char *to = px_memory_at(
            w, op, op->space, px_address(w, op, 0, i), (unsigned)(n * size), i);

        if (!to)
            return PX_FAULT;
        px_hazard_written(w, to, (uint32_t)(n * size), i);
        for (int k = 0; k < n; k++) {
            uint64_t x = op->sub ? PX_AT(w, uint64_t, k + 1)[i]
                                 : PX_AT(w, uint32_t, k + 1)[i];

            memcpy(to + k * size, &x, (size_t)size);
        }
    }
    return PX_NEXT;
}

static char space_of(const char *name)
{
    if (strstr(name, ".shared"))
        return 's';
    if (strstr(name, ".global"))
        return 'g';
    if (strstr(name, ".param"))
        return 'p';
    return 'a';
}

/* The type is last: .u32, .b64, ... */
static int find_type(struct px_build *b, int *bits)
{
    const char *type = strrchr(b->mnemonic, '.');

    *bits = atoi(type + 2);
    b->op->is_signed = type[1] == 's';
    b->op->is_float = type[1] == 'f';
    b->op->size = (short)(*bits / 8);
    return *bits ? PX_NEXT : px_bad(b, "its type is not known");
}

static const char *const known_words[] = {
    "ld",          "st",       "shared",
    "global",      "param",    "nc",
    "v2",          "v4",       "L1",
    "no_allocate", "relaxed",  "acquire",
    "release",     "gpu",      "cta",
    "sys",         "cluster",  "volatile",
    "weak",        "L2::128B", "L2::cache_hint",
    "cs",          "cg",       "ca",
    "shared::cta", "v8",       "lu",
    "wb",          "const"};

static int is_known(const char *name)
{
    char words[100], *save;

    if (strlen(name) >= sizeof words)
        return 0;
    strcpy(words, name);
    *strrchr(words, '.') = 0;
    for (char *word = strtok_r(words, ".", &save); word;
         word = strtok_r(NULL, ".", &save)) {
        size_t i = 0, n = sizeof known_words / sizeof known_words[0];

        while (i < n && strcmp(known_words[i], word))
            i++;
        if (i == n)
            return 0;
    }
    return 1;
}

static int setup_load_store(struct px_build *b, int is_load)
{
    struct px_op *op = b->op;
    const int hinted = strstr(b->mnemonic, "cache_hint") != NULL;
    int n = b->noperands - 1 - hinted, bits;
    const struct px_operand *first = &b->operand[is_load ? 0 : 1];

    if (!is_known(b->mnemonic))
        return px_bad(b, "a word of it is not known");
    if (find_type(b, &bits))
        return PX_FAULT;
    op->space = space_of(b->mnemonic);
    op->vector = (short)n;
    op->run = is_load ? load : store;
    op->sub = first->kind == 'r' ? first->wide : bits == 64;
    if (!is_load && px_give_address(b, 0))
        return PX_FAULT;
    for (int i = 0; i < n; i++)
        if (px_give(b, is_load ? i : i + 1, op->sub ? 'd' : 'r'))
            return PX_FAULT;
    if (is_load && px_give_address(b, n))
        return PX_FAULT;
    return PX_EXIT;
}

/* ------------------------------------------------------------------ atomics */

enum { ADD, MAX, MIN, EXCH, CAS, OR, AND, INC, XOR };
static const char *const atomics[] = {"add", "max", "min", "exch", "cas",
                                      "or",  "and", "inc", "xor"};

static uint64_t apply(const struct px_op *op, uint64_t x, uint64_t y,
                      uint64_t z)
{
    const int less = op->is_signed ? op->size == 8 ? (int64_t)x < (int64_t)y
                                                   : (int32_t)x < (int32_t)y
                                   : x < y;
    union {
        uint32_t u;
        float f;
    } a = {(uint32_t)x}, b = {(uint32_t)y};

    switch (op->sub) {
    case ADD:
        if (!op->is_float)
            return x + y;
        a.f += b.f;
        return a.u;
    case MAX:
        return less ? y : x;
    case MIN:
        return less ? x : y;
    case EXCH:
        return y;
    case CAS:
        return x == y ? z : x;
    case OR:
        return x | y;
    case AND:
        return x & y;
    case XOR:
        return x ^ y;
    default:
        return x >= y ? 0 : x + 1;
    }
}

/* atom d, [a], b (, c); red [a], b; lanes in any order */
static int atomic(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    const int at = op->vector, first = (int)(px_random(&w->random) % PX_LANES);

    px_machine.clock++;
    for (int k = 0; k < PX_LANES; k++) {
        const int i = (first + k) % PX_LANES;
        uint64_t x = 0, y, z;
        unsigned char *to;

        if (!(mask >> i & 1))
            continue;
        to = px_memory_at(w, op, op->space, px_address(w, op, at, i),
                          (unsigned)op->size, i);
        if (!to)
            return PX_FAULT;
        px_hazard_written(w, to, (uint32_t)op->size, i);
        memcpy(&x, to, (size_t)op->size);
        y = op->size == 8 ? PX_AT(w, uint64_t, at + 1)[i]
                          : PX_AT(w, uint32_t, at + 1)[i];
        z = op->size == 8 ? PX_AT(w, uint64_t, op->nargs - 1)[i]
                          : PX_AT(w, uint32_t, op->nargs - 1)[i];
        z = apply(op, x, y, z);
        memcpy(to, &z, (size_t)op->size);
        if (at && op->size == 8)
            PX_AT(w, uint64_t, 0)[i] = x;
        else if (at)
            PX_AT(w, uint32_t, 0)[i] = (uint32_t)x;
    }
    return PX_NEXT;
}

static int setup_atomic(struct px_build *b, int gives)
{
    const char *type = strrchr(b->mnemonic, '.');
    char name[12];
    int bits;

    b->op->sub = -1;
    for (size_t i = 0; i < sizeof atomics / sizeof atomics[0]; i++) {
        snprintf(name, sizeof name, ".%s", atomics[i]);
        if (strstr(b->mnemonic, name) &&
            strchr(". ", strstr(b->mnemonic, name)[strlen(name)]))
            b->op->sub = (short)i;
    }
    if (b->op->sub < 0 || !type || find_type(b, &bits) || bits < 32 ||
        (b->op->is_float && (bits != 32 || b->op->sub != ADD)))
        return px_bad(b, "the atomic is not known");
    b->op->space = space_of(b->mnemonic);
    b->op->vector = (short)gives;
    b->op->run = atomic;
    if (gives && px_give(b, 0, bits == 64 ? 'd' : 'r'))
        return PX_FAULT;
    if (px_give_address(b, gives))
        return PX_FAULT;
    for (int i = gives + 1; i < b->noperands; i++)
        if (px_give(b, i, bits == 64 ? 'd' : 'r'))
            return PX_FAULT;
    return PX_EXIT;
}

static int nothing(struct px_warp *w, const struct px_op *op, uint32_t mask)
{
    (void)w, (void)op, (void)mask;
    return PX_NEXT;
}

int px_setup_memory(struct px_build *b)
{
    const char *name = b->mnemonic;

    if (!strncmp(name, "ld.", 3))
        return setup_load_store(b, 1);
    if (!strncmp(name, "st.", 3))
        return setup_load_store(b, 0);
    if (!strncmp(name, "atom.", 5))
        return setup_atomic(b, 1);
    if (!strncmp(name, "red.", 4))
        return setup_atomic(b, 0);
    if (!strncmp(name, "prefetch.", 9)) {
        b->op->run = nothing;
        return PX_EXIT;
    }
    return PX_NEXT;
}
