/* SPDX-License-Identifier: Apache-2.0 */
/* support.c: shared by the tests of the runtime. */
#define _GNU_SOURCE
#include "test.h"

#include "base/context.h"
#include "code/cache.h"
#include "code/cache_folder.h"
#include "product/plan.h"

#include <dirent.h>
#include <dlfcn.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

char test_folder[256], test_cache[300], test_log[300];
char test_messages[8192];
const struct qn_plan_options test_aot = {.backend = QUERN_BACKEND_AOT};
struct fake_cuda *test_cuda;
struct fake_cublaslt *test_cublaslt;

/* The fakes are where the build puts libraries: bin/../lib. */
static void use_fake(const char *variable, const char *name)
{
    char program[PATH_MAX], path[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);

    assert_true(length > 0);
    program[length] = 0;
    *strrchr(program, '/') = 0;
    snprintf(path, sizeof path, "%s/../lib/%s", program, name);
    setenv(variable, path, 1);
}

/* The state of a fake, by its function of that name. */
static void *find_state(const char *variable, const char *name)
{
    void *library = dlopen(getenv(variable), RTLD_NOW | RTLD_LOCAL);
    void *(*find)(void);

    if (!library)
        print_error("%s\n", dlerror());
    assert_non_null(library);
    *(void **)&find = dlsym(library, name);
    return find();
}

int test_setup(void **state)
{
    static const char *const cleared[] = {
        "FAKE_NVRTC_DELAY", "FAKE_NVRTC_VERSION",
        "FAKE_NVRTC_FAIL",  "FAKE_NVRTC_REFUSE",
        "FAKE_CUDA_TIMES",  "FAKE_CUDA_JITTER",
        "QUERN_TUNE",       "FAKE_GEN_KEY",
        "FAKE_GEN_FAIL",    "QUERN_THREADS",
        "QUERN_CC",         "QUERN_CACHE_SIZE",
        "QUERN_LOG",        "TMPDIR",
        "QUERN_CHECKER"};

    (void)state;
    snprintf(test_folder, sizeof test_folder, "/tmp/quern-test-XXXXXX");
    assert_non_null(mkdtemp(test_folder));
    snprintf(test_cache, sizeof test_cache, "%s/cache", test_folder);
    snprintf(test_log, sizeof test_log, "%s/log", test_folder);
    setenv("QUERN_CACHE", test_cache, 1);
    setenv("QUERN_TRUST", "compiled", 1);
    setenv("FAKE_LOG", test_log, 1);
    for (size_t i = 0; i < sizeof cleared / sizeof cleared[0]; i++)
        unsetenv(cleared[i]);
    use_fake("QUERN_CUDA", "fake_cuda.so");
    use_fake("QUERN_NVRTC", "fake_nvrtc.so");
    use_fake("QUERN_GEN", "fake_gen.so");
    use_fake("QUERN_CUBLASLT", "fake_cublaslt.so");
    if (!test_cuda) {
        test_cuda = find_state("QUERN_CUDA", "fake_cuda");
        test_cublaslt = find_state("QUERN_CUBLASLT", "fake_cublaslt");
    }
    memset(test_cublaslt, 0, sizeof *test_cublaslt);
    *test_cuda = (struct fake_cuda){.devices = 1,
                                    .major = 9,
                                    .minor = 0,
                                    .sms = 132,
                                    .shared_bytes = 232448};
    test_messages[0] = 0;
    memset(&test_host, 0, sizeof test_host);
    test_host_workers = 0;
    memset(&test_system, 0, sizeof test_system);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *walk)
{
    (void)st, (void)kind, (void)walk;
    return remove(path);
}

int test_teardown(void **state)
{
    (void)state;
    test_fail_allocation(0);
    memset(&test_system, 0, sizeof test_system);
    nftw(test_folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

void test_expect(int code, int expected, const char *part)
{
    if (code != expected)
        print_error("message: %s\n", quern_errmsg());
    assert_int_equal(code, expected);
    if (!strstr(quern_errmsg(), part)) {
        print_error("message: %s\nlacks:   %s\n", quern_errmsg(), part);
        fail();
    }
}

int test_fork(void)
{
    int child;

    fflush(NULL);
    child = fork();
    if (child == 0)
        test_cuda->process = 0;
    return child;
}

int test_count(const char *start)
{
    FILE *file = fopen(test_log, "r");
    char line[512];
    int count = 0;

    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        count += !strncmp(line, start, strlen(start));
    fclose(file);
    return count;
}

/* By any thread, hence the lock. */
void test_collect(void *user, int level, const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    size_t used;

    (void)user, (void)level;
    pthread_mutex_lock(&lock);
    used = strlen(test_messages);
    snprintf(test_messages + used, sizeof test_messages - used, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

struct quern_context *test_open(void)
{
    const struct quern_open_options options = {.log = test_collect,
                                               .log_level = QUERN_LOG_DEBUG};
    struct quern_context *ctx;

    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    return ctx;
}

struct quern_context *test_open_with(const struct quern_registry *registry)
{
    const struct quern_open_options options = {.registry = registry};
    struct quern_context *ctx;

    test_expect(qn_open(&options, &ctx), QUERN_OK, "");
    return ctx;
}

struct qn_problem test_problem(struct quern_context *ctx, const char *text)
{
    struct qn_problem problem;

    test_expect(qn_problem_parse(ctx, text, &problem), QUERN_OK, "");
    return problem;
}

struct quern_registry test_without(const struct quern_registry *registry,
                                   const char *kernel, struct qn_kernel *left)
{
    struct quern_registry fewer = *registry;

    fewer.kernels = left;
    fewer.nkernels = 0;
    for (int i = 0; i < registry->nkernels; i++)
        if (strcmp(registry->kernels[i].name, kernel))
            left[fewer.nkernels++] = registry->kernels[i];
    assert_int_equal(fewer.nkernels, registry->nkernels - 1);
    return fewer;
}

struct qn_plan *test_plan(struct quern_context *ctx, const char *text,
                          const struct qn_plan_options *options)
{
    struct qn_problem problem = test_problem(ctx, text);
    struct qn_plan *plan;

    test_expect(qn_plan(ctx, &problem, options, &plan), QUERN_OK, "");
    return plan;
}

void test_expect_balance(void)
{
    assert_int_equal(test_cuda->allocations, 0);
    assert_int_equal(test_cuda->events, 0);
    assert_int_equal(test_cuda->depth, 0);
}

void test_expect_choice(struct quern_context *ctx, const char *text,
                        const struct qn_plan_options *options,
                        const char *kernel, int backend, int sms)
{
    struct qn_plan *plan = test_plan(ctx, text, options);
    struct quern_plan_info info;

    qn_plan_info(plan, &info);
    assert_string_equal(info.kernel, kernel);
    assert_int_equal(info.backend, backend);
    assert_int_equal(info.sms, sms);
    qn_plan_free(plan);
}

void test_expect_plan(struct quern_context *ctx, const char *text,
                      const char *kernel, int tuned)
{
    struct qn_plan *plan = test_plan(ctx, text, NULL);
    struct quern_plan_info info;

    qn_plan_info(plan, &info);
    assert_string_equal(info.kernel, kernel);
    assert_int_equal(info.tuned, tuned);
    qn_plan_free(plan);
}

void test_expect_why(struct quern_context *ctx, const char *text,
                     const char *part, int there)
{
    struct qn_problem p = test_problem(ctx, text);
    char *why;

    test_expect(qn_why(ctx, &p, NULL, NULL, &why), QUERN_OK, "");
    if ((strstr(why, part) != NULL) != there)
        fail_msg("%s '%s':\n%s", there ? "lacks" : "has", part, why);
    quern_free(why);
}

static void give(struct qn_tensor *tensor)
{
    size_t bytes = (tensor->bytes + 63) / 64 * 64;

    tensor->data = aligned_alloc(64, bytes ? bytes : 64);
    assert_non_null(tensor->data);
    memset(tensor->data, 0, bytes);
}

struct qn_args test_args(struct quern_context *ctx, const char *text)
{
    struct qn_problem problem = test_problem(ctx, text);
    struct qn_description need;
    struct qn_tensor *sizes;

    test_expect(qn_problem_describe(ctx, &problem, &need), QUERN_OK, "");
    give(&need.args.a);
    give(&need.args.b);
    give(&need.args.d);
    sizes = &need.args.a;
    sizes->first_dims = calloc((size_t)problem.groups, 8);
    need.args.workspace = aligned_alloc(64, need.workspace_bytes);
    assert_non_null(need.args.workspace);
    memset(need.args.workspace, 0, need.workspace_bytes);
    return need.args;
}

void test_args_free(struct qn_args *args)
{
    free((void *)(uintptr_t)args->a.first_dims);
    free(args->a.data);
    free(args->b.data);
    free(args->d.data);
    free(args->workspace);
}

int test_plan_once(void)
{
    static const struct qn_plan_options small = {.kernel = "k_small"};
    const struct quern_open_options options = {.log = test_collect,
                                               .log_level = QUERN_LOG_INFO};
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan = NULL;
    int code = qn_open(&options, &ctx);

    if (!code)
        code = qn_problem_parse(ctx, TEST_PLAN, &p);
    if (!code)
        code = qn_plan(ctx, &p, &small, &plan);
    qn_plan_free(plan);
    qn_close(ctx);
    return code;
}

char test_faults[4096];

/* A line for what is damaged; counted in `user`. */
static int add_fault(void *user, const struct qn_cache_entry *entry)
{
    size_t used = strlen(test_faults);

    if (!entry->damaged)
        return 0;
    snprintf(test_faults + used, sizeof test_faults - used, "%s: %s\n",
             entry->key, entry->fault);
    ++*(int *)user;
    return 0;
}

int test_verify(void)
{
    struct qn_cache *cache;
    int count = 0;

    test_faults[0] = 0;
    assert_int_equal(qn_cache_open(test_cache, NULL, &cache), QUERN_OK);
    assert_int_equal(qn_cache_each(cache, 1, add_fault, &count), 0);
    qn_cache_close(cache);
    return count;
}

int test_count_files(const char *part)
{
    char path[512];
    struct dirent *entry;
    DIR *list;
    int count = 0;

    snprintf(path, sizeof path, "%s/%s", test_cache, part);
    list = opendir(path);
    while (list && (entry = readdir(list)))
        count += entry->d_name[0] != '.';
    if (list)
        closedir(list);
    return list ? count : -1;
}

void test_shell(const char *format)
{
    char command[2048];
    size_t used = 0;

    for (const char *at = format; *at; at++) {
        assert_true(used + strlen(test_cache) + 1 < sizeof command);
        if (at[0] == '%' && at[1] == 's') {
            strcpy(command + used, test_cache);
            used += strlen(test_cache);
            at++;
        } else {
            command[used++] = *at;
        }
    }
    command[used] = 0;
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

void test_wipe(void)
{
    nftw(test_cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
