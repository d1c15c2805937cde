#!/usr/bin/env python3
"""A client of the JSON-lines protocol on asyncio: any number of requests at once over one connection, each an
asynchronous stream of texts. A request whose task is cancelled is cancelled at the server too. Standard library only.

    python3 examples/asyncio_client.py --port 7070 "Once upon a time" "The dog"
"""
import argparse
import asyncio
import itertools
import json
import sys


class PagodaError(Exception):
    """What the server refused, or that it has gone; `code` is the protocol's word."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


GONE = {"code": "connection", "message": "the server has gone"}


class AsyncClient:
    """`async with AsyncClient(host, port) as client: async for text in client.stream("...", max_tokens=20): ...`"""

    def __init__(self, host="127.0.0.1", port=7070):
        self.host, self.port = host, port
        self.ids = map(str, itertools.count(1))
        self.events = {}  # of live requests, by id

    async def __aenter__(self):
        # A line holds one event; the largest has a whole answer with its log-probabilities.
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=64 << 20)
        self.reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_):
        self.reading.cancel()
        self.writer.close()

    async def _read(self):
        """Hands each event to the request that it is for."""
        try:
            while line := await self.reader.readline():
                event = json.loads(line)
                if (queue := self.events.get(event.get("id"))) is not None:
                    queue.put_nowait(event)
        finally:  # nobody waits for an event that cannot come
            for queue in self.events.values():
                queue.put_nowait({"event": "error", "error": GONE})

    async def _send(self, message):
        if self.reading.done():  # nothing that is asked now is answered
            raise PagodaError(**GONE)
        try:
            self.writer.write(json.dumps(message).encode() + b"\n")
            await self.writer.drain()  # a server that is slow to read holds us back, and not our memory
        except ConnectionError as error:
            raise PagodaError(**GONE) from error

    async def stream(self, prompt, **fields):
        """The texts of one request as they come. `fields`: as docs/json-lines.md has them."""
        id = next(self.ids)
        queue = self.events[id] = asyncio.Queue()
        is_live = True
        try:
            await self._send({"id": id, "prompt": prompt, **fields})
            while is_live:
                event = await queue.get()
                if event["event"] == "delta":
                    yield event["text"]
                elif event["event"] == "error":
                    is_live = False
                    raise PagodaError(event["error"]["code"], event["error"]["message"])
                elif event["event"] == "done":
                    is_live = False
        finally:
            del self.events[id]
            if is_live and not self.writer.is_closing():
                self.writer.write(json.dumps({"op": "cancel", "id": id}).encode() + b"\n")

    async def complete(self, prompt, **fields):
        return "".join([text async for text in self.stream(prompt, **fields)])


async def run(args):
    fields = {"max_tokens": args.max_tokens, "temperature": args.temperature}
    if args.model:
        fields["model"] = args.model
    async with AsyncClient(args.host, args.port) as client:
        answers = await asyncio.gather(*(client.complete(prompt, **fields) for prompt in args.prompt))
    for prompt, answer in zip(args.prompt, answers):
        print(prompt + answer + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt", nargs="+")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7070)
    parser.add_argument("--model", help="which model, where the server has several")
    parser.add_argument("--max-tokens", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=0)
    try:
        asyncio.run(run(parser.parse_args()))
    except (PagodaError, OSError) as error:
        sys.exit(f"asyncio_client.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
