"""What can go wrong. The text of each error is a sentence with the reason and, where hopwise says it, the fix."""

from __future__ import annotations


class HopwiseError(Exception):
    """Any error of this package."""


class ConnectionFailed(HopwiseError):
    """There was no response: wrong address, no route, TLS refused, a time limit, a stream that ended."""


class UnexpectedResponse(HopwiseError):
    """A response that is not one of hopwise's, or that is longer than the limit."""


class ApiError(HopwiseError):
    """hopwise refused a request, and said why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence

    def __reduce__(self) -> tuple[type[ApiError], tuple[int, str]]:
        return type(self), (self.status, self.sentence)


class BadRequest(ApiError):
    """400: the request is malformed, or a value is out of range."""


class Unauthorized(ApiError):
    """401: a token is needed, or this one is wrong."""


class Forbidden(ApiError):
    """403: the token may only read, or the host name is not allowed."""


class NotFound(ApiError):
    """404: there is no such thing, or this process has no such role."""


class Conflict(ApiError):
    """409: what is there already does not allow it."""


class PreconditionFailed(ApiError):
    """412: somebody else changed it meanwhile."""


class Unavailable(ApiError):
    """503: busy, stopping, or unable to store; try again."""


BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    503: Unavailable,
}


def refusal(status: int, sentence: str) -> ApiError:
    """The error for a status."""
    return BY_STATUS.get(status, ApiError)(status, sentence)
