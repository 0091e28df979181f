// SPDX-License-Identifier: Apache-2.0 OR MIT
// Edges: whether a packet enters or leaves the domain here, and the MTU of its link.
//
// The control plane installs: ports to hosts, in `source_port`, `border_port` and `sink_port`; MTUs.

#ifndef EDGES_P4
#define EDGES_P4

control Entrance(inout local_t local, in bit<9> ingress_port) {
    @name("from_edge") @id(0x01000013)
    action from_edge() {
        local.visit.from_edge = 1;
        local.visit.from_outside = 1;
    }

    @name("source_port") @id(0x02000001)
    table source_port {
        key = { ingress_port : exact @name("ingress_port"); }
        actions = { from_edge; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    /// The port is at the border of the domain, also if packets from there are not measured: INT from there is not the domain's.
    @name("from_border") @id(0x01000016)
    action from_border() {
        local.visit.from_outside = 1;
    }

    @name("border_port") @id(0x02000014)
    table border_port {
        key = { ingress_port : exact @name("ingress_port"); }
        actions = { from_border; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    apply {
        source_port.apply();
        border_port.apply();
    }
}

control Edges(inout local_t local, in bit<9> egress_port) {
    @name("to_edge") @id(0x01000014)
    action to_edge() {
        local.visit.to_edge = 1;
    }

    @name("sink_port") @id(0x02000004)
    table sink_port {
        key = { egress_port : exact @name("egress_port"); }
        actions = { to_edge; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS_SIZE;
    }

    @name("set_mtu") @id(0x01000012)
    action set_mtu(@id(1) bit<16> mtu) {
        local.visit.mtu = mtu;
    }

    @name("port_mtu") @id(0x02000013)
    table port_mtu {
        key = { egress_port : exact @name("egress_port"); }
        actions = { set_mtu; }
        default_action = set_mtu(1500);
        size = PORTS_SIZE;
    }

    apply {
        sink_port.apply();
        port_mtu.apply();
    }
}

#endif
