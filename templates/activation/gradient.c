/* How fast an activation grows along each of its operands. */
struct gradient { float a, b; };
