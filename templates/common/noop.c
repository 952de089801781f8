if (noop && *noop)
    return; /* a flag on the device says so */
