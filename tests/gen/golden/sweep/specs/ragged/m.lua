ragged "m" { a = "m", d = "m" }
