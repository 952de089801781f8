--@ specs/ragged/m.lua
ragged "m" { a = "m", d = "m" }
