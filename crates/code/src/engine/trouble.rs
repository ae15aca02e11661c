//! What is told of an error: in the words of the program, at its own lines.

use rquickjs::{Coerced, Value};

use crate::wire::Trouble;

/// A thrown value, whatever it is.
pub(super) fn of(value: &Value<'_>) -> Trouble {
    let text = |object: &rquickjs::Object<'_>, key: &str| {
        object.get::<_, Option<Coerced<String>>>(key).ok().flatten().map(|text| text.0)
    };
    let Some(error) = value.as_object() else {
        let message = value.get::<Coerced<String>>().map_or_else(|_| String::new(), |text| text.0);
        return plain("Error", &message);
    };
    Trouble {
        name: text(error, "name").unwrap_or_else(|| "Error".to_owned()),
        message: text(error, "message").unwrap_or_default(),
        stack: text(error, "stack"),
        line: None,
        column: None,
    }
}

pub(super) fn plain(name: &str, message: &str) -> Trouble {
    Trouble {
        name: name.to_owned(),
        message: message.to_owned(),
        stack: None,
        line: None,
        column: None,
    }
}
