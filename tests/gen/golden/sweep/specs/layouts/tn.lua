layout "tn" { a = "k", b = "k" }
