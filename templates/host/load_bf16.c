/* bf16 is the upper half of fp32. */
typedef unsigned short element;

static float load(element x)
{
    const union { unsigned int u; float f; } v = { .u = (unsigned int)x << 16 };
    return v.f;
}
