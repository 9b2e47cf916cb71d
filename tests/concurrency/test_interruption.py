"""An interruption: what it ends, and what it lets run."""

import socket
import threading

from storekeeper.concurrency.interruption import Interruption


def test_work_is_ended_once_it_has_begun_and_not_after_its_end() -> None:
    ended: list[str] = []
    interruption = Interruption()
    with interruption.by(lambda: ended.append("first")):
        assert ended == []
    interruption.interrupt()
    assert ended == []
    with interruption.by(lambda: ended.append("second")):
        assert ended == ["second"]


def test_a_thread_that_waits_for_a_socket_waits_no_longer() -> None:
    ours, theirs = socket.socketpair()
    interruption, waits, got = Interruption(), threading.Event(), list[bytes]()

    def wait() -> None:
        with interruption.by_closing(ours.fileno()):
            waits.set()
            got.append(ours.recv(1))

    thread = threading.Thread(target=wait)
    with ours, theirs:
        thread.start()
        assert waits.wait(10)
        interruption.interrupt()
        thread.join(10)
        assert got == [b""]
