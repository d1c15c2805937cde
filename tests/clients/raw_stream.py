"""A streamed HTTP answer, read by hand from a socket, with the bounds of its chunks kept. Standard library only."""
import json
import socket


def send(server, path, body):
    """A socket on which this request was sent."""
    payload = json.dumps(body).encode()
    connection = socket.create_connection((server.host, server.port), timeout=60)
    connection.sendall((f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        f"Content-Length: {len(payload)}\r\n\r\n").encode() + payload)
    return connection


class RawStream:
    """The head and the chunks of one answer: status, headers, and chunks() as bytes."""

    def __init__(self, server, path, body):
        self.connection = send(server, path, body)
        self.file = self.connection.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        while (line := self.file.readline().strip()):
            name, value = line.decode().split(":", 1)
            self.headers[name.lower()] = value.strip()

    def chunks(self):
        assert self.status == 200, f"no stream: {self.file.read(500)!r}"
        while size := int(self.file.readline(), 16):
            yield self.file.read(size)
            assert self.file.readline() == b"\r\n", "a chunk ends with a line end"
        assert self.file.readline() == b"\r\n", "no trailers"

    def close(self):
        self.file.close()
        self.connection.close()
