//@ templates/toy/piece.cu
/* A piece for $(arch), without a last newline. */
//$ for k, v in pairs { b = 2, a = 1, [2] = "y", [1] = "x" } do
$(k) = $(v);
//$ end
last();