//! The macro [`named!`](crate::named): enums whose values have names in configuration, JSON and metrics.

/// Defines an enum with `ALL`, `COUNT`, a function that returns a value's name, and `from_name`.
///
/// # Example
/// ```
/// wire::named! {
///     /// A direction.
///     #[derive(Clone, Copy)]
///     pub enum Direction, name {
///         /// From the host.
///         In => "in",
///         /// To the host.
///         Out => "out",
///     }
/// }
/// assert_eq!(Direction::ALL.map(Direction::name), ["in", "out"]);
/// assert!(matches!(Direction::from_name("out"), Some(Direction::Out)));
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$attribute:meta])*
        $visible:vis enum $type:ident, $name:ident {
            $($(#[$about:meta])* $value:ident $(= $number:literal)? => $text:expr,)+
        }
    ) => {
        $(#[$attribute])*
        $visible enum $type {
            $($(#[$about])* $value $(= $number)?,)+
        }

        impl $type {
            /// Number of values of the enum.
            #[allow(dead_code, reason = "only some enums are counted")]
            $visible const COUNT: usize = [$(stringify!($value)),+].len();

            /// All values, in the order of their declaration.
            #[allow(dead_code, reason = "only some lists are needed")]
            $visible const ALL: [Self; Self::COUNT] = [$(Self::$value),+];

            /// Returns the value with this name, or `None` if there is none.
            #[allow(dead_code, reason = "only some names are read")]
            $visible fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.$name() == name)
            }

            /// Returns the name used in configuration, rules and output.
            $visible const fn $name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }
    };
}
