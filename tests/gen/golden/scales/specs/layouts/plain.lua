storage "plain" { order = "rows" }
