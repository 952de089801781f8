-- A m-major, B k-major.

layout "tt" { a = "mn", b = "k" }
