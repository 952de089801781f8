ragged "m" { a = "m", d = "m" }
ragged "k" { a = "k", b = "k" }
ragged "n" { b = "n", d = "n" }
