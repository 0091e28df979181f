"""Live events: server-sent events, one after the other."""

from __future__ import annotations

import http.client
import json
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn, cast

from .errors import ConnectionFailed, UnexpectedResponse
from .schema import Event

if TYPE_CHECKING:
    from typing_extensions import Self

# Bytes of a line at most; hopwise's are below 10,000.
LINE = 1 << 20


class EventStream(Iterator[Event]):
    """Events as they happen, from the moment it was made. It ends with `close`, or at the end of `with`.

    If hopwise stops, or the connection breaks, `ConnectionFailed` says so: events in between would be missing silently.
    """

    def __init__(self, url: str, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._url = url
        self._connection: http.client.HTTPConnection | None = connection
        self._response = response
        self.shed = 0
        """Events that hopwise did not send, because this client was too slow."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        name, data = "", ""
        while self._connection is not None:
            line = self._line()
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data += ("\n" if data else "") + line[5:].removeprefix(" ")
            elif not line and data:
                value = self._decoded(data)
                if name != "shed":
                    return cast(Event, value)
                shed = value.get("shed")
                if not isinstance(shed, int):
                    self._fail(UnexpectedResponse(f"{self._url}: no number of events that were left out; is it hopwise?"))
                self.shed += shed
                name, data = "", ""
            elif not line:
                name = ""
            if len(data) > LINE:
                self._fail(UnexpectedResponse(f"{self._url}: an event is longer than {LINE} bytes"))
        raise StopIteration

    def _line(self) -> str:
        try:
            line = self._response.readline(LINE)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self._connection is None:
                raise StopIteration from error
            reason = "nothing came, not even a keep-alive" if isinstance(error, TimeoutError) else error
            self._fail(ConnectionFailed(f"{self._url}: {reason}"))
        if not line.endswith(b"\n"):
            if len(line) >= LINE:
                self._fail(UnexpectedResponse(f"{self._url}: a line is longer than {LINE} bytes"))
            self._fail(ConnectionFailed(f"{self._url}: the live stream ended; events from now on are not in it"))
        return line.decode(errors="replace").rstrip("\r\n")

    def _decoded(self, data: str) -> dict[str, object]:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self._fail(UnexpectedResponse(f"{self._url}: an event without JSON; is it hopwise?"))
        return value

    def _fail(self, error: Exception) -> NoReturn:
        self.close()
        raise error

    def close(self) -> None:
        """Ends it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._response.close()
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()
