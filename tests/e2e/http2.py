"""One HTTP/2 connection, by hand: what it sends is the test's business."""
import socket

import h2.config
import h2.connection
import h2.events


class Http2:
    def __init__(self, port, **config):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8", **config))
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def get(self, path, *headers):
        """The status of a GET whose headers are sent byte for byte; needs validate_ and normalize_outbound_headers=False."""
        stream, status = self.h2.get_next_available_stream_id(), None
        self.h2.send_headers(stream, [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path), *headers],
                             end_stream=True)
        self.flush()
        while data := self.socket.recv(65536):
            for event in self.h2.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    status = int(dict(event.headers)[":status"])
                if isinstance(event, h2.events.StreamEnded):
                    self.flush()
                    return status
            self.flush()
        raise AssertionError("the connection ended without an answer")
