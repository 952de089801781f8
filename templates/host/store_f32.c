//$ -- SPDX-License-Identifier: Apache-2.0
static float store_f32(float x)
{
    return x;
}
