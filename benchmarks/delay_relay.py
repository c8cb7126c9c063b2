"""Latency where the kernel has no netem: `python -m benchmarks.delay_relay PORT HOST SECONDS`.

Listens on 127.0.0.1:PORT and passes every byte on to HOST:PORT, and back, so many seconds after it came.
"""

import asyncio
import sys
from contextlib import suppress
from functools import partial

_CHUNK = 1 << 16


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Pass on what comes, each part after the delay; parts that are under way do not hold up those behind them."""
    loop, under_way = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def receive() -> None:
        data = b"-"
        while data:
            with suppress(OSError):
                data = b""
                data = await reader.read(_CHUNK)
            under_way.put_nowait((loop.time() + seconds, data))

    receiving = asyncio.create_task(receive())
    try:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                break
            writer.write(data)
            await writer.drain()
    except OSError:  # the other side is gone
        pass
    finally:
        receiving.cancel()
        writer.close()


async def accept(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, seconds: float
) -> None:
    """One connection, both ways."""
    try:
        there, back = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(carry(reader, back, seconds), carry(there, writer, seconds))


async def relay(port: int, host: str, seconds: float) -> None:
    """Until it is ended."""
    server = await asyncio.start_server(partial(accept, host=host, port=port, seconds=seconds), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
