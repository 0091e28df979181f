"""Against servers that are no hopwise, or that fail: each ends in a sentence, within the limits. And TLS against the program."""

from __future__ import annotations

import contextlib
import http.server
import pathlib
import pickle
import socket
import tempfile
import threading
import unittest
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
    """A server that answers as it is told; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            answer(self)

        do_POST = do_PUT = do_GET

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
        self.assertEqual(seen, ["GET", "PUT"])

    def test_pages_that_never_end(self) -> None:
        with server(text(200, b'{"nodes": [{"node": 1}], "next": 1}')) as url, Client(url) as client:
            with self.assertRaises(UnexpectedResponse) as caught:
                list(client.nodes())
        self.assertIn("names itself as the next one", str(caught.exception))

    def test_a_stream(self) -> None:
        lines = b': alive\n\ndata: {"id": "1"}\n\nevent: shed\ndata: {"shed": 3}\n\ndata: {"id": "2"}\n\n'
        with server(text(200, lines, "text/event-stream")) as url, Client(url) as client:
            stream = client.follow()
            self.assertEqual([next(stream)["id"], next(stream)["id"], stream.shed], ["1", "2", 3])
            with self.assertRaises(ConnectionFailed) as caught:
                next(stream)
            self.assertIn("the live stream ended", str(caught.exception))
            self.assertEqual(list(stream), [])

    def test_streams_that_are_none(self) -> None:
        def follow(answer: Answer) -> str:
            with server(answer) as url, Client(url) as client, self.assertRaises(HopwiseError) as caught:
                with client.follow(silence=5) as stream:
                    next(stream)
            return str(caught.exception)

        self.assertIn("application/json instead of a stream", follow(text(200, b"{}")))
        self.assertEqual(follow(text(401, b'{"error": "a token is needed"}')), "a token is needed")
        self.assertIn("an event without JSON", follow(text(200, b"data: x\n\n", "text/event-stream")))
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
                    self.assertEqual(client.session(), {"name": "board", "role": "read", "needs_token": True})
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
