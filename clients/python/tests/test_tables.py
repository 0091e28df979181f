"""Tables of pandas and Arrow: whole numbers stay whole, times are times, paths are lists."""

from __future__ import annotations

import unittest
from typing import Any

from hopwise import Table, to_arrow, to_pandas

try:
    import pandas
    import pyarrow
except ImportError as error:
    raise unittest.SkipTest(f"tables of the Python client: needs {error.name} (scripts/setup python)") from error

ROWS: list[dict[str, Any]] = [
    {
        "ts": 1_795_680_641_521_978_786, "id": "05111b63548416f2", "kind": "change", "value": 157_420, "node": None,
        "flow": {"src": "10.0.1.1", "dst": "10.0.4.2", "sport": 20006, "dport": 5000, "proto": 17},
        "text": "10.0.1.1:20006>10.0.4.2:5000/17", "path": [101, 202, 104], "spread": {"p50": 1, "p99": 1.5},
    },
    {
        "ts": 1_795_680_641_521_978_787, "id": "97fa52be46f5e04f", "kind": "loss", "value": (1 << 64) - 1, "node": 102,
        "flow": None, "text": None, "path": [], "late": True, "spread": {"p50": 2, "p99": None},
    },
]
COLUMNS = ["ts", "id", "kind", "value", "node", "src", "dst", "sport", "dport", "proto", "flow", "path", "spread_p50", "spread_p99", "late"]


class Tables(unittest.TestCase):
    def test_rows_in_pandas(self) -> None:
        frame = to_pandas(iter(ROWS))
        self.assertEqual(sorted(frame.columns), sorted(COLUMNS))
        self.assertEqual([str(kind) for kind in frame[["ts", "value", "node", "sport"]].dtypes], ["datetime64[ns, UTC]", "UInt64", "Int64", "Int64"])
        self.assertEqual([time.value for time in frame["ts"]], [row["ts"] for row in ROWS])
        self.assertEqual(frame["value"].tolist(), [157_420, (1 << 64) - 1])
        self.assertEqual(frame["node"].isna().tolist(), [True, False])
        self.assertEqual(frame["path"].tolist(), [[101, 202, 104], []])
        self.assertEqual(frame["flow"].tolist()[0], "10.0.1.1:20006>10.0.4.2:5000/17")
        self.assertEqual(frame["spread_p50"].tolist(), [1, 2])

    def test_rows_in_arrow(self) -> None:
        table = to_arrow(ROWS)
        self.assertEqual(sorted(table.column_names), sorted(COLUMNS))
        kinds = [table.schema.field(name).type for name in ("ts", "value", "node", "path")]
        self.assertEqual(kinds, [pyarrow.timestamp("ns", tz="UTC"), pyarrow.uint64(), pyarrow.int64(), pyarrow.list_(pyarrow.int64())])
        self.assertEqual(table.column("value").to_pylist(), [157_420, (1 << 64) - 1])
        self.assertEqual(table.column("ts").cast(pyarrow.int64()).to_pylist(), [row["ts"] for row in ROWS])
        self.assertEqual(table.column("late").to_pylist(), [None, True])

    def test_results_of_queries(self) -> None:
        table = Table(["ts", "n", "text"], [[1_000_000_000, 1, "a"], [None, None, None]])
        frame = table.to_pandas()
        self.assertEqual(frame["ts"].tolist(), [pandas.Timestamp(1, unit="s", tz="UTC"), pandas.NaT])
        self.assertEqual([str(kind) for kind in frame.dtypes][1], "Int64")
        self.assertEqual(str(table.to_pandas(times=()).dtypes["ts"]), "Int64")
        self.assertEqual(table.to_arrow().to_pylist()[1], {"ts": None, "n": None, "text": None})

    def test_nothing(self) -> None:
        self.assertEqual((len(to_pandas([])), to_arrow([]).num_rows), (0, 0))
        self.assertEqual(Table(["a"], []).to_pandas().columns.tolist(), ["a"])
        self.assertEqual(Table(["a"], []).to_arrow().column_names, ["a"])


if __name__ == "__main__":
    unittest.main()
