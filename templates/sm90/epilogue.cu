//$ if addend == "read" then
    struct addend addend;
    addend.c = c;
    addend.c_pointers = c_pointers;
    addend.stride = c_stride;
    addend.group_stride = c_group_stride;
    addend.columns = n;
//$ if epilogue == "scale" then
    addend.alpha = alpha;
    addend.beta = beta;
    addend.step = scalar_step;
//$ end
//$ elseif epilogue == "activate" then
    struct follow follow;
    follow.alpha = alpha;
    follow.step = scalar_step;
    follow.bias = bias;
    follow.columns = n;
    follow.probability = probability;
    follow.saved = saved;
//$ if activation == "clamped_swiglu" then
    follow.limit = limit;
    follow.slope = slope;
    follow.shift = shift;
//$ end
//$ if operands == "halves" then
    maps.half = n / 2;
//$ end
//$ end
