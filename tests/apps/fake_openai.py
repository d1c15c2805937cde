"""A server that speaks OpenAI's API with delays that are known, on a thread of its own. Standard library only.

Behaviour of one request is what `plan(number, body)` returns for it: see Answer.
"""
import asyncio
import dataclasses
import json
import threading


@dataclasses.dataclass
class Answer:
    """How one request is answered: tokens come at ttft, then each gap seconds."""
    ttft: float = 0.0
    gap: float = 0.0
    tokens: int = 0  # 0: max_tokens of the request
    status: int = 200
    headers: str = ""
    body: str = '{"error": {"message": "so it is"}}'  # of an answer that is no stream
    usage: bool = True
    cut_after: int = -1  # tokens after which the connection is closed
    error_after: int = -1  # tokens after which an error event comes
    keep_alive: bool = True
    token: str = "x"


class FakeOpenAi:
    """`with FakeOpenAi(plan) as fake`: fake.url, and what was seen: bodies, headers, connections, disconnects."""

    def __init__(self, plan, tls=None):
        self.plan = plan
        self.tls = tls
        self.bodies = []
        self.headers = []
        self.paths = []
        self.num_connections = 0
        self.num_disconnects = 0

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(started,), daemon=True)
        self.thread.start()
        started.wait()
        self.url = f"{'https' if self.tls else 'http'}://localhost:{self.port}"
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self.end(), self.loop)
        self.thread.join()
        self.loop.close()

    async def end(self):
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.loop.stop()

    def run(self, started):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self.serve, "localhost", 0, ssl=self.tls, backlog=4096))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self.loop.run_forever()

    async def serve(self, reader, writer):
        self.num_connections += 1
        try:
            while await self.serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.num_disconnects += 1
        finally:
            writer.close()

    async def serve_one(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = lines[0].split(" ")[1]
        if path.endswith("/v1/models"):
            return await self.send_whole(writer, 200, "", '{"object": "list", "data": [{"id": "fake-model"}]}')
        self.paths.append(path)
        self.headers.append(headers)
        self.bodies.append(json.loads(body))
        answer = self.plan(len(self.bodies) - 1, self.bodies[-1])
        if answer.status != 200:
            return await self.send_whole(writer, answer.status, answer.headers, answer.body)
        return await self.stream(writer, answer, self.bodies[-1])

    async def send_whole(self, writer, status, headers, body):
        writer.write(f"HTTP/1.1 {status} x\r\n{headers}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        return True

    def event(self, data):
        text = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
        return f"{len(text):x}\r\n".encode() + text + b"\r\n"

    async def stream(self, writer, answer, body):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n"
                     + (b"" if answer.keep_alive else b"Connection: close\r\n") + b"\r\n")
        is_chat = "messages" in body
        if is_chat:
            writer.write(self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
        tokens = answer.tokens or body["max_tokens"]
        for i in range(tokens):
            await asyncio.sleep(answer.ttft if i == 0 else answer.gap)
            if i == answer.cut_after:
                return False
            if i == answer.error_after:
                writer.write(self.event({"error": {"message": "a step failed"}}) + b"0\r\n\r\n")
                return True
            choice = {"index": 0, "finish_reason": "length" if i == tokens - 1 else None}
            choice.update({"delta": {"content": answer.token}} if is_chat else {"text": answer.token})
            writer.write(self.event({"choices": [choice]}))
            await writer.drain()
        if answer.usage:
            writer.write(self.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens}}))
        writer.write(self.event("[DONE]") + b"0\r\n\r\n")
        await writer.drain()
        return answer.keep_alive
