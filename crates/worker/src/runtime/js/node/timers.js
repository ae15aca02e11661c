(load) => ({ ...load("internal:timers").globals, promises: load("node:timers/promises") })
