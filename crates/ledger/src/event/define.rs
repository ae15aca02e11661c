//! The macro that defines the events: a struct for each kind, the enum of all kinds, and their conversion to
//! and from stored fields.

macro_rules! events {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $kind:literal {
            $( $(#[doc = $about:literal])* $field:ident: $type:ty ),* $(,)?
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $name {
                $( $(#[doc = $about])* pub $field: $type, )*
            }

            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(event)
                }
            }
        )+

        /// Any event that the ledger can record.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event {
            $( $name($name), )+
        }

        impl Event {
            /// All kinds of events with their descriptions.
            pub const KINDS: &[(&str, &str)] = &[$( ($kind, concat!($($doc),+)) ),+];

            pub const fn kind(&self) -> &'static str {
                match self {
                    $( Self::$name(_) => $kind, )+
                }
            }

            pub fn fields(&self) -> Fields {
                let mut fields = Fields::default();
                match self {
                    $( Self::$name(_event) => {
                        $( _event.$field.put(stringify!($field), &mut fields); )*
                    } )+
                }
                fields
            }

            /// Builds the event of a kind from its fields; unknown fields are ignored.
            pub fn read(kind: &str, fields: &Fields) -> Result<Self, EventError> {
                match kind {
                    $( $kind => Ok(Self::$name($name {
                        $( $field: Field::get(stringify!($field), fields).ok_or(
                            EventError::Field { kind: $kind, field: stringify!($field) },
                        )?, )*
                    })), )+
                    _ => Err(EventError::Kind { kind: kind.to_owned() }),
                }
            }
        }
    };
}
