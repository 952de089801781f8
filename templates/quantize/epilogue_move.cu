//$ -- SPDX-License-Identifier: Apache-2.0
//$ local packed = type ~= "f32"
//$ local store = packed and "unsigned short" or "float"
typedef $(store) $(type)_element;

/* Eight neighbours at a multiple of 16 bytes. */
FN void get_$(type)(float x[EIGHT], const $(type)_element *from)
{
//$ if packed then
    const uint4 v = *(const uint4 *)from;
    const unsigned word[4] = { v.x, v.y, v.z, v.w };

#pragma unroll
    for (int i = 0; i < EIGHT; i++)
        x[i] = from_$(type)(word[i / 2] >> 16 * (i % 2) & 0xffff);
//$ else
    const float4 v[2] = { ((const float4 *)from)[0], ((const float4 *)from)[1] };

#pragma unroll
    for (int i = 0; i < 2; i++) {
        x[4 * i] = v[i].x;
        x[4 * i + 1] = v[i].y;
        x[4 * i + 2] = v[i].z;
        x[4 * i + 3] = v[i].w;
    }
//$ end
}

FN void put_$(type)($(type)_element *to, const float x[EIGHT])
{
//$ if packed then
    *(uint4 *)to = make_uint4(to_$(type)_x2(x[0], x[1]), to_$(type)_x2(x[2], x[3]),
                              to_$(type)_x2(x[4], x[5]), to_$(type)_x2(x[6], x[7]));
//$ else
    ((float4 *)to)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4 *)to)[1] = make_float4(x[4], x[5], x[6], x[7]);
//$ end
}

/* The operands of a thread's results, from a row that has them as `how` says. */
FN void load_$(type)(float x[2][EIGHT], const $(type)_element *row, const struct columns *c,
                     int how)
{
    if (how == WHOLE) {
        get_$(type)(x[0], row + c->first);
        if (c->two)
            get_$(type)(x[1], row + c->first + c->run);
    } else if (c->two && how == TURNS) {
        float both[2][EIGHT];

        get_$(type)(both[0], row + c->first);
        get_$(type)(both[1], row + c->first + EIGHT);
#pragma unroll
        for (int i = 0; i < EIGHT; i++) {
            x[0][i] = both[i / 4][2 * i % EIGHT];
            x[1][i] = both[i / 4][2 * i % EIGHT + 1];
        }
    } else {
#pragma unroll
        for (int i = 0; i < EIGHT; i++) {
            const long long at = column_of(c, i);

            x[0][i] = i < c->count ? from_$(type)(row[at]) : 0;
            x[1][i] = c->two && i < c->count ? from_$(type)(row[at + c->run]) : 0;
        }
    }
}

FN void store_$(type)($(type)_element *row, const float x[2][EIGHT], const struct columns *c,
                      int how)
{
    if (how == WHOLE) {
        put_$(type)(row + c->first, x[0]);
        if (c->two)
            put_$(type)(row + c->first + c->run, x[1]);
    } else if (c->two && how == TURNS) {
        float both[2][EIGHT];

#pragma unroll
        for (int i = 0; i < EIGHT; i++) {
            both[i / 4][2 * i % EIGHT] = x[0][i];
            both[i / 4][2 * i % EIGHT + 1] = x[1][i];
        }
        put_$(type)(row + c->first, both[0]);
        put_$(type)(row + c->first + EIGHT, both[1]);
    } else {
#pragma unroll
        for (int i = 0; i < EIGHT; i++) {
            const long long at = column_of(c, i);

            if (i < c->count)
                row[at] = ($(type)_element)to_$(type)(x[0][i]);
            if (c->two && i < c->count)
                row[at + c->run] = ($(type)_element)to_$(type)(x[1][i]);
        }
    }
}
