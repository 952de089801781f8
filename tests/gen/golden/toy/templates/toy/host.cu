void $(name)(void *const *params, int worker, int workers)
{
    (void)params, (void)worker, (void)workers;
}
