"""Rows as tables of pandas and Arrow, and the result of a query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas
    import pyarrow

# Columns that have times, in nanoseconds since the Unix epoch.
TIMES = ("ts", "first_seen", "last_seen")

# The largest value of a signed integer.
SIGNED = (1 << 63) - 1

T = TypeVar("T")


class Listing(list[T]):
    """A list, and whether the limit left something out."""

    truncated: bool = False


@dataclass(frozen=True)
class Table:
    """The result of a query."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool = False
    """There are more rows than the limits allow."""
    notes: list[str] = field(default_factory=list)
    """Remarks of hopwise."""
    elapsed_ms: float = 0.0

    def __len__(self) -> int:
        return len(self.rows)

    def records(self) -> Iterator[dict[str, Any]]:
        """The rows with the names of their columns."""
        return (dict(zip(self.columns, row)) for row in self.rows)

    def to_pandas(self, times: Collection[str] = TIMES) -> pandas.DataFrame:
        """As a data frame. `times`: columns with nanoseconds since the Unix epoch."""
        return _pandas(self._columns(), times)

    def to_arrow(self, times: Collection[str] = TIMES) -> pyarrow.Table:
        """As a table of Arrow. `times`: columns with nanoseconds since the Unix epoch."""
        return _arrow(self._columns(), times)

    def _columns(self) -> dict[str, list[Any]]:
        repeated = {name for name in self.columns if self.columns.count(name) > 1}
        if repeated:
            raise ValueError(f"the query has several columns named {', '.join(sorted(repeated))}; name them with AS")
        return {name: [row[at] for row in self.rows] for at, name in enumerate(self.columns)}


def to_pandas(rows: Iterable[Mapping[str, Any]], times: Collection[str] = TIMES) -> pandas.DataFrame:
    """Flows, events, rollups, nodes… as a data frame: `to_pandas(client.events(limit=1000))`.

    Whole numbers are `Int64` (or `UInt64`), so that missing values do not make floats of them; times are in UTC. The parts of a
    flow are columns; those of another object have its name before theirs (`hop_latency_p99`).
    """
    return _pandas(_flat(rows), times)


def to_arrow(rows: Iterable[Mapping[str, Any]], times: Collection[str] = TIMES) -> pyarrow.Table:
    """Flows, events, rollups, nodes… as a table of Arrow, with the same columns as `to_pandas`. Paths are lists."""
    return _arrow(_flat(rows), times)


def _flat(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns in the order in which they first appear."""
    columns: dict[str, list[Any]] = {}
    count = 0
    for row in rows:
        for name, value in _parts(row):
            columns.setdefault(name, [None] * count).append(value)
        count += 1
        for column in columns.values():
            if len(column) < count:
                column.append(None)
    return columns


def _parts(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if name == "text" and "flow" in row:
            yield "flow", value
        elif name == "flow" and isinstance(value, Mapping):
            yield from value.items()
        elif name == "flow" and "text" in row:
            continue
        elif isinstance(value, Mapping):
            yield from ((f"{name}_{inner}", part) for inner, part in value.items())
        else:
            yield name, value


def _whole(values: list[Any]) -> bool:
    return any(value is not None for value in values) and all(
        value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in values
    )


def _unsigned(values: list[Any]) -> bool:
    return any(value is not None and value > SIGNED for value in values)


def _pandas(columns: dict[str, list[Any]], times: Collection[str]) -> pandas.DataFrame:
    import pandas

    def series(name: str, values: list[Any]) -> Any:
        if not _whole(values):
            return pandas.Series(values, dtype=None if values else "object")
        if name in times:
            return pandas.Series(pandas.to_datetime(pandas.Series(values, dtype="Int64"), unit="ns", utc=True))
        return pandas.Series(values, dtype="UInt64" if _unsigned(values) else "Int64")

    frame: pandas.DataFrame = pandas.DataFrame({name: series(name, values) for name, values in columns.items()})
    return frame


def _arrow(columns: dict[str, list[Any]], times: Collection[str]) -> pyarrow.Table:
    import pyarrow

    def array(name: str, values: list[Any]) -> Any:
        if not _whole(values):
            return pyarrow.array(values)
        if name in times:
            return pyarrow.array(values, type=pyarrow.timestamp("ns", tz="UTC"))
        return pyarrow.array(values, type=pyarrow.uint64() if _unsigned(values) else pyarrow.int64())

    return pyarrow.table({name: array(name, values) for name, values in columns.items()})
