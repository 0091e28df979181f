import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flowName, flowTextName, pathText } from '../src/lib/format';
import { names } from '../src/lib/names';
import { fieldsText } from '../src/model/stores';

test('names stand for ids where they are known', () => {
  const flow = { src: '10.0.1.5', dst: '10.0.3.9', sport: 41_000, dport: 443, proto: 6 };
  names.set({
    nodes: [
      { node: 101, name: 'leaf1', interfaces: [{ interface: 2, name: 'Ethernet4' }] },
      { node: 102, name: null, interfaces: [] },
    ],
    hosts: [{ address: '10.0.3.9', name: 'db1', origin: 'file' }],
    drop_reasons: [{ code: 128, name: 'link_down' }],
  });
  assert.deepEqual([names.reason(128), names.reason(71)], ['link down', 'reason 71']);
  assert.equal(flowTextName('10.0.1.5:41000>10.0.3.9:443/6'), '10.0.1.5:41000 → db1:443 TCP');
  assert.equal(flowTextName('[fd00::1]:7>[fd00::2]:8/17'), '[fd00::1]:7 → [fd00::2]:8 UDP');
  assert.equal(flowTextName('10.0.1.5>10.0.3.9/1'), '10.0.1.5 → db1 ICMP');
  for (const other of ['zzzz', 'id 17', 'a>b/6']) assert.equal(flowTextName(other), other);

  assert.equal(pathText([101, null, 102]), 'leaf1 › ? › 102');
  assert.equal(flowName(flow), '10.0.1.5:41000 → db1:443 TCP');
  assert.deepEqual(
    [names.interface(101, 2), names.interface(102, 2), names.interface(null, 2)],
    ['Ethernet4', '2', '2'],
  );
  const fields = {
    node: 101,
    egress_if: 2,
    ingress_if: 3,
    flow: '10.0.1.5:41000>10.0.3.9:443/6',
    flow6: '[fd00::1]:1>[fd00::2]:2/6',
    dst: '10.0.3.9',
    reason: 71,
    reason_name: 'acl deny',
  };
  assert.equal(
    fieldsText(fields),
    'node leaf1, egress_if Ethernet4, ingress_if 3, flow 10.0.1.5:41000>db1:443/6, flow6 [fd00::1]:1>[fd00::2]:2/6, dst db1, reason 71 (acl deny)',
  );
  assert.equal(
    fieldsText({ switch: 101, egress_if: 2, node: [101, null, 9] }),
    'switch leaf1, egress_if 2, node leaf1 › – › 9',
  );
  names.set({ nodes: [], hosts: [], drop_reasons: [] });
  assert.equal(pathText([101]), '101');
});
