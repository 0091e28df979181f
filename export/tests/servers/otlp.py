"""An OTLP/HTTP receiver on 127.0.0.1:PORT that reads messages with OpenTelemetry's own classes (PyPI: opentelemetry-proto).

    otlp.py PORT

POST …/v1/logs and …/v1/metrics store the message; GET /last answers with it as JSON. Of the service
`partial` one record of each request is refused, and the answer says so."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics

LAST = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(200, "application/json", json.dumps(LAST).encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-type"] != "application/x-protobuf":
            return self.answer(415, "text/plain", b"protobuf only")
        if self.path.endswith("/v1/logs"):
            request, response = logs.ExportLogsServiceRequest(), logs.ExportLogsServiceResponse()
            refused = "rejected_log_records"
        elif self.path.endswith("/v1/metrics"):
            request, response = metrics.ExportMetricsServiceRequest(), metrics.ExportMetricsServiceResponse()
            refused = "rejected_data_points"
        else:
            return self.answer(404, "text/plain", b"no such path")
        request.ParseFromString(body)
        LAST.clear()
        LAST.update(MessageToDict(request))
        if b"partial" in body:
            setattr(response.partial_success, refused, 1)
            response.partial_success.error_message = "too old"
        self.answer(200, "application/x-protobuf", response.SerializeToString())

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
