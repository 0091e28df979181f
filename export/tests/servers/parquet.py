"""Reads files of Parquet as others do, and prints each row as JSON in the forms of hopwise's JSON. Usage: parquet.py pyarrow|duckdb FILE…"""
from __future__ import annotations

import json
import sys
from typing import Any


def plain(name: str, value: Any) -> Any:
  """A value in its form in JSON; a field that JSON leaves out is None."""
  if value is None:
    return None
  if isinstance(value, dict):
    return {part: one for part, one in value.items() if one is not None}
  return f"{value:016x}" if name in IDS else value


IDS = ("id", "report", "alert")


def pyarrow(files: list[str]) -> None:
  import pyarrow as pa
  import pyarrow.parquet as pq

  for file in files:
    # With the checks of the format that it has, and as it is: without the columns that a path of Hive adds.
    source = pq.ParquetFile(file, page_checksum_verification=True)
    table = source.read()
    table.validate(full=True)
    for number, field in enumerate(table.schema):
      if pa.types.is_timestamp(field.type):
        assert field.type == pa.timestamp("ns", tz="UTC"), field
        table = table.set_column(number, field.name, table.column(number).cast(pa.int64()))
    rows = table.to_pylist()
    times = [row["ts"] for row in rows]
    assert times == sorted(times), times
    metadata = source.metadata
    group = metadata.row_group(0)
    assert (metadata.num_row_groups, [one.column_index for one in group.sorting_columns]) == (1, [1])
    statistics = group.column(1).statistics
    assert (statistics.min_raw, statistics.max_raw) == (times[0], times[-1]), (statistics, times)
    for row in rows:
      show(row)


def duckdb(files: list[str]) -> None:
  import duckdb as db

  connection = db.connect()
  connection.execute("SET TimeZone = 'UTC'")
  for file in files:
    source = connection.execute("SELECT * FROM read_parquet(?, hive_partitioning = false) LIMIT 0", [file])
    names = [(name, str(kind)) for name, kind, *_ in source.description]
    parts = ", ".join(f"epoch_ns({name}) AS {name}" if "TIME" in kind else name for name, kind in names)
    rows = connection.execute(f"SELECT {parts} FROM read_parquet(?, hive_partitioning = false)", [file])
    for row in rows.fetchall():
      show(dict(zip((name for name, _ in names), row)))
  # A day is found by the directories, and a time by what the files say of themselves.
  days = connection.execute("SELECT count(*), count(DISTINCT strftime(ts, '%Y-%m-%d') = CAST(date AS VARCHAR)), "
                            "min(strftime(ts, '%Y-%m-%d') = CAST(date AS VARCHAR)) FROM read_parquet(?, hive_partitioning = true)", [files])
  count, different, least = days.fetchone()
  assert different == 1 and least, (count, different, least)


def show(row: dict[str, Any]) -> None:
  print(json.dumps({name: plain(name, value) for name, value in row.items() if value is not None}, sort_keys=True))


if __name__ == "__main__":
  {"pyarrow": pyarrow, "duckdb": duckdb}[sys.argv[1]](sys.argv[2:])
