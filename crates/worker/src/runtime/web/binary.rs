//! Converts bytes between Rust and JavaScript.
//!
//! Rust bytes become a `Uint8Array` directly. JavaScript bytes come as base64, because reading the
//! engine's memory would need unsafe code.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rquickjs::function::This;
use rquickjs::{Ctx, Error, FromJs, Function, IntoJs, Object, Result, TypedArray, Value};

/// The bytes of a `Uint8Array`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binary(pub Vec<u8>);

impl<'js> FromJs<'js> for Binary {
    fn from_js(ctx: &Ctx<'js>, value: Value<'js>) -> Result<Self> {
        let wrong = || Error::new_from_js("value", "Uint8Array");
        let array = Object::from_value(value).map_err(|_| wrong())?;
        if !array.is_typed_array::<u8>() {
            return Err(wrong());
        }
        // From the prototype, because a program can override the method on its own array.
        let class: Object<'js> = ctx.globals().get("Uint8Array")?;
        let prototype: Object<'js> = class.get("prototype")?;
        let to_base64: Function<'js> = prototype.get("toBase64")?;
        let encoded: String = to_base64.call((This(array),))?;
        STANDARD.decode(encoded).map(Self).map_err(|_| wrong())
    }
}

impl<'js> IntoJs<'js> for Binary {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        TypedArray::<u8>::new(ctx.clone(), self.0)?.into_js(ctx)
    }
}
