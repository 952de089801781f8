static float store_f32(float x)
{
    return x;
}
