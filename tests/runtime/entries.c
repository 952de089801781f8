/* SPDX-License-Identifier: Apache-2.0 */
/* entries.c: shared by the tests of the cache's entries. */
#define _GNU_SOURCE
#include "test.h"

#include "entries.h"

#include <sys/wait.h>

const struct qn_cache_item test_item = {.source = "the source\n",
                                        .log = "the log\n",
                                        .object = "the object",
                                        .bytes = 10,
                                        .kernel = "k_test",
                                        .arch = "sm_90a",
                                        .compiler = "nvrtc 13.0"};

struct qn_cache *test_open_cache(const char *list)
{
    static const struct qn_cache_listener listener = {test_collect, NULL};
    struct qn_cache *cache;

    assert_int_equal(qn_cache_open(list, &listener, &cache), QUERN_OK);
    return cache;
}

int test_loads(struct qn_cache *cache, const char *key, int repair)
{
    struct qn_cache_object object = {NULL, 0};
    int found = qn_cache_load(cache, key, repair, 0, &object);

    if (found) {
        assert_int_equal(object.bytes, 10);
        assert_memory_equal(object.data, "the object", 10);
    }
    free(object.data);
    return found;
}

int test_as_nobody(int (*what)(void))
{
    pid_t child;
    int status;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        if (geteuid() == 0 &&
            (setregid(65534, 65534) || setreuid(65534, 65534)))
            _exit(99);
        _exit(what());
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}
