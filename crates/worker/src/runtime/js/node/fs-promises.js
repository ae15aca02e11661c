(load) => load("internal:files").promises
