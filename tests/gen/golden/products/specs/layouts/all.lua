layout "tn" { a = "k", b = "k" }
layout "nn" { a = "k", b = "mn" }

storage "plain" { order = "rows" }
storage "mn" { order = "columns", pad = { rows = 4 }, groups = "apart" }
