//! The macro for enums whose values have names.

/// Defines an enum, the list of its values, and the function that returns the name of a value.
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
            /// All values, in the order of their declaration.
            #[allow(dead_code, reason = "only some lists are needed")]
            $visible const ALL: [Self; [$(stringify!($value)),+].len()] = [$(Self::$value),+];

            /// Returns the name in configuration, rules and output.
            $visible const fn $name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }
    };
}
