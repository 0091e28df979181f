"""Against a running `hopwise demo`: every method, and that its answers are what the program's own are."""

from __future__ import annotations

import itertools
import json
import pathlib
import tempfile
import time
import unittest
import urllib.request
from datetime import datetime, timedelta, timezone
from typing import Any

import hopwise.client as module
from demo import TIMEOUT, Demo
from hopwise import BadRequest, Client, NotFound, PreconditionFailed, schema


class AgainstTheDemo(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]
    demo: Demo
    client: Client

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory(prefix="hopwise-python-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.demo = Demo(pathlib.Path(cls.folder.name))
        cls.demo.__enter__()
        cls.addClassCleanup(cls.demo.stop)
        cls.client = Client(cls.demo.url)
        cls.addClassCleanup(cls.client.close)
        # The first burst gives changes of queues, rules and drops, on disk.
        end = time.monotonic() + TIMEOUT
        while not list(cls.client.events(kind="rule_on", limit=1)) or not cls.client.series("hop_latency", limit=20).truncated:
            assert time.monotonic() < end, "the demo's burst never came"
            time.sleep(0.2)

    def raw(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.demo.url}/api/v1{path}", timeout=TIMEOUT) as answer:
            return json.load(answer)

    def test_flows_and_one_of_them(self) -> None:
        flows = list(self.client.flows(limit=None))
        self.assertEqual(len(flows), self.raw("/flows?limit=1")["total"])
        self.assertEqual(len({flow["id"] for flow in flows}), len(flows))
        slowest = list(self.client.flows(sort="latency", limit=3))
        self.assertEqual(len(slowest), 3)
        tcp = list(self.client.flows(filter=":443/6"))
        self.assertTrue(tcp and all(flow["text"].endswith(":443/6") for flow in tcp), tcp)
        some = next(flow for flow in flows if flow["text"].startswith("["))
        by_text, by_id = self.client.flow(some["text"]), self.client.flow(some["id"])
        self.assertEqual((by_text["id"], by_text["flow"]), (by_id["id"], some["flow"]))
        self.assertEqual([hop["node"] for hop in by_text["hops"]], by_text["path"])
        history = self.client.history(some["text"], limit=5)
        self.assertEqual(history["paths"][0]["path"], some["path"])
        self.assertTrue(0 < len(history["series"]) <= 5)

    def test_pages_have_everything_once(self) -> None:
        expected = [flow["id"] for flow in self.raw("/flows?sort=reports&limit=10000")["flows"]]
        page, module.PAGE = module.PAGE, 7
        try:
            found = [flow["id"] for flow in self.client.flows(sort="reports", limit=None)]
            nodes = [node["node"] for node in self.client.nodes()]
            links = [(link["from"], link["to"], link["egress_if"]) for link in self.client.links()]
            paths = list(self.client.paths(limit=None))
            events = list(itertools.islice(self.client.events(limit=None), 50))
        finally:
            module.PAGE = page
        # The order changes while reports arrive: a flow that moves up between two pages is missing.
        self.assertEqual(len(set(found)), len(found))
        self.assertTrue(set(found) <= set(expected) and len(found) > len(expected) // 2, (found, expected))
        self.assertEqual(nodes, [101, 102, 103, 104, 201, 202])
        self.assertEqual(sorted(links), sorted((one["from"], one["to"], one["egress_if"]) for one in self.raw("/links")["links"]))
        self.assertEqual(len(paths), len(self.raw("/paths?limit=10000")["paths"]))
        self.assertEqual(len({event["id"] for event in events}), 50)
        self.assertEqual([event["ts"] for event in events], sorted((event["ts"] for event in events), reverse=True))

    def test_events_by_time_kind_and_node(self) -> None:
        # Not the newest one, so that there are later ones to leave out.
        drop = list(self.client.events(kind="drop"))[-1]
        self.assertEqual((drop["kind"], drop["node"]), ("drop", 201))
        same = list(self.client.events(kind="drop", node=201, start=drop["ts"], before=drop["ts"] + 1))
        self.assertIn(drop["id"], [event["id"] for event in same])
        self.assertEqual({event["ts"] for event in same}, {drop["ts"]})
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        self.assertEqual(list(self.client.events(start=later)), [])
        changes = list(self.client.events(metric="hop_latency", kind="change", limit=4))
        self.assertEqual([(event["metric"], event["kind"]) for event in changes], [("hop_latency", "change")] * 4)
        flow = drop["text"]
        assert flow
        self.assertTrue(all(event["text"] == flow for event in self.client.events(flow=flow)))

    def test_series(self) -> None:
        series = self.client.series("queue_occupancy", node=201, queue=4, interval=1)
        self.assertFalse(series.truncated)
        self.assertEqual([row["ts"] for row in series], sorted({row["ts"] for row in series}))
        self.assertTrue(max(row["max"] for row in series) > 10_000, "the burst")
        end = series[-1]["ts"]
        expected = self.client.series("queue_occupancy", interval=1, end=end)
        page, module.PAGE = module.PAGE, 50
        try:
            self.assertEqual(self.client.series("queue_occupancy", interval=1, end=end), expected)
        finally:
            module.PAGE = page
        last = self.client.series("queue_occupancy", interval=1, end=end, limit=10)
        self.assertTrue(last.truncated)
        self.assertEqual(last, expected[-10:])
        interface = self.client.series("link_utilization", node=101, interface=1, start=series[0]["ts"])
        self.assertEqual({(row["node"], row["interface"]) for row in interface}, {(101, 1)})

    def test_queries(self) -> None:
        table = self.client.query("SELECT kind, count(*) AS events FROM events GROUP BY kind ORDER BY kind")
        counts = {row["kind"]: row["events"] for row in table.records()}
        self.assertTrue(counts["drop"] > 0 and counts["new"] > 0, counts)
        self.assertEqual((table.columns, table.truncated, len(table)), (["kind", "events"], False, len(counts)))
        short = self.client.query("SELECT ts FROM events", limit=2)
        self.assertEqual((len(short), short.truncated), (2, True))
        with self.assertRaises(BadRequest) as caught:
            self.client.query("DELETE FROM events")
        self.assertEqual(caught.exception.status, 400)
        self.assertEqual(str(caught.exception), "cannot modify events because it is a view")

    def test_events_as_they_happen(self) -> None:
        with self.client.follow() as stream:
            found = list(itertools.islice(stream, 3))
        self.assertEqual(len({event["id"] for event in found}), 3)
        self.assertEqual(stream.shed, 0)
        self.assertEqual(list(stream), [], "a closed stream has no events")
        with self.client.follow(kind="latest") as stream:
            self.assertEqual(next(stream)["kind"], "latest")
        with self.assertRaises(BadRequest):
            self.client.follow(flow="nonsense")

    def test_intents(self) -> None:
        name = "from-python"
        intent = {"name": name, "match": {"dport": [9999]}, "watch": ["hop_latency"]}
        self.assertNotIn(name, [one["name"] for one in self.client.intents()])
        plan = self.client.plan_intent(intent)
        self.assertTrue(plan["text"])
        self.assertNotIn(name, [one["name"] for one in self.client.intents()], "a plan changes nothing")
        added = self.client.put_intent(intent)
        self.assertEqual((added["name"], added["origin"]), (name, "api"))
        with self.assertRaises(PreconditionFailed):
            self.client.put_intent(intent)
        with self.assertRaises(PreconditionFailed):
            self.client.put_intent(intent, replace="an-older-one")
        changed = self.client.put_intent({**intent, "priority": 7}, replace=added["etag"])
        self.assertEqual(changed["intent"]["priority"], 7)
        self.assertEqual(self.client.intent(name)["etag"], changed["etag"])
        with self.assertRaises(PreconditionFailed):
            self.client.delete_intent(name, etag=added["etag"])
        self.assertNotIn(name, [one["name"] for one in self.client.delete_intent(name)])
        with self.assertRaises(NotFound) as caught:
            self.client.delete_intent(name)
        self.assertEqual(str(caught.exception), f"there is no intent `{name}`; use a name of the list of intents")

    def test_answers_have_the_fields_of_their_types(self) -> None:
        client = self.client
        flow = next(client.flows())
        answers: list[tuple[Any, Any]] = [
            (flow, schema.FlowState),
            (client.flow(flow["id"]), schema.FlowDetail),
            (client.history(flow["id"]), schema.History),
            (next(client.paths()), schema.PathUse),
            (next(client.nodes()), schema.Node),
            (next(client.links()), schema.Link),
            (next(client.events()), schema.Event),
            (client.series("hop_latency")[0], schema.Rollup),
            (client.intents()[0], schema.Intent),
            (client.names(), schema.Names),
            (client.devices(), schema.Devices),
            (client.domain(), schema.Domain),
            (client.status(), schema.Status),
            (client.rates(), schema.RateHistory),
            (client.exports(), schema.Exports),
            (client.session(), schema.SessionView),
        ]
        for answer, kind in answers:
            fields = {name: str(getattr(one, "__forward_arg__", one)) for name, one in kind.__annotations__.items()}
            self.assertLessEqual(set(answer), set(fields), kind.__name__)
            needed = {name for name, one in fields.items() if not one.startswith("NotRequired")}
            self.assertLessEqual(needed, set(answer), kind.__name__)

    def test_everything_else(self) -> None:
        status = self.client.status()
        self.assertEqual([stage["stage"] for stage in status["loss_budget"]][0], "network")
        self.assertEqual(self.client.session()["role"], "operate")
        self.assertEqual({node["name"] for node in self.client.names()["nodes"]}, {"leaf1", "leaf2", "leaf3", "leaf4", "spine1", "spine2"})
        self.assertEqual(len(self.client.devices()["devices"]), 6)
        self.assertTrue(self.client.domain()["links"])
        self.assertEqual(self.client.exports()["exports"], [])
        self.assertTrue(self.client.rates()["rates"])
        self.assertTrue(self.client.get("/dta/stores")["stores"])
        with self.assertRaises(NotFound):
            self.client.get("/no/such/route")
        with self.assertRaises(BadRequest) as caught:
            self.client.get("/flows", nonsense=1)
        self.assertIn("there is no parameter `nonsense` here", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
