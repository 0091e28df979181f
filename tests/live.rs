//! Roles of hopwise on real sockets and interfaces, most of them in network namespaces, which need root and `ip`. A test that cannot
//! run is reported as skipped.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "each test program uses a part")]
mod support;

mod live {
    mod aggregator;
    mod console;
    mod console_filters;
    mod console_pages;
    mod console_traffic;
    mod dta;
    mod dta_intercept;
    mod dta_roles;
    mod dta_xdp;
    mod export;
    mod export_alerts;
    mod export_hops;
    mod export_https;
    mod export_kafka;
    mod export_memory;
    mod export_parquet;
    mod export_redis;
    mod export_s3;
    mod export_syslog;
    mod interface;
    mod managed;
    mod outlet;
    mod outlet_memory;
    mod servers;
    mod switch;
    mod without_root;
}
