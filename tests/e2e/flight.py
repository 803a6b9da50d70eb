"""Requests in flight: an upstream that holds them, and clients that wait for it."""
import socket
import threading

from gateway import wait_until

LEASE = "4s"  # renewed at a third of it: a machine that stands still for two seconds does not end it


class Slow:
    """An upstream whose replies wait for go; /ws is upgraded and echoed until it is closed."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.lock, self.go, self.inside, self.most, self.seen = threading.Lock(), threading.Event(), 0, 0, 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def count(self, by):
        with self.lock:
            self.inside += by
            self.seen += by > 0
            self.most = max(self.most, self.inside)

    def hold_again(self):
        """After go.set(): waits until clients that have their reply are no longer counted."""
        wait_until(lambda: self.inside == 0, "an idle upstream")
        self.go.clear()

    def serve(self, s):
        with s:
            request = b""
            while b"\r\n\r\n" not in request:
                got = s.recv(65536)
                if not got:
                    return
                request += got
            self.count(1)
            try:
                if request.startswith(b"GET /ws"):
                    s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
                    while got := s.recv(65536):
                        s.sendall(got)
                elif request.startswith(b"GET /breaks"):
                    self.go.wait(30)
                else:
                    self.go.wait(30)
                    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n")
            except OSError:
                pass
            finally:
                self.count(-1)


def through(slow):
    return f"""
        location /slow {{ proxy_pass http://127.0.0.1:{slow.port}; }}
        location /breaks {{ proxy_pass http://127.0.0.1:{slow.port}; error_page 502 504 /page.txt; }}
        location /inner {{ error_page 404 = /slow; return 404; }}
        location /ws {{ proxy_pass http://127.0.0.1:{slow.port}; proxy_http_version 1.1;
                        proxy_set_header Upgrade x; proxy_set_header Connection upgrade; }}"""


def send_request(port, path="/slow", more=""):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
    return s
