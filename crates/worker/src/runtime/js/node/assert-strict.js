(load) => load("node:assert").strict
