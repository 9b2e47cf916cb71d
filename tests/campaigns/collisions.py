"""Many clients that write with one version at the same moment: one of them succeeds, the others are told."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import msgspec
import uvloop

from tests.oracles.history import Client, Reply

CLIENTS = 100


class Round:
    """What the clients of one moment were answered, and what was there afterwards."""

    def __init__(self, replies: Sequence[Reply], present: Reply) -> None:
        self.statuses = Counter(reply.status for reply in replies)
        self.tags = {reply.tag for reply in replies}
        self.done = [number for number, reply in enumerate(replies) if reply.status == 200]
        self.present = present

    @property
    def is_right(self) -> bool:
        """Tell whether one was done, every other was told the version that this one made, and it is there."""
        expected = Counter({200: 1, 412: len(self.statuses) and self.statuses.total() - 1})
        if self.statuses != expected or self.tags != {self.present.tag}:
            return False
        found = msgspec.json.decode(self.present.body)
        latest = found[-1] if isinstance(found, list) else found
        return bool(latest["name"] == f"Client {self.done[0]}")


def collide(port: int, method: str, target: str, rounds: int, clients: int = CLIENTS) -> list[Round]:
    """Have all clients read a tag and write with it at once, each something else; as often as is said."""
    return uvloop.run(_collide(port, method, target, rounds, clients))


async def _collide(port: int, method: str, target: str, rounds: int, clients: int) -> list[Round]:
    connections = await asyncio.gather(*(Client.connect(port) for _ in range(clients)))
    found = []
    for number in range(rounds):
        tag = (await connections[0].exchange("GET", target)).tag
        # The payloads of two rounds differ too: what a store already is would be no conflict (decision 34).
        bodies = [b'{"name":"Client %d","address":"%d"}' % (client, number) for client in range(clients)]
        replies = await asyncio.gather(
            *(
                connection.exchange(method, target, body, f"if-match: {tag}\r\n")
                for connection, body in zip(connections, bodies, strict=True)
            )
        )
        found.append(Round(replies, await connections[0].exchange("GET", target)))
    for connection in connections:
        connection.close()
    return found
