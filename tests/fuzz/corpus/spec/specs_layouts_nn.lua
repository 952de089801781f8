--@ specs/layouts/nn.lua
layout "nn" { a = "k", b = "mn" }
