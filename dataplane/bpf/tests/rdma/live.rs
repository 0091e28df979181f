//! On an interface.
