//! What a program knows from the web.

use std::net::IpAddr;

use rquickjs::{Ctx, Object};

use super::alive::Alive;

#[derive(Debug)]
pub struct Options {
    pub door: IpAddr,
    pub alive: Alive,
}

pub fn install(_ctx: &Ctx<'_>, _options: &Options) -> rquickjs::Result<()> {
    Ok(())
}

pub fn native<'js>(ctx: &Ctx<'js>) -> rquickjs::Result<Object<'js>> {
    Object::new(ctx.clone())
}
