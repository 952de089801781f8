--@ specs/layouts/tn.lua
layout "tn" { a = "k", b = "k" }
