"""A client of hopwise, which shows a network through its own packets.

    from hopwise import Client, to_pandas

    with Client("http://127.0.0.1:8080") as client:
        for flow in client.flows(sort="latency", limit=5):
            print(flow["flow_latency"], flow["text"])
        frame = to_pandas(client.series("hop_latency", node=101))

Types of what the methods return are in `hopwise.schema`.
"""

from .client import Client
from .errors import (
    ApiError,
    BadRequest,
    Conflict,
    ConnectionFailed,
    Forbidden,
    HopwiseError,
    NotFound,
    PreconditionFailed,
    Unauthorized,
    Unavailable,
    UnexpectedResponse,
)
from .stream import EventStream
from .tables import Listing, Table, to_arrow, to_pandas

__version__ = "0.2.0"

__all__ = [
    "ApiError",
    "BadRequest",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "EventStream",
    "Forbidden",
    "HopwiseError",
    "Listing",
    "NotFound",
    "PreconditionFailed",
    "Table",
    "Unauthorized",
    "Unavailable",
    "UnexpectedResponse",
    "to_arrow",
    "to_pandas",
]
