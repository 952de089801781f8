/* --- a comment about a piece's items --- */

/* The first one. */
DEVICE int piece(int x)
{
    return x;
}

/*
** The other.
*/
DEVICE int other_piece(int x)
{
    return piece(x);
}
