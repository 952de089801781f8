//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Instructions that every GPU since sm_80 has, one function each. `shared` addresses are 32-bit, in
** the shared window. All of global memory but the groups' sizes is read and written here.
*/
#define FN __device__ __forceinline__

//$ local codes = a.scale or b.scale -- dequantized to 16 bits in registers
//$ if codes then
typedef unsigned char element; /* a code of eight bits, or two of four */
//$ else
typedef unsigned short element; /* the bits of $(a.type) */
//$ end
typedef unsigned $(d.bytes == 4 and "int" or "short") output; /* of $(d.type) */

FN unsigned int shared_address(const void *p)
{
    return (unsigned int)__cvta_generic_to_shared(p);
}

/* --- copies --- */

/* Copy `bytes` and fill up to 16 with zeros; both ends at multiples of 16. Lands by copy_wait. */
FN void copy_async(unsigned int to, const element *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

/* The same for 4 bytes at a multiple of 4. */
FN void copy_async_4(unsigned int to, const element *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

/* This thread's copies since the last commit become one batch. */
FN void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Wait until at most `pending` of this thread's batches are in flight. */
#define copy_wait(pending) asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory")

FN void store_shared_x4(unsigned int to, const unsigned int *word)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 : : "r"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
}

FN element load_element(const element *from)
{
    return __ldg(from);
}

/* C may be D, which others write. */
FN output load_output(const output *from)
{
    return *from;
}

FN void store_output(output *to, output x)
{
    *to = x;
}

FN void load_global_x4(unsigned int *word, const void *from)
{
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3]) : "l"(from));
}

FN void store_global_x4(void *to, const unsigned int *word)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 : : "l"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
}

/* --- matrix products of a warp --- */

/* Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8. */
FN void load_matrix_x4(unsigned int *word, unsigned int from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(from) : "memory");
}

/* The same, each matrix transposed. */
FN void load_matrix_x4_transposed(unsigned int *word, unsigned int from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(from) : "memory");
}

/*
** sum += a * b for 16 rows, 8 columns and 16 steps of k. Lane i holds
**   sum[0, 1]  row i / 4, columns 2 (i % 4) + 0, 1          sum[2, 3]  8 rows below
**   a[0]       row i / 4, steps 2 (i % 4) + 0, 1            a[1]  8 rows below
**   a[2, 3]    the same, 8 steps on
**   b[0]       column i / 4, steps 2 (i % 4) + 0, 1         b[1]  8 steps on
*/
FN void mma(float *sum, const unsigned int *a, const unsigned int *b)
{
//$ local type = codes and dequantized or a.type
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.$(type).$(type).f32"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
