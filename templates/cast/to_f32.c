//$ -- SPDX-License-Identifier: Apache-2.0
FN float to_f32(float x)
{
    return x;
}
