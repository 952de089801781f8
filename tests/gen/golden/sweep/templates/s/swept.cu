//$ if what == "include" then
#include "others.h" // may name anything: nothing is left out
//$ end
/* Whatever the kernel does not name is left out. */
enum {
    FIRST = 1,
    UNUSED = FIRST + (1, 2), /* not with its comment */
    /* Its value names another constant. */
    SECOND = FIRST << 1, /* with its comment */
    LAST = 3
};

enum { ONE = 1, TWO = 2, THREE = 3 }; /* on one line */
enum { ZERO, AFTER_ZERO }; /* counted: stays whole */
enum tagged { TAGGED = 1, OTHER = 2 };

/* --- a comment about the items that follow --- */

#define DEVICE __device__
#define LONG_MACRO(x) \
    (x + SECOND)

//$ include "s/piece.cu"
#pragma unroll_is_always_kept

/* Only a string and a comment name it: hidden(). */
DEVICE int hidden(void) { return '"' + '{'; }

typedef struct { int (*call)(int); } callback;
typedef unsigned int (*function_type)(int);

struct pair { int a, b; };
static const struct pair pairs[2] = { { 1, 2 }, { 3, 4 } };
static const int from_pair = (int)sizeof(struct pair);

DEVICE int declared(int x);

template <int COUNT = 3> DEVICE int doubled(int x)
{
    return x < 1.5e+3f ? 2 * COUNT : declared(x);
}

DEVICE int declared(int x)
{
    const char *text = "hidden() }";

    return text[x] == '}' ? TWO : sizeof(callback); // hidden()
}

extern "C" __global__ void __launch_bounds__(SECOND)
$(name)(
    //$ include "common/params.cu"
)
{
//$ if what ~= "nothing" then
    LONG_MACRO(piece(m));
    doubled<3>(AFTER_ZERO);
//$ end
//$ if what == "all" then
    const function_type f = hidden;
    THREE, pairs[LAST].a, from_pair, other_piece, TAGGED;
//$ end
}
