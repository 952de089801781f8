//$ -- SPDX-License-Identifier: Apache-2.0
/* Strips of tiles that are visited together, one tile of each strip after the other. */
struct band {
    unsigned int first, strips; /* its strips */
    unsigned int number;        /* of a tile in it */
};

/*
** The position of a group's tile; each strip has `across` of them. Bands are alike, of `usual`
** strips or up to half of that more or less: a narrow last one would read everything across for
** little.
*/
FN struct band band_of(unsigned int number, unsigned int strips, unsigned int across,
                       unsigned int usual)
{
    const unsigned int about = (strips + usual / 2) / usual;
    const unsigned int size = about > 1 ? (strips + about - 1) / about : strips;
    const unsigned int band = number / (size * across);
    struct band b;

    b.first = band * size;
    b.strips = strips - b.first < size ? strips - b.first : size;
    b.number = number - b.first * across;
    return b;
}
