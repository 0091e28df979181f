"""The notebook of the examples, executed against a running `hopwise demo`."""

from __future__ import annotations

import os
import pathlib
import tempfile
import time
import unittest

from demo import TIMEOUT, Demo
from hopwise import Client

try:
    import ipykernel  # noqa: F401
    import matplotlib  # noqa: F401
    import nbclient
    import nbformat
    import pandas  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest(f"notebook of the Python client: needs {error.name} (scripts/setup python)") from error

NOTEBOOK = pathlib.Path(__file__).resolve().parent.parent / "examples/where-packets-wait.ipynb"


class Notebook(unittest.TestCase):
    def test_where_packets_wait(self) -> None:
        notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        self.assertEqual([cell.outputs for cell in code], [[] for _ in code], "the file is stored without outputs")
        with tempfile.TemporaryDirectory(prefix="hopwise-python-") as folder, Demo(pathlib.Path(folder)) as demo:
            with Client(demo.url) as client:
                end = time.monotonic() + TIMEOUT
                while not list(client.events(kind="drop", limit=1)):
                    self.assertLess(time.monotonic(), end, "the demo's burst never came")
                    time.sleep(0.2)
            environment = {
                **os.environ,
                "HOPWISE_API": demo.url,
                "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                "PYTHONPATH": str(NOTEBOOK.parent.parent / "src"),
            }
            nbclient.NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": folder}}).execute(env=environment)
        kinds = [{kind for output in cell.outputs for kind in output.get("data", {})} for cell in code]
        self.assertIn("image/png", kinds[2], "the plot")
        for cell, found in zip(code, kinds):
            self.assertTrue(found, f"no output: {cell.source}")
        if keep := os.environ.get("HOPWISE_NOTEBOOK"):
            nbformat.write(notebook, keep)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    unittest.main()
