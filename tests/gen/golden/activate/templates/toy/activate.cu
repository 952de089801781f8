void $(name)(void)
{
    /* $(epilogue): $(activation) in runs of $(interleave) */
}
