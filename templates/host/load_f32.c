static float load_f32(float x)
{
    return x;
}
