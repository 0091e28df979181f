"""The client: the API's routes as methods."""

from __future__ import annotations

import os
import ssl
import types
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from .errors import UnexpectedResponse
from .schema import (
    Devices,
    Domain,
    Event,
    EventKind,
    Events,
    Exports,
    FlowDetail,
    FlowOrder,
    Flows,
    FlowState,
    History,
    Intent,
    Link,
    Metric,
    Names,
    Node,
    PathUse,
    Plan,
    RateHistory,
    Rollup,
    SessionView,
    Status,
)
from .stream import EventStream
from .tables import Listing, Table
from .transport import Transport, tls

if TYPE_CHECKING:
    from typing_extensions import Self

# Nanoseconds since the Unix epoch, or a time with a time zone.
Time: TypeAlias = "int | datetime"

V1 = "/api/v1"
# Rows of a request at most; the API allows no more.
PAGE = 10_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Longer than the 15 s after which hopwise sends a keep-alive.
SILENCE = 60.0


class Client:
    """One hopwise. Threads may share it.

    `url`: as the program's `--api`. `token`: also from HOPWISE_TOKEN; "": none. For https://, `ca` is the PEM file with the authority of the
    server's certificate (also from HOPWISE_CA; those of the system are not trusted), `certificate` and `key` are those of this
    client, if hopwise asks for them (HOPWISE_CLIENT_CERTIFICATE, HOPWISE_CLIENT_KEY); `context` replaces all three.

    `timeout`: seconds to wait for a connection, for data, and for the end of a response. `max_bytes`: length of a response.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        context: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        max_bytes: int = 64 << 20,
    ) -> None:
        if timeout <= 0 or max_bytes <= 0:
            raise ValueError("`timeout` and `max_bytes` are greater than 0")
        self._transport = Transport(
            url,
            token=token if token is not None else os.environ.get("HOPWISE_TOKEN"),
            context=context or tls(url, ca, certificate, key),
            timeout=timeout,
            max_bytes=max_bytes,
        )

    def __repr__(self) -> str:
        return f"Client({self._transport.url!r})"

    def close(self) -> None:
        """Closes idle connections. The client can be used again."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def get(self, path: str, **parameters: object) -> Any:
        """The JSON of any GET route, such as `get("/dta/stores")`; parameters that are None are left out."""
        return self._transport.json("GET", V1 + path, parameters)

    # ── The network ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def flows(
        self, *, sort: FlowOrder = "last_seen", filter: str | None = None, limit: int | None = 1000
    ) -> Iterator[FlowState]:
        """Flows, largest first by `sort`; those whose text contains `filter`. `limit`: at most this many; None: all.

        A page has 10,000 flows. The order changes while reports arrive: a flow that moves up between two pages is missing.
        """
        return self._pages("/flows", "flows", "after", limit, {"sort": sort, "filter": filter})

    def flow(self, flow: str) -> FlowDetail:
        """One flow, hop by hop; by its text (`10.0.1.1:5000>10.0.2.2:6000/17`) or its id."""
        return cast(FlowDetail, self.get(f"/flows/{_segment(flow)}"))

    def history(
        self, flow: str, *, start: Time | None = None, end: Time | None = None, limit: int | None = None
    ) -> History:
        """Latencies and paths of a flow over time. `truncated` of it: there are more points than the limit (1,000)."""
        times = {"from": _time(start), "to": _time(end)}
        return cast(History, self.get(f"/flows/{_segment(flow)}/history", limit=limit, **times))

    def paths(self, *, limit: int | None = 1000) -> Iterator[PathUse]:
        """Paths, most used first."""
        return self._pages("/paths", "paths", "offset", limit, {})

    def nodes(self, *, limit: int | None = None) -> Iterator[Node]:
        """Nodes with their latencies and queues, by id."""
        return self._pages("/nodes", "nodes", "after", limit, {})

    def links(self, *, limit: int | None = None) -> Iterator[Link]:
        """Links, learnt from paths."""
        return self._pages("/links", "links", "offset", limit, {})

    def names(self) -> Names:
        """Names of nodes, interfaces and hosts."""
        return cast(Names, self.get("/names"))

    # ── What is stored ───────────────────────────────────────────────────────────────────────────────────────────────────

    def events(
        self,
        *,
        kind: EventKind | None = None,
        metric: Metric | None = None,
        node: int | None = None,
        flow: str | None = None,
        start: Time | None = None,
        before: Time | None = None,
        limit: int | None = 1000,
    ) -> Iterator[Event]:
        """Stored events, newest first: at or after `start`, strictly before `before`."""
        given = {"kind": kind, "metric": metric, "node": node, "flow": flow, "from": _time(start), "before": _time(before)}
        return self._pages("/events", "events", "after", limit, given)

    def follow(
        self,
        *,
        kind: EventKind | None = None,
        node: int | None = None,
        flow: str | None = None,
        silence: float = SILENCE,
    ) -> EventStream:
        """Events from now on, as they happen. `silence`: seconds without an event or a keep-alive after which the connection has failed."""
        given = {"kind": kind, "node": node, "flow": flow}
        connection, response = self._transport.stream(f"{V1}/events/stream", given, silence)
        return EventStream(self._transport.url, connection, response)

    def series(
        self,
        metric: Metric,
        *,
        node: int | None = None,
        queue: int | None = None,
        interface: int | None = None,
        flow: str | None = None,
        interval: int | None = None,
        start: Time | None = None,
        end: Time | None = None,
        limit: int = 100_000,
    ) -> Listing[Rollup]:
        """A metric over time, in ascending order: the latest `limit` rollups. `interval`: 1 or 60 (seconds); latencies of flows
        have 60 only. `truncated` of the list: the limit left out older ones."""
        if limit < 1:
            raise ValueError("`limit` is at least 1")
        given: dict[str, object] = {
            "metric": metric, "node": node, "queue": queue, "interface": interface, "flow": flow, "interval": interval,
        }
        first, last = _time(start), _time(end)
        found: list[list[Rollup]] = []
        count = 0
        while True:
            page = self.get("/rollups", **given, **{"from": first, "to": last, "limit": PAGE})
            rows, more = _part(page, "rollups", list), _part(page, "truncated", bool)
            if more and rows:
                for row in rows:
                    _part(row, "ts", int)
                # The limit may have left out rows of the oldest time: they come with the next page, whole.
                oldest = rows[0]["ts"]
                whole = [row for row in rows if row["ts"] > oldest]
                if not whole:
                    raise UnexpectedResponse(f"there are more than {PAGE} rollups of one time; ask for one node or flow")
                rows, last = whole, oldest
            found.append(rows)
            count += len(rows)
            if not more or count >= limit:
                break
        listing = Listing(row for rows in reversed(found) for row in rows)
        listing.truncated = more or count > limit
        del listing[: max(0, count - limit)]
        return listing

    def query(
        self, sql: str, *, start: Time | None = None, end: Time | None = None, limit: int | None = None
    ) -> Table:
        """Read-only SQL over the views events, rollups, flows, drops, losses and reports (docs/reference/store.md).

        `start` and `end`: only files with records of that time; it does not replace a condition in the query.
        """
        body = {"sql": sql, "from": _time(start), "to": _time(end), "limit": limit}
        given = {name: value for name, value in body.items() if value is not None}
        answer = self._transport.json("POST", f"{V1}/query", body=given, reads=True)
        return Table(
            _part(answer, "columns", list),
            _part(answer, "rows", list),
            _part(answer, "truncated", bool),
            _part(answer, "notes", list),
            _part(answer, "elapsed_ms", (int, float)),
        )

    # ── The manager ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def intents(self) -> list[Intent]:
        """The intents, by name."""
        return cast("list[Intent]", _part(self.get("/intents"), "intents", list))

    def intent(self, name: str) -> Intent:
        """One intent, and what became of it."""
        return cast(Intent, self.get(f"/intents/{_segment(name)}"))

    def plan_intent(self, intent: Mapping[str, object]) -> Plan:
        """What adding an intent would change, and what it costs. Nothing changes."""
        return cast(Plan, self._transport.json("POST", f"{V1}/intents/plan", body=dict(intent), reads=True))

    def put_intent(self, intent: Mapping[str, object], *, replace: bool | str = False) -> Intent:
        """Adds an intent; its keys are those of `[[intents]]` in the configuration.

        With `replace`, replaces the one of its name; with its `etag`, only if it is still that version. Else
        `PreconditionFailed`.
        """
        if isinstance(replace, str):
            condition = {"If-Match": f'"{replace}"'}
        else:
            condition = {} if replace else {"If-None-Match": "*"}
        return cast(Intent, self._transport.json("PUT", f"{V1}/intents", body=dict(intent), headers=condition))

    def delete_intent(self, name: str, *, etag: str | None = None) -> list[Intent]:
        """Removes an intent, with `etag` only that version of it; returns those that remain."""
        condition = {"If-Match": f'"{etag}"'} if etag is not None else {}
        answer = self._transport.json("DELETE", f"{V1}/intents/{_segment(name)}", headers=condition)
        return cast("list[Intent]", _part(answer, "intents", list))

    def devices(self) -> Devices:
        """The devices of the manager."""
        return cast(Devices, self.get("/devices"))

    def domain(self) -> Domain:
        """The domain: links, encoding of INT, collectors."""
        return cast(Domain, self.get("/domain"))

    # ── hopwise itself ───────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> Status:
        """Rates, loss budget, sources, tables, store."""
        return cast(Status, self.get("/status"))

    def rates(self) -> RateHistory:
        """Rates per second, over the last 15 minutes at most."""
        return cast(RateHistory, self.get("/rates"))

    def exports(self) -> Exports:
        """What became of the records for other systems."""
        return cast(Exports, self.get("/exports"))

    def session(self) -> SessionView:
        """What this token may do."""
        return cast(SessionView, self.get("/session"))

    def _pages(
        self, path: str, key: str, cursor: str, limit: int | None, parameters: Mapping[str, object]
    ) -> Iterator[Any]:
        if limit is not None and limit < 1:
            raise ValueError("`limit` is at least 1, or None for all")
        return _pages(lambda given: self.get(path, **{**parameters, **given}), key, cursor, limit)


def _pages(get: Callable[[dict[str, object]], Any], key: str, cursor: str, limit: int | None) -> Iterator[Any]:
    """The rows of one page after the other; a page is asked for when it is needed."""
    left = limit
    given: dict[str, object] = {}
    while left is None or left > 0:
        page = get({**given, "limit": PAGE if left is None else min(left, PAGE)})
        rows = _part(page, key, list)
        yield from rows if left is None else rows[:left]
        left = None if left is None else left - len(rows)
        following = page.get("next")
        if following is None or not rows:
            return
        if following == given.get(cursor):
            raise UnexpectedResponse(f"a page of {key} names itself as the next one")
        given = {cursor: following}


def _part(answer: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    """A part of a response that this client reads itself."""
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise UnexpectedResponse(f"the response has no `{name}` as one of hopwise has; is it hopwise, of this version?")
    return value


def _segment(text: str) -> str:
    """As a part of a path."""
    if not text or text in (".", ".."):
        raise ValueError("a name or a flow is needed")
    return urllib.parse.quote(text, safe="")


def _time(time: Time | None) -> int | None:
    """Nanoseconds since the Unix epoch."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError("a time needs a time zone, such as datetime.now(timezone.utc)")
        return (time - EPOCH) // timedelta(microseconds=1) * 1000
    return time
