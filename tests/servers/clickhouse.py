"""ClickHouse's engine (PyPI `chdb`) behind as much of its HTTP interface as exports and consoles use, for tests.

The engine parses, checks and stores what it is sent; only the HTTP part is ours. Usage: clickhouse.py DIRECTORY [USER:PASSWORD [PORT]].
Prints the port, then serves on 127.0.0.1 until standard input ends.
"""

import base64
import http.server
import os
import re
import sys
import threading
import urllib.parse

from chdb.session import Session

DIRECTORY = sys.argv[1]
SECRET = base64.b64encode(sys.argv[2].encode()).decode() if len(sys.argv) > 2 else None
ENGINE = Session(os.path.join(DIRECTORY, "data"))
LOCK = threading.Lock()
# As the server does: these end with 400, what is missing with 404, the rest with 500.
STATUS = {16: 404, 60: 404, 81: 404, 27: 400, 33: 400, 53: 400, 62: 400, 117: 400}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers.get("content-length", 0))))

    def answer(self, body):
        if SECRET and self.headers.get("authorization") != f"Basic {SECRET}":
            return self.respond(403, b"Code: 516. DB::Exception: hopwise: Authentication failed")
        values = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query, keep_blank_values=True))
        query = values.pop("query", None)
        try:
            self.respond(200, self.insert(query, values, body) if query else self.ask(body.decode(), values))
        except Exception as error:
            text = str(error)
            code = re.search(r"Code: (\d+)", text)
            self.respond(STATUS.get(int(code.group(1)) if code else 0, 500), text.encode())

    def run(self, query):
        with LOCK:
            return ENGINE.query(query).bytes() or b""

    def ask(self, query, values):
        """A statement with parameters and settings of the address; those that only the HTTP interface has are left out."""
        for name in ("wait_end_of_query", "cancel_http_readonly_queries_on_client_close"):
            values.pop(name, None)
        form = values.pop("default_format", None)
        database = values.pop("database", "default")
        parameters = {name: values.pop(name) for name in list(values) if name.startswith("param_")}
        quoted = lambda value: "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        if form:
            query += f"\nFORMAT {form}"
        if values:
            query += "\nSETTINGS " + ", ".join(f"{name} = {quoted(value)}" for name, value in values.items())
        with LOCK:
            ENGINE.query(f"USE {database}")
            for name, value in parameters.items():
                ENGINE.query(f"SET {name} = {quoted(value)}")
            return ENGINE.query(query).bytes() or b""

    def insert(self, query, values, body):
        match = re.fullmatch(r"INSERT INTO (\S+) FORMAT (\w+)", query)
        if not match:
            return self.run(query + " " + body.decode())
        path = os.path.join(DIRECTORY, f"body-{threading.get_ident()}")
        with open(path, "wb") as file:
            file.write(body)
        settings = ", ".join(f"{name} = '{value}'" for name, value in values.items())
        table, form = match.groups()
        return self.run(f"INSERT INTO {table} FROM INFILE '{path}' SETTINGS {settings} FORMAT {form}")

    def respond(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


SERVER = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0), Handler)
SERVER.daemon_threads = True
threading.Thread(target=SERVER.serve_forever, daemon=True).start()
print(SERVER.server_port, flush=True)
sys.stdin.read()
