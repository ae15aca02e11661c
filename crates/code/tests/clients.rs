//! Generated clients of declared services, run and type-checked by Deno.

#[cfg(test)]
mod clients {
    mod cases;
    mod server;
}
