"""The table of connections: its limit, who makes room, and its end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ovirt_scheduler.server.http.connections import Connections
from tests.support.waiting import LONG


class Peer:
    """A connection's two ends, and a thread that serves it until it is broken.

    Attributes:
        waits, speed: how its request arrives.
    """

    def __init__(self) -> None:
        self.socket, self.other_end = socket.socketpair()
        self.waits, self.speed = True, 0.0
        self._threads: list[threading.Thread] = []

    def serve_in(self, table: Connections) -> Peer:
        def serve() -> None:
            self.socket.recv(1)
            table.remove(self.socket)

        self._threads.append(threading.Thread(target=serve, daemon=True))
        self._threads[-1].start()
        return self

    def add_to(self, table: Connections, state: str) -> None:
        """Join the table as an idle connection, or one of which the head or the body arrives."""
        assert table.add(self.socket)
        assert table.begin_request(self.socket, self)
        if state == "body":
            table.begin_body(self.socket, self)
        if state == "idle":
            assert table.set_busy(self.socket)
            assert table.set_idle(self.socket)

    def close(self) -> None:
        self.other_end.close()
        for thread in self._threads:
            thread.join(LONG)
        self.socket.close()

    @property
    def cut(self) -> bool:
        self.other_end.settimeout(LONG)
        return self.other_end.recv(1) == b""

    @property
    def open(self) -> bool:
        self.other_end.settimeout(0)
        try:
            self.other_end.recv(1)
        except BlockingIOError:
            return True
        return False


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    made = [Peer() for _ in range(10)]
    yield made
    for peer in made:
        peer.close()


def soon() -> float:
    return time.monotonic() + 30


def test_one_at_a_time_is_broken(peers: list[Peer]) -> None:
    """However often room is asked for: the next one only when the last has left."""
    table = Connections(limit=3)
    for peer in peers[:3]:
        assert table.add(peer.socket)
    table.make_room()
    table.make_room()
    assert peers[0].cut
    assert peers[1].open
    table.remove(peers[0].socket)
    table.make_room()
    assert peers[1].cut
    assert peers[2].open


def test_a_raised_limit_lets_in_who_waits(peers: list[Peer]) -> None:
    """At once, though the connections before it stay busy."""
    table = Connections(limit=1)
    peers[0].add_to(table, "head")
    table.set_busy(peers[0].socket)
    added = threading.Event()

    def add() -> None:
        table.add(peers[1].socket)
        added.set()

    threading.Thread(target=add, daemon=True).start()
    assert not added.wait(0.1)
    table.set_limit(2)
    assert added.wait(LONG)
    assert peers[0].open


def test_a_broken_connection_takes_no_request(peers: list[Peer]) -> None:
    """The thread of a connection that was broken learns that it came too late."""
    table = Connections(limit=2)
    table.add(peers[0].socket)
    table.make_room()
    assert not table.begin_request(peers[0].socket, peers[0])
    assert not table.set_idle(peers[0].socket)


def order_of_closing(table: Connections, peers: list[Peer]) -> list[int]:
    """The indices of the peers as they make room, until none does."""
    order: list[int] = []
    while True:
        table.make_room()
        closed = [index for index, peer in enumerate(peers) if index not in order and not peer.open]
        if not closed:
            return order
        order += closed
        table.remove(peers[closed[0]].socket)


def test_one_that_had_another_request_meanwhile_is_not_the_one_idle_for_longest(
    peers: list[Peer],
) -> None:
    table = Connections(limit=3)
    for peer in peers[:3]:
        peer.add_to(table, "idle")
    for peer in (peers[0], peers[2]):
        assert table.begin_request(peer.socket, peer)
        assert table.set_busy(peer.socket)
        assert table.set_idle(peer.socket)
    assert order_of_closing(table, peers[:3]) == [1, 0, 2]


def test_an_idle_one_then_one_without_a_head_then_the_slowest_makes_room(peers: list[Peer]) -> None:
    table = Connections(limit=9)
    states = ["body", "head", "body", "idle", "body", "head", "idle"]
    for peer, state in zip(peers, states):
        peer.add_to(table, state)
    assert table.add(peers[7].socket)
    peers[8].add_to(table, "head")
    assert table.set_busy(peers[8].socket)
    peers[0].speed, peers[2].speed, peers[4].speed = 200.0, 100.0, 300.0
    assert order_of_closing(table, peers) == [3, 6, 1, 5, 7, 2, 0, 4]
    assert table.cut_requests == 6


def test_a_request_that_is_there_and_not_read_is_not_idle(peers: list[Peer]) -> None:
    table = Connections(limit=2)
    for peer in peers[:2]:
        peer.add_to(table, "idle")
    peers[0].other_end.sendall(b"POST")
    assert order_of_closing(table, peers[:2]) == [1]


@pytest.mark.parametrize("state", ["head", "body"])
def test_one_whose_bytes_are_not_read_yet_is_the_last_to_make_room(
    peers: list[Peer], state: str
) -> None:
    """It is this process that is slow then: the thread works, or has yet to see what came."""
    table = Connections(limit=3)
    for peer in peers[:3]:
        peer.add_to(table, state)
    peers[0].waits = False
    peers[1].other_end.sendall(b"x")
    assert order_of_closing(table, peers[:3]) == [2, 0, 1]


def test_a_new_caller_among_many_whose_bodies_do_not_come_does_not_make_room(
    peers: list[Peer],
) -> None:
    table = Connections(limit=9)
    for peer in peers[:8]:
        peer.add_to(table, "body")
    assert table.add(peers[8].socket)
    table.make_room()
    assert peers[0].cut
    assert peers[8].open


def test_waiting_for_idleness_ends(peers: list[Peer]) -> None:
    """It ends when the last busy connection is idle, or at the deadline."""
    table = Connections(limit=2)
    assert table.wait_until_idle(soon())
    peers[0].add_to(table, "head")
    table.set_busy(peers[0].socket)
    assert not table.wait_until_idle(time.monotonic() + 0.05)
    threading.Timer(0.05, table.set_idle, [peers[0].socket]).start()
    assert table.wait_until_idle(soon())


def test_closing_tells_of_a_thread_that_stays(peers: list[Peer]) -> None:
    """A connection whose thread does not end is told at the deadline."""
    table = Connections(limit=1)
    table.add(peers[0].socket)
    assert not table.close(time.monotonic() + 0.05)


def test_closing_wakes_the_one_that_waits_for_room(peers: list[Peer]) -> None:
    """Who waited for room learns that there will be none."""
    table = Connections(limit=1)
    peers[0].add_to(table, "head")
    table.set_busy(peers[0].socket)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(table.add(peers[1].socket)))
    waiting.start()
    table.close(time.monotonic() + 0.05)
    waiting.join(LONG)
    assert answers == [False]


def test_who_is_in_a_handshake_at_the_end_has_time_for_a_request(peers: list[Peer]) -> None:
    """Who has said nothing has not; who had a request before opens another connection."""
    table = Connections(limit=3)
    silent, greeted, idle = peers[:3]
    for peer in (silent, greeted, idle):
        assert table.add(peer.socket)
        peer.serve_in(table)
    assert table.set_greeted(greeted.socket, greeted)
    assert table.begin_request(idle.socket, idle)
    assert table.set_idle(idle.socket)
    draining = threading.Thread(target=table.drain, args=(0.0, soon()))
    draining.start()
    assert silent.cut
    assert idle.cut
    assert greeted.open
    assert table.begin_request(greeted.socket, greeted)
    draining.join(LONG)
    assert not draining.is_alive()
    assert not table.set_idle(greeted.socket)
