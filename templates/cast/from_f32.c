FN float from_f32(float x)
{
    return x;
}
