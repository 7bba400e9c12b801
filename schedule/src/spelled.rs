//! Enumerations whose values have one spelling, in files, programs and messages.

/// An enumeration whose values are spelled as said here, wherever they are written or read; what
/// it is called in messages stands behind its name.
macro_rules! spelled {
    (
        $(#[$about:meta])*
        pub enum $name:ident: $what:literal {
            $($(#[$meaning:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$meaning])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// All values, in the order in which they are tried and listed.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $(Self::$variant => $text,)* })
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(format!(
                        concat!("unknown ", $what, " `{}`; known are {}"),
                        text,
                        [$($text),*].join(", "),
                    )),
                }
            }
        }
    };
}

/// What `#[serde(try_from = "String", into = "String")]` asks of a type that is written and read as text.
macro_rules! held_as_text {
    ($($name:ty),*) => {$(
        impl TryFrom<String> for $name {
            type Error = <$name as std::str::FromStr>::Err;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    )*};
}

pub(crate) use {held_as_text, spelled};
