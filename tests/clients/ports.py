"""Ports of 127.0.0.1 for servers that get theirs on the command line. Standard library only."""
import contextlib
import random
import socket

_given = set()


def first_ephemeral():
    """From here on the kernel takes ports for connections, and for servers that ask for any port."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        return int(file.read().split()[0])


def free_port():
    return free_ports(1)


def free_ports(count):
    """Returns the first of `count` neighbouring free ports. The kernel gives none of them to another program."""
    while True:
        first = random.randrange(max(1024, first_ephemeral() - 16384), first_ephemeral() - count)
        ports = range(first, first + count)
        with contextlib.ExitStack() as kept, contextlib.suppress(OSError):
            for port in ports:
                kept.enter_context(socket.create_server(("127.0.0.1", port)))
            if _given.isdisjoint(ports):
                _given.update(ports)
                return first
