//@ templates/toy/host.cu
void $(name)(void *const *params, int worker, int workers)
{
    /* $(epilogue) on $(arch) */
    (void)params, (void)worker, (void)workers;
}
