#!/usr/bin/env python3
"""A small API to put a gateway in front of: answers every request with what it was, as JSON. demo_api.py [[ADDRESS:]PORT]"""
import http.server
import json
import sys


class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        body = json.dumps({"method": self.command, "path": self.path, "user": self.headers.get("X-User-Id"),
                           "client": self.headers.get("X-Forwarded-For")}).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *arguments):
        pass


def main():
    address, _, port = (sys.argv[1] if len(sys.argv) > 1 else "9000").rpartition(":")
    try:
        server = http.server.ThreadingHTTPServer((address or "127.0.0.1", int(port)), Api)
    except OSError as problem:
        sys.exit(f"demo_api.py: port {port}: {problem.strerror}")
    server.serve_forever()


main()
