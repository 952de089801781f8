--@ specs/layouts/plain.lua
storage "plain" { order = "rows" }
