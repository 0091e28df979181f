//! With the feature `verbs`: compiles the part that reads libibverbs' headers, and links with it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "verbs")]
    {
        println!("cargo::rerun-if-changed=src/verbs/shim.c");
        cc::Build::new().file("src/verbs/shim.c").warnings_into_errors(true).compile("hopwise_verbs");
        println!("cargo::rustc-link-lib=ibverbs");
    }
}
