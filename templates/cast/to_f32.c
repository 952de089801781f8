FN float to_f32(float x)
{
    return x;
}
