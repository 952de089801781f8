//$ -- SPDX-License-Identifier: Apache-2.0
FN float from_f32(float x)
{
    return x;
}
