//! Bytes between the engine and Rust.
//!
//! What Rust makes becomes a `Uint8Array` as it is. The other way the engine spells its bytes in base64,
//! natively: its memory can only be looked at with code that the compiler does not check.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rquickjs::function::This;
use rquickjs::{Ctx, Error, FromJs, Function, IntoJs, Object, Result, TypedArray, Value};

/// A `Uint8Array`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binary(pub Vec<u8>);

impl<'js> FromJs<'js> for Binary {
    fn from_js(ctx: &Ctx<'js>, value: Value<'js>) -> Result<Self> {
        let wrong = || Error::new_from_js("value", "Uint8Array");
        let array = Object::from_value(value).map_err(|_| wrong())?;
        if !array.is_typed_array::<u8>() {
            return Err(wrong());
        }
        // Of the constructor's prototype: a program may hang something else onto its own array.
        let class: Object<'js> = ctx.globals().get("Uint8Array")?;
        let prototype: Object<'js> = class.get("prototype")?;
        let spell: Function<'js> = prototype.get("toBase64")?;
        let spelled: String = spell.call((This(array),))?;
        STANDARD.decode(spelled).map(Self).map_err(|_| wrong())
    }
}

impl<'js> IntoJs<'js> for Binary {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        TypedArray::<u8>::new(ctx.clone(), self.0)?.into_js(ctx)
    }
}
