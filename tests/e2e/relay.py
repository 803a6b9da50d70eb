"""A fault injector between a host and its real store: a relay on a port of its own that misbehaves as configured.

Modes:
  pass      what comes goes on, each way after `delay` seconds
  refuse    open connections are cut, new ones are closed at once
  silent    connections stay, and nothing passes
  trickle   the store's answers pass one byte a second
  garbage   the store's answers are replaced by bytes without sense
  error     each answer of the store is replaced by the error in `text`
"""
import asyncio
import contextlib
import os
import threading

from ports import free_port


class Relay:
    def __init__(self, target, host="127.0.0.1", tls=None):
        self.target, self.target_host, self.port, self.tls = target, host, free_port(), tls
        self.mode, self.delay, self.text = "pass", 0.0, ""
        self.accepted = 0
        self.writers = set()
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self.thread.start()
        assert ready.wait(10)

    def _run(self, ready):
        asyncio.set_event_loop(self.loop)
        self.server = self.loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.tls))
        ready.set()
        self.loop.run_forever()

    async def _accept(self, reader, writer):
        self.accepted += 1
        if self.mode == "refuse":
            writer.transport.abort()
            return
        self.writers.add(writer)
        try:
            there_reader, there = await asyncio.open_connection(self.target_host, self.target)
        except OSError:
            self._drop(writer)
            return
        self.writers.add(there)
        await asyncio.gather(self._carry(reader, there, False), self._carry(there_reader, writer, True))

    def _drop(self, *writers):
        for writer in writers:
            self.writers.discard(writer)
            writer.transport.abort()

    async def _carry(self, reader, writer, answers):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(65536):
                while self.mode == "silent":
                    await asyncio.sleep(0.02)
                if self.delay:
                    self.loop.call_later(self.delay, self._send, writer, data)
                else:
                    await self._change(writer, data, answers)
        self.loop.call_later(self.delay, self._drop, writer)

    @staticmethod
    def _send(writer, data):
        if not writer.transport.is_closing():
            writer.write(data)

    async def _change(self, writer, data, answers):
        if answers and self.mode == "garbage":
            data = os.urandom(len(data) + 16)
        elif answers and self.mode == "error":
            data = f"-{self.text}\r\n".encode()
        elif answers and self.mode == "trickle":
            for byte in data:
                while self.mode == "silent":
                    await asyncio.sleep(0.02)
                self._send(writer, bytes([byte]))
                if self.mode == "trickle":
                    await asyncio.sleep(1)
            return
        self._send(writer, data)
        with contextlib.suppress(OSError):
            await writer.drain()

    def _cut(self):
        self._drop(*list(self.writers))

    def be(self, mode="pass", delay=0.0, text="", cut=None):
        """Changes its behaviour; `cut`: closes all connections first (always if it refuses new ones)."""
        async def change():
            self.mode, self.delay, self.text = mode, delay, text
            if mode == "refuse" if cut is None else cut:
                self._cut()
        asyncio.run_coroutine_threadsafe(change(), self.loop).result(10)

    def remove(self):
        async def end():
            self.server.close()
            self._cut()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        asyncio.run_coroutine_threadsafe(end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()
