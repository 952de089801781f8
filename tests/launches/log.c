/* SPDX-License-Identifier: Apache-2.0 */
/* log.c: calls of the fake driver, as text. */
#define _GNU_SOURCE
#include "log.h"
#include "choose/values.h"
#include "device/cuda_api.h"

#include <dlfcn.h>
#include <limits.h>
#include <sha2.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MOST = 256, WIDTH = 100 };

struct region {
    char name[32];
    char *at;
    size_t bytes;
};

static struct region regions[MOST];
static int nregions;

static struct {
    const struct quern_registry *registry;
    FILE *out;
    int is_short;
    FILE *words;
    int column;
} log_state;

struct fake_cuda *log_cuda;

/* The fake libraries are where the build puts libraries: bin/../lib. */
void log_open(void)
{
    char program[PATH_MAX], path[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    struct fake_cuda *(*find)(void);
    void *library;

    assert_true(length > 0);
    program[length] = 0;
    *strrchr(program, '/') = 0;
    snprintf(path, sizeof path, "%s/../lib/fake_cuda.so", program);
    setenv("QUERN_CUDA", path, 1);
    setenv("QUERN_TRUST", "compiled", 1); /* nothing computes here */
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    *(void **)&find = dlsym(library, "fake_cuda");
    assert_non_null(find);
    log_cuda = find();
}

/* ------------------------------------------------------------------ regions */

void *log_region(const char *name, int part, size_t bytes)
{
    struct region *region = &regions[nregions++];
    const size_t guard = 1 << 16;

    assert_true(nregions <= MOST);
    if (part)
        snprintf(region->name, sizeof region->name, "%s#%d", name, part);
    else
        snprintf(region->name, sizeof region->name, "%s", name);
    region->bytes = (bytes + 2 * guard - 1) / guard * guard;
    region->at = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(region->at != MAP_FAILED);
    return region->at;
}

void log_forget(void)
{
    while (nregions > 0) {
        nregions--;
        assert_int_equal(munmap(regions[nregions].at, regions[nregions].bytes),
                         0);
    }
}

/* An address that is in no region is a defect: it differs from run to run. */
static void name_address(uint64_t address, char *text, size_t size)
{
    for (int i = 0; i < nregions; i++) {
        uint64_t at = (uintptr_t)regions[i].at;

        if (address < at || address >= at + regions[i].bytes)
            continue;
        snprintf(text, size, "%s+0x%llx", regions[i].name,
                 (unsigned long long)(address - at));
        return;
    }
    snprintf(text, size, address ? "nowhere" : "null");
}

/* -------------------------------------------------------------------- words */

/* One word more, on a new line if this one is full. */
static void word(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void word(const char *format, ...)
{
    char text[512];
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (log_state.column + 1 + length > WIDTH) {
        fputs("\n   ", log_state.words);
        log_state.column = 3;
    }
    log_state.column += fprintf(log_state.words, " %s", text);
}

static void address_word(const char *name, const void *address)
{
    char text[64];

    if (!address)
        return;
    name_address((uintptr_t)address, text, sizeof text);
    word("%s=%s", name, text);
}

/* All but zeros. */
static void number_word(const char *name, long long number)
{
    if (number)
        word("%s=%lld", name, number);
}

static void map_word(const char *name, const void *map)
{
    char at[64], text[200];
    struct fake_map m;
    int used;

    memcpy(&m, map, sizeof m);
    name_address(m.address, at, sizeof at);
    used = snprintf(text, sizeof text, "%s={%s type %d,", name, at, m.type);
    for (int i = 0; i < m.rank && i < 4; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%llu",
                         i ? "x" : " ", (unsigned long long)m.dims[i]);
    for (int i = 0; i + 1 < m.rank && i < 3; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%llu",
                         i ? "," : " by ", (unsigned long long)m.strides[i]);
    for (int i = 0; i < m.rank && i < 4; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%u",
                         i ? "x" : " box ", m.box[i]);
    snprintf(text + used, sizeof text - (size_t)used, " swizzle %d}",
             m.swizzle);
    word("%s", text);
}

/* --------------------------------------------------------------- parameters */

static void microbatches_words(const struct qn_microbatches *microbatches,
                               int count)
{
    for (int i = 0; i < count; i++) {
        const struct qn_microbatch *part = &microbatches->part[i];

        word("part %d:", i);
#define ADDRESS(field) address_word(#field, part->field)
#define NUMBER(field)  number_word(#field, part->field)
        ADDRESS(a), ADDRESS(b), ADDRESS(first_dims), ADDRESS(offsets);
        ADDRESS(a_sf), ADDRESS(b_sf), ADDRESS(a_global), ADDRESS(b_global);
        NUMBER(a_stride), NUMBER(b_stride);
        NUMBER(a_sf_stride), NUMBER(b_sf_stride);
        NUMBER(sizes_bytes), NUMBER(k);
#undef ADDRESS
#undef NUMBER
    }
}

static void microbatch_maps_words(const struct qn_microbatch_maps *maps,
                                  int count)
{
    for (int i = 0; i < count; i++) {
        word("maps %d:", i);
        map_word("a", &maps->part[i].a);
        map_word("b", &maps->part[i].b);
    }
}

static void host_sizes_words(const struct qn_host_sizes *sizes)
{
    word("host_sizes=%d:", sizes->count);
    for (int i = 0; i < sizes->count && i < QN_HOST_SIZES; i++)
        word("%d", sizes->size[i]);
}

/* Products that a launch merges; 0 for a launch of one. */
static int microbatch_count(const struct qn_kernel *kernel, void **params)
{
    for (int i = 0; i < kernel->nparams; i++)
        if (kernel->params[i] == QN_PARAM_microbatch_count)
            return *(const int *)params[i];
    return 0;
}

/* Values of types that are no structures. */
static void plain_word(const char *name, const char *type, const void *value)
{
    if (strchr(type, '*'))
        address_word(name, *(const void *const *)value);
    else if (!strcmp(type, "long long"))
        number_word(name, *(const long long *)value);
    else if (!strcmp(type, "int"))
        number_word(name, *(const int *)value);
    else if (strcmp(type, "float") != 0)
        word("%s=?%s", name, type);
    else if (*(const float *)value != 0)
        word("%s=%g", name, (double)*(const float *)value);
}

static void param_words(int param, const void *value, int microbatches)
{
    static const struct {
        const char *name, *type, *kind, *operand, *member;
    } known[] = {
#define ROW(n, t, meaning) {.name = #n, .type = t},
        QN_PARAMS(ROW)
#undef ROW
    };
    const char *name = known[param].name, *type = known[param].type;

    if (param == QN_PARAM_microbatches)
        microbatches_words(value, microbatches);
    else if (param == QN_PARAM_microbatch_maps)
        microbatch_maps_words(value, microbatches);
    else if (param == QN_PARAM_host_sizes)
        host_sizes_words(value);
    else if (strstr(type, "tensor_map"))
        map_word(name, value);
    else
        plain_word(name, type, value);
}

/* ----------------------------------------------------------------- launches */

static int compare(const void *name, const void *kernel)
{
    return strcmp(name, ((const struct qn_kernel *)kernel)->name);
}

static const struct qn_kernel *find(const char *name)
{
    const struct qn_kernel *kernel = bsearch(
        name, log_state.registry->kernels, (size_t)log_state.registry->nkernels,
        sizeof *log_state.registry->kernels, compare);

    if (!kernel)
        fail_msg("%s is launched, and not in the registry", name);
    return kernel;
}

static void extent_words(const char *name, const unsigned *extents)
{
    fprintf(log_state.out, " %s %u", name, extents[0]);
    if (extents[1] != 1 || extents[2] != 1)
        fprintf(log_state.out, "x%ux%u", extents[1], extents[2]);
}

static void shape_words(const struct cu_launch *launch)
{
    extent_words("grid", launch->grid);
    extent_words("block", launch->block);
    if (launch->shared_bytes)
        fprintf(log_state.out, " shared %u", launch->shared_bytes);
    for (unsigned i = 0; i < launch->nattributes; i++) {
        const struct cu_attribute *attribute = &launch->attributes[i];

        if (attribute->id == QN_CU_ATTRIBUTE_CLUSTER_DIMENSION)
            extent_words("cluster", attribute->value.cluster);
        else if (attribute->id ==
                     QN_CU_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                 attribute->value.allowed == 1)
            fputs(" dependent", log_state.out);
        else
            fprintf(log_state.out, " attribute %d", attribute->id);
    }
    if (launch->stream)
        fputs(" on a stream", log_state.out);
}

/* Written instead of words: a hash, or they themselves. */
static void put_words(const char *words, size_t length)
{
    char hash[SHA256_DIGEST_STRING_LENGTH];

    if (log_state.is_short) {
        SHA256Data((const uint8_t *)words, length, hash);
        fprintf(log_state.out, " %.8s\n", hash);
    } else {
        fprintf(log_state.out, "\n   %s\n", words);
    }
}

/* Called by the driver, which holds a lock: no test may end here. */
static void told(const char *name, const struct cu_launch *launch,
                 void **params)
{
    const struct qn_kernel *kernel = find(name);
    size_t length;
    char *words;

    fprintf(log_state.out, "  %s", name);
    shape_words(launch);
    log_state.words = kernel ? open_memstream(&words, &length) : NULL;
    if (!log_state.words) {
        fputs(" is not in the registry\n", log_state.out);
        return;
    }
    log_state.column = 3;
    for (int i = 0; i < kernel->nparams; i++)
        param_words(kernel->params[i], params[i],
                    microbatch_count(kernel, params));
    fclose(log_state.words);
    put_words(words, length);
    free(words);
}

static void told_copy(const char *call, uint64_t to, size_t bytes)
{
    char text[64];

    name_address(to, text, sizeof text);
    fprintf(log_state.out, "  %s %s, %zu bytes\n", call, text, bytes);
}

void log_begin(const struct quern_registry *registry, FILE *out, int is_short)
{
    log_state.registry = registry;
    log_state.out = out;
    log_state.is_short = is_short;
    log_cuda->told = told;
    log_cuda->told_copy = told_copy;
}

void log_end(void)
{
    log_cuda->told = NULL;
    log_cuda->told_copy = NULL;
}
