//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A number as it is. The compiler is not told so: it would keep all that follows from it in
** registers, of which there are few, or copy a loop for each value that a condition may have.
*/
FN int afresh(int number)
{
    asm volatile("" : "+r"(number));
    return number;
}
