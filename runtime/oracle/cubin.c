/* SPDX-License-Identifier: Apache-2.0 */
/* cubin.c: the resources of a compiled kernel. A cubin is an ELF file; its
   section .nv.info holds records of 4 bytes (format, attribute, length) and a
   payload, which begins with the number of the symbol that it is about. */
#include "oracle/cubin.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    MACHINE = 190, /* EM_CUDA */
    ENTRY = 0x10,  /* in a symbol's st_other: a kernel */
    LONG_FORM = 4, /* of a record: with a payload */
    ATTRIBUTE_FRAME_SIZE = 0x11,
    ATTRIBUTE_REGISTERS = 0x2F
};

struct image {
    const unsigned char *data;
    size_t bytes;
    Elf64_Ehdr header;
};

/* 1 if so many bytes are there; files come from caches, so nothing is taken
   for granted. */
static int copy(const struct image *image, uint64_t at, void *to, size_t bytes)
{
    if (at > image->bytes || bytes > image->bytes - at)
        return 0;
    memcpy(to, image->data + at, bytes);
    return 1;
}

static int section(const struct image *image, unsigned index, Elf64_Shdr *out)
{
    return index < image->header.e_shnum &&
           image->header.e_shentsize == sizeof *out &&
           copy(image, image->header.e_shoff + (uint64_t)index * sizeof *out,
                out, sizeof *out);
}

/* A name from a table of strings, which must end inside the file. */
static int string(const struct image *image, const Elf64_Shdr *table,
                  uint64_t at, char *text, size_t size)
{
    const unsigned char *start, *end;

    if (at >= table->sh_size || table->sh_offset > image->bytes ||
        table->sh_size > image->bytes - table->sh_offset)
        return 0;
    start = image->data + table->sh_offset + at;
    end = memchr(start, 0, table->sh_size - at);
    if (!end || (size_t)(end - start) >= size)
        return 0;
    memcpy(text, start, (size_t)(end - start) + 1);
    return 1;
}

/* Count the kernels in the table of symbols and note the first one's name. */
static void read_symbols(const struct image *image, const Elf64_Shdr *table,
                         struct qn_cubin *cubin)
{
    Elf64_Shdr names;
    Elf64_Sym symbol;

    if (!section(image, table->sh_link, &names))
        return;
    for (uint64_t at = 0; at + sizeof symbol <= table->sh_size;
         at += sizeof symbol) {
        if (!copy(image, table->sh_offset + at, &symbol, sizeof symbol))
            return;
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
            !(symbol.st_other & ENTRY))
            continue;
        if (!cubin->entries++ && !string(image, &names, symbol.st_name,
                                         cubin->name, sizeof cubin->name))
            cubin->name[0] = '\0';
    }
}

static void read_info(const struct image *image, const Elf64_Shdr *info,
                      struct qn_cubin *cubin)
{
    struct {
        uint8_t format, attribute;
        uint16_t length;
    } record;
    uint32_t payload[2]; /* symbol, value */

    for (uint64_t at = 0; at + sizeof record <= info->sh_size;) {
        if (!copy(image, info->sh_offset + at, &record, sizeof record))
            return;
        at += sizeof record;
        if (record.format != LONG_FORM)
            continue;
        if (record.length >= sizeof payload &&
            copy(image, info->sh_offset + at, payload, sizeof payload)) {
            if (record.attribute == ATTRIBUTE_REGISTERS)
                cubin->registers = (int)payload[1];
            if (record.attribute == ATTRIBUTE_FRAME_SIZE)
                cubin->stack = (int)payload[1];
        }
        at += record.length;
    }
}

int qn_cubin_read(const void *data, size_t bytes, struct qn_cubin *cubin)
{
    struct image image = {.data = data, .bytes = bytes};
    Elf64_Shdr names, s;
    char name[320];

    memset(cubin, 0, sizeof *cubin);
    if (!copy(&image, 0, &image.header, sizeof image.header) ||
        memcmp(image.header.e_ident, ELFMAG, SELFMAG) ||
        image.header.e_machine != MACHINE ||
        !section(&image, image.header.e_shstrndx, &names))
        return 1;
    for (unsigned i = 0; section(&image, i, &s); i++) {
        if (!string(&image, &names, s.sh_name, name, sizeof name))
            continue;
        if (s.sh_type == SHT_SYMTAB)
            read_symbols(&image, &s, cubin);
        else if (strcmp(name, ".nv.info") == 0)
            read_info(&image, &s, cubin);
        else if (strncmp(name, ".nv.shared.quern_", 17) == 0)
            cubin->shared = (int)s.sh_size;
    }
    return cubin->entries != 1 || !cubin->name[0] || !cubin->registers;
}

/* --------------------------------------------------------------- occupancy */

/* The resources of a multiprocessor, by version; a version between two rows is
   like the one before it. Registers: 65536, in portions of 256 for each
   warp. */
static const struct room {
    int version, shared, threads, ctas;
} rooms[] = {
    {80, 164 << 10, 2048, 32},  {86, 100 << 10, 1536, 16},
    {87, 164 << 10, 1536, 16},  {89, 100 << 10, 1536, 24},
    {90, 228 << 10, 2048, 32},  {100, 228 << 10, 2048, 32},
    {120, 100 << 10, 1536, 24},
};

enum { REGISTERS = 65536, PORTION = 256, RESERVED = 1024 /* of each CTA */ };

void qn_cubin_occupancy(int version, int threads, int registers, int shared,
                        struct qn_occupancy *o)
{
    const int warps = (threads + 31) / 32;
    const int of_warp = (registers * 32 + PORTION - 1) / PORTION * PORTION;
    const struct room *room = NULL;

    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++)
        if (rooms[i].version <= version)
            room = &rooms[i];
    if (!room || warps < 1 || of_warp < 1)
        return;
    {
        const struct {
            int ctas;
            const char *by;
        } bounds[] = {
            {room->ctas, "CTAs"},
            {room->threads / (warps * 32), "threads"},
            {REGISTERS / of_warp / warps, "registers"},
            {room->shared / (shared + RESERVED), "shared memory"},
        };
        o->ctas = bounds[0].ctas;
        for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
            if (bounds[i].ctas <= o->ctas) {
                o->ctas = bounds[i].ctas;
                o->by = bounds[i].by;
            }
    }
    o->warps = o->ctas * warps;
    o->most = room->threads / 32;
}
