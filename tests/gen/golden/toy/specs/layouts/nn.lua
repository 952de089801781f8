layout "nn" { a = "k", b = "mn" }
