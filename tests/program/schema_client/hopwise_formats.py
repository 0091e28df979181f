"""Generators for the formats of openapi.json, for schemathesis."""

import schemathesis
from hypothesis import strategies as st

port = st.integers(0, 65535)
v4 = st.ip_addresses(v=4)
v6 = st.ip_addresses(v=6)
proto = st.integers(0, 255)
flow = st.one_of(
    st.builds("{}:{}>{}:{}/{}".format, v4, port, v4, port, proto),
    st.builds("[{}]:{}>[{}]:{}/{}".format, v6, port, v6, port, proto),
    st.builds("{}>{}/{}".format, v4, v4, proto),
)
sql = st.sampled_from(["SELECT 1", "SELECT * FROM events", "SELECT kind, count(*) FROM events GROUP BY kind"])

conditions = st.sampled_from(
    ["", "10.0.0.1", "src in 10.0.0.0/8", "not (port == 443 or path ~ 1>*>2)", "flow_latency > 5ms and proto == udp"]
)

schemathesis.openapi.format("flow", flow)
schemathesis.openapi.format("filter", conditions)
schemathesis.openapi.format("flow-or-id", st.one_of(flow, st.from_regex("^[0-9a-f]{16}$", fullmatch=True)))
schemathesis.openapi.format("sql", sql)
schemathesis.openapi.format("silence", st.sampled_from(["rule == slow", "node == 101 and queue == 3", "10.0.0.1"]))
schemathesis.openapi.format("rule", st.sampled_from(["hops > 200", "max(queue_occupancy) > 4G or loop"]))
