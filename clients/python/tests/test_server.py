"""Against servers that are no hopwise, or that fail: each ends in a sentence, within the limits. And TLS against the program."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pathlib
import pickle
import socket
import tempfile
import threading
import unittest
import unittest.mock
import urllib.parse
from collections.abc import Callable, Iterator
from datetime import datetime

from demo import PROGRAM, ROOT, Process, free_port
from hopwise import (
    ApiError,
    Client,
    ConnectionFailed,
    Forbidden,
    HopwiseError,
    NotFound,
    Table,
    Unauthorized,
    Unavailable,
    UnexpectedResponse,
)

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def server(answer: Answer) -> Iterator[str]:
    """A server that gives these answers in turn; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            answer(self)

        do_POST = do_PUT = do_DELETE = do_GET

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that go away are expected."""

    with Server(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{one.server_port}"
        finally:
            one.shutdown()
            thread.join()


def text(status: int, body: bytes, kind: str = "application/json") -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


class Servers(unittest.TestCase):
    def refused(self, answer: Answer, kind: type[HopwiseError], sentence: str, **limits: float) -> HopwiseError:
        with server(answer) as url, Client(url, **limits) as client:  # type: ignore[arg-type]
            with self.assertRaises(kind) as caught:
                client.status()
            self.assertIs(type(caught.exception), kind)
            self.assertIn(sentence, str(caught.exception))
            return caught.exception

    def test_refusals_have_the_sentence_of_the_api(self) -> None:
        body = b'{"error": "the token may only read; use one with the role operate"}'
        error = self.refused(text(403, body), Forbidden, "the token may only read; use one with the role operate")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.status), (Forbidden, str(error), 403))
        self.refused(text(404, b'{"error": "no"}'), NotFound, "no")
        self.refused(text(503, b'{"error": "busy; try again"}'), Unavailable, "busy; try again")
        self.refused(text(418, b'{"error": "a teapot"}'), ApiError, "a teapot")
        self.refused(text(500, b'{"error": 5}'), ApiError, "answers 500")

    def test_what_is_no_hopwise(self) -> None:
        self.refused(text(200, b"<html>hello"), UnexpectedResponse, "without JSON; is it hopwise? <html>hello")
        self.refused(text(502, b"Bad Gateway"), UnexpectedResponse, "answers 502 without JSON")
        self.refused(text(200, b"\xff\xfe" * 9), UnexpectedResponse, "without JSON")
        self.refused(text(200, b"[" * 200_000), UnexpectedResponse, "without JSON; is it hopwise? [[[")

    def test_json_of_something_else(self) -> None:
        calls: list[tuple[Callable[[Client], object], str]] = [
            (lambda client: list(client.flows()), "flows"),
            (lambda client: list(client.events()), "events"),
            (lambda client: client.series("hop_latency"), "rollups"),
            (lambda client: client.query("SELECT 1"), "columns"),
            (lambda client: client.intents(), "intents"),
            (lambda client: client.delete_intent("one"), "intents"),
        ]
        for body in (b"{}", b"[]", b"5", b'"flows"', b"null"):
            with server(text(200, body)) as url:
                for call, part in calls:
                    with Client(url) as client, self.assertRaisesRegex(UnexpectedResponse, f"no `{part}` as one of hopwise has"):
                        call(client)
        with server(text(200, b'{"rollups": [5], "truncated": true}')) as url, Client(url) as client:
            with self.assertRaisesRegex(UnexpectedResponse, "no `ts`"):
                client.series("hop_latency")

    def test_limits(self) -> None:
        self.refused(text(200, b"[" + b"1," * 5000 + b"1]"), UnexpectedResponse, "longer than 1000 bytes", max_bytes=1000)
        stop = threading.Event()

        def hangs(handler: http.server.BaseHTTPRequestHandler) -> None:
            stop.wait(20)

        def drips(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.end_headers()
            with contextlib.suppress(OSError):
                while not stop.wait(0.02):
                    handler.wfile.write(b" ")

        try:
            self.refused(hangs, ConnectionFailed, "nothing came for 0.2 s", timeout=0.2)
            self.refused(drips, ConnectionFailed, "did not end within 0.3 s", timeout=0.3)
        finally:
            stop.set()

    def test_connections_that_break(self) -> None:
        def closes(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.close_connection = True

        def half(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("content-length", "100")
            handler.end_headers()
            handler.wfile.write(b"{")
            handler.close_connection = True

        self.refused(closes, ConnectionFailed, "closed the connection without a response")
        self.refused(half, ConnectionFailed, "IncompleteRead")
        with self.assertRaises(ConnectionFailed) as caught:
            Client(f"http://127.0.0.1:{free_port()}").status()
        self.assertIn("refused", str(caught.exception))

    def test_a_kept_connection_that_was_closed_is_replaced_for_what_only_reads(self) -> None:
        seen: list[str] = []

        def once(handler: http.server.BaseHTTPRequestHandler) -> None:
            seen.append(f"{handler.command} {handler.client_address[1]}")
            handler.rfile.read(int(handler.headers.get("content-length", 0)))
            text(200, b'{"intents": []}')(handler)
            # Closed without saying so, as after a restart.
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

        with server(once) as url, Client(url) as client:
            self.assertEqual([client.intents(), client.intents()], [[], []])
            client.put_intent({"name": "one"})
        self.assertEqual([one.split()[0] for one in seen], ["GET", "GET", "PUT"])
        self.assertEqual(len(set(seen)), 3, "each on a connection of its own")

    def test_what_changes_something_is_never_sent_twice(self) -> None:
        seen: list[str] = []

        def breaks(handler: http.server.BaseHTTPRequestHandler) -> None:
            seen.append(handler.command)
            handler.rfile.read(int(handler.headers.get("content-length", 0)))
            if handler.command == "GET":
                text(200, b'{"intents": []}')(handler)
            else:
                handler.close_connection = True

        with server(breaks) as url, Client(url) as client:
            client.intents()
            with self.assertRaises(ConnectionFailed):
                client.put_intent({"name": "one"})
            # Names that are also the last words of routes that only read.
            for name in ("query", "plan"):
                client.intents()
                with self.assertRaises(ConnectionFailed):
                    client.delete_intent(name)
        self.assertEqual(seen, ["GET", "PUT", "GET", "DELETE", "GET", "DELETE"])

    def test_no_token_in_clear_text(self) -> None:
        seen: list[bytes] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def record() -> None:
                with listener.accept()[0] as peer:
                    seen.append(peer.recv(1 << 16))

            # In a scheme, upper case and blanks before it mean nothing.
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            for url in (f"HTTPS://{address}", f" https://{address}", f"\nHttps://{address} "):
                with self.assertRaisesRegex(ValueError, "HOPWISE_CA"):
                    Client(url, token="a-secret-of-16-characters")
                thread = threading.Thread(target=record)
                thread.start()
                with Client(url, ca=str(ROOT / "tests/tls/ca.pem"), token="a-secret-of-16-characters") as client:
                    self.assertEqual(repr(client), f"Client('https://{address}')")
                    with self.assertRaises(ConnectionFailed):
                        client.status()
                thread.join()
        # Each began a TLS handshake.
        self.assertEqual([data[:1] for data in seen], [b"\x16"] * 3)

    def test_an_empty_token_is_none(self) -> None:
        seen: list[str | None] = []

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            seen.append(handler.headers.get("authorization"))
            text(200, b"{}")(handler)

        with server(answer) as url:
            for given, token in (("", None), ("from-environment", None), ("from-environment", ""), ("from-environment", "own")):
                with unittest.mock.patch.dict(os.environ, HOPWISE_TOKEN=given), Client(url, token=token) as client:
                    client.status()
        self.assertEqual(seen, [None, "Bearer from-environment", None, "Bearer own"])
        with unittest.mock.patch.dict(os.environ, HOPWISE_CA=""), self.assertRaisesRegex(ValueError, "HOPWISE_CA"):
            Client("https://127.0.0.1:1")

    def test_pages_that_never_end(self) -> None:
        with server(text(200, b'{"nodes": [{"node": 1}], "next": 1}')) as url, Client(url) as client:
            with self.assertRaises(UnexpectedResponse) as caught:
                list(client.nodes())
        self.assertIn("names itself as the next one", str(caught.exception))

    def test_pages_of_events_of_one_time(self) -> None:
        asked: list[str] = []

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(handler.path).query)
            asked.append(query.get("after", [""])[0])
            first = int((asked[-1] or "0").removeprefix("5-"))
            limit = min(int(query["limit"][0]), 1000)
            events = [{"ts": 5, "id": str(n)} for n in range(first, min(first + limit, 2500))]
            end = first + len(events)
            text(200, json.dumps({"events": events, "next": f"5-{end}" if end < 2500 else None}).encode())(handler)

        with server(answer) as url, Client(url) as client:
            ids = [event["id"] for event in client.events(kind="loss", before=9, limit=None)]
        self.assertEqual(ids, [str(n) for n in range(2500)])
        self.assertGreater(len(asked), 1)

    def test_a_stream(self) -> None:
        lines = b': alive\n\ndata: {"id": "1"}\n\nevent: shed\ndata: {"shed": 3}\n\ndata: {"id": "2"}\n\n'
        with server(text(200, lines, "text/event-stream")) as url, Client(url) as client:
            stream = client.follow()
            self.assertEqual([next(stream)["id"], next(stream)["id"], stream.shed], ["1", "2", 3])
            with self.assertRaises(ConnectionFailed) as caught:
                next(stream)
            self.assertIn("the live stream ended", str(caught.exception))
            self.assertEqual(list(stream), [])

    def test_an_event_of_several_lines(self) -> None:
        lines = b'data: {"text":\ndata: "a b"}\n\ndata: {"text": "c\ndata: d"}\n\n'
        with server(text(200, lines, "text/event-stream")) as url, Client(url) as client:
            stream = client.follow()
            self.assertEqual(next(stream), {"text": "a b"})
            # A line feed, which a string of JSON cannot have.
            with self.assertRaisesRegex(UnexpectedResponse, "an event without JSON"):
                next(stream)

    def test_a_stream_that_is_silent(self) -> None:
        stop = threading.Event()

        def hangs(handler: http.server.BaseHTTPRequestHandler) -> None:
            stop.wait(20)

        def stops(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("content-type", "text/event-stream")
            handler.end_headers()
            stop.wait(20)

        try:
            with server(hangs) as url, Client(url, timeout=30) as client:
                with self.assertRaisesRegex(ConnectionFailed, "nothing came for 0.2 s"):
                    client.follow(silence=0.2)
            with server(stops) as url, Client(url) as client, client.follow(silence=0.2) as stream:
                with self.assertRaisesRegex(ConnectionFailed, "nothing came, not even a keep-alive"):
                    next(stream)
        finally:
            stop.set()

    def test_streams_that_are_none(self) -> None:
        def follow(answer: Answer) -> str:
            with server(answer) as url, Client(url) as client, self.assertRaises(HopwiseError) as caught:
                with client.follow(silence=5) as stream:
                    next(stream)
            return str(caught.exception)

        self.assertIn("application/json instead of a stream", follow(text(200, b"{}")))
        self.assertEqual(follow(text(401, b'{"error": "a token is needed"}')), "a token is needed")
        self.assertIn("an event without JSON", follow(text(200, b"data: x\n\n", "text/event-stream")))
        self.assertIn("an event without JSON", follow(text(200, b"data: " + b"[" * 200_000 + b"\n\n", "text/event-stream")))
        for shed in (b"{}", b'{"shed": "3"}', b'{"shed": null}', b'{"shed": [1]}', b'{"shed": 1e999}'):
            sentence = follow(text(200, b"event: shed\ndata: " + shed + b"\n\n", "text/event-stream"))
            self.assertIn("no number of events that were left out", sentence)
        self.assertIn("longer than", follow(text(200, b"data: " + b"x" * (1 << 21), "text/event-stream")))
        self.assertIn("longer than", follow(text(200, (b"data: " + b"x" * 1000 + b"\n") * 1100, "text/event-stream")))

    def test_arguments(self) -> None:
        for url in ("ftp://x", "http://", "http://user:secret@h", "http://h/?a=1"):
            with self.assertRaises(ValueError):
                Client(url)
        with self.assertRaisesRegex(ValueError, "HOPWISE_CA"):
            Client("https://127.0.0.1:1")
        with self.assertRaisesRegex(ValueError, "token"):
            Client(token="a\r\nX-Evil: 1")
        with self.assertRaisesRegex(ValueError, "greater than 0"):
            Client(timeout=0)
        client = Client("127.0.0.1:1", token="a-secret")
        self.assertEqual(repr(client), "Client('http://127.0.0.1:1')")
        with self.assertRaisesRegex(ValueError, "time zone"):
            list(client.events(start=datetime(2026, 1, 1)))
        with self.assertRaisesRegex(ValueError, "limit"):
            list(client.flows(limit=0))
        with self.assertRaisesRegex(ValueError, "several columns named a"):
            Table(["a", "a"], [[1, 2]]).to_pandas()


class Tls(unittest.TestCase):
    def test_tls_tokens_and_roles(self) -> None:
        keys = ROOT / "tests/tls"
        with tempfile.TemporaryDirectory(prefix="hopwise-python-") as folder:
            work = pathlib.Path(folder)
            address = f"127.0.0.1:{free_port()}"
            operate, read = "operates-everything-here", "reads-everything-here"
            config = work / "hopwise.toml"
            config.write_text(
                f'[collector]\nlisten = ["udp://127.0.0.1:0"]\n[store]\nenabled = false\n[manager]\n[api]\nlisten = "{address}"\n'
                f'token = "{operate}"\ntls = {{ certificate = "{keys}/server.pem", key = "{keys}/server.key" }}\n'
                f'[[api.tokens]]\nname = "board"\nrole = "read"\ntoken = "{read}"\n'
            )
            ready = f"http://{address}/healthz"
            with Process([PROGRAM, "run", "-c", str(config)], work / "log", ready, any_answer=True):
                url, ca = f"https://{address}", str(keys / "ca.pem")
                with Client(url, ca=ca, token=operate) as client:
                    self.assertEqual(client.session()["role"], "operate")
                    self.assertEqual(list(client.flows()), [])
                with Client(url, ca=ca, token=read) as client:
                    session = {"name": "board", "role": "read", "needs_token": True, "console": False}
                    self.assertEqual(client.session(), session)
                    with self.assertRaises(Forbidden):
                        client.put_intent({"name": "one", "watch": ["hop_latency"]})
                for token in (None, "a-wrong-token-of-this-length"):
                    with Client(url, ca=ca, token=token) as client, self.assertRaises(Unauthorized) as caught:
                        client.status()
                    self.assertIn("token", str(caught.exception))
                with Client(url, ca=str(keys / "other.pem"), token=operate) as client:
                    with self.assertRaisesRegex(ConnectionFailed, "CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
                        client.status()


if __name__ == "__main__":
    unittest.main()
