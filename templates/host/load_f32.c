//$ -- SPDX-License-Identifier: Apache-2.0
static float load_f32(float x)
{
    return x;
}
