"""HTTP to one hopwise: connections that are used again, and limits on the time and the size of responses."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

from .errors import ConnectionFailed, UnexpectedResponse, refusal

CHUNK = 1 << 16
# Idle connections that are kept.
IDLE = 4
# Characters of an error that did not come from hopwise.
EXCERPT = 200


class Transport:
    """Sends requests. Threads may share it: a connection serves one request at a time, and another one is opened if all are in use."""

    def __init__(
        self, url: str, *, token: str | None, context: ssl.SSLContext | None, timeout: float, max_bytes: int
    ) -> None:
        parts = _split(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url} is not the address of a hopwise; use http://HOST:PORT or https://HOST:PORT")
        if parts.username or parts.password:
            raise ValueError("a token does not go into the address; use `token`, or the environment variable HOPWISE_TOKEN")
        if parts.scheme == "https" and context is None:
            raise ValueError(f"{url} has TLS; pass `context`")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._prefix = parts.path.rstrip("/")
        self._host = parts.hostname
        self._port = parts.port
        self._context = context if parts.scheme == "https" else None
        self._headers = {"accept": "application/json", "user-agent": "hopwise-python"}
        if token:
            if not token.isascii() or not token.isprintable():
                raise ValueError("the token has characters that no token has")
            self._headers["authorization"] = f"Bearer {token}"
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes the connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def json(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        reads: bool = False,
    ) -> Any:
        """The JSON of a response. GET, and what otherwise only `reads`, is tried again on a new connection if the kept one has been
        closed."""
        reads = reads or method == "GET"
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        sent = {**self._headers, **(headers or {})}
        if data is not None:
            sent["content-type"] = "application/json"
        connection, response = self._response(method, self._target(path, query), data, sent, reads)
        try:
            text = self._body(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._failed(error) from error
        except UnexpectedResponse:
            connection.close()
            raise
        self._keep(connection, response)
        return self._decoded(response.status, text)

    def stream(
        self, path: str, query: Mapping[str, object], silence: float
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """A response without an end, and its connection, which the caller closes."""
        connection = self._connection(silence)
        sent = {**self._headers, "accept": "text/event-stream"}
        try:
            connection.request("GET", self._target(path, query), None, sent)
            response = connection.getresponse()
            if response.status != 200:
                text = self._body(response)
                connection.close()
                self._decoded(response.status, text)
                raise UnexpectedResponse(f"{self.url} answers {response.status} instead of a stream")
            kind = response.headers.get_content_type()
            if kind != "text/event-stream":
                raise UnexpectedResponse(f"{self.url} answers with {kind} instead of a stream; is it hopwise?")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._failed(error, silence) from error
        except BaseException:
            connection.close()
            raise
        return connection, response

    def _target(self, path: str, query: Mapping[str, object] | None) -> str:
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        return self._prefix + path + ("?" + urllib.parse.urlencode(given) if given else "")

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._context is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def _response(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], reads: bool
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        with self._lock:
            kept = self._idle.pop() if self._idle and reads else None
        if kept is not None:
            try:
                kept.request(method, target, body, dict(headers))
                return kept, kept.getresponse()
            except (http.client.RemoteDisconnected, http.client.CannotSendRequest, ConnectionError):
                kept.close()
            except (OSError, http.client.HTTPException) as error:
                kept.close()
                raise self._failed(error) from error
        connection = self._connection(self._timeout)
        try:
            connection.request(method, target, body, dict(headers))
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._failed(error) from error

    def _keep(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with self._lock:
            if not response.will_close and len(self._idle) < IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        end = time.monotonic() + self._timeout
        parts: list[bytes] = []
        length = 0
        while part := response.read1(CHUNK):
            parts.append(part)
            length += len(part)
            if length > self._max_bytes:
                raise UnexpectedResponse(
                    f"the response is longer than {self._max_bytes} bytes; ask for less, or raise `max_bytes`"
                )
            if time.monotonic() > end:
                raise TimeoutError(f"the response did not end within {self._timeout:g} s")
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        # Nothing is left, but only this tells the connection so.
        response.read()
        return b"".join(parts)

    def _decoded(self, status: int, text: bytes) -> Any:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            excerpt = text[:EXCERPT].decode(errors="replace").strip()
            raise UnexpectedResponse(f"{self.url} answers {status} without JSON; is it hopwise? {excerpt}") from error
        if status < 300:
            return value
        sentence = value.get("error") if isinstance(value, dict) else None
        raise refusal(status, sentence if isinstance(sentence, str) else f"{self.url} answers {status}")

    def _failed(self, error: Exception, limit: float | None = None) -> ConnectionFailed:
        if isinstance(error, http.client.RemoteDisconnected):
            reason = "it closed the connection without a response"
        elif isinstance(error, TimeoutError):
            reason = str(error) if "did not end" in str(error) else f"nothing came for {limit or self._timeout:g} s"
        else:
            reason = str(error) or type(error).__name__
        return ConnectionFailed(f"{self.url}: {reason}")


def _split(url: str) -> urllib.parse.SplitResult:
    """The parts of an address; without a scheme it is http. Blanks around it are no part of it."""
    url = url.strip()
    return urllib.parse.urlsplit(url if "://" in url else f"http://{url}")


def tls(url: str, ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """How to check the server, and who we are. As with the program, the authorities of the system are not trusted."""
    if _split(url).scheme != "https":
        return None
    ca = ca or os.environ.get("HOPWISE_CA") or None
    certificate = certificate or os.environ.get("HOPWISE_CLIENT_CERTIFICATE") or None
    key = key or os.environ.get("HOPWISE_CLIENT_KEY") or None
    if ca is None:
        raise ValueError(
            f"{url} has TLS; name the PEM file with the authority of its certificate by `ca` or the environment variable "
            "HOPWISE_CA, or pass `context`"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
