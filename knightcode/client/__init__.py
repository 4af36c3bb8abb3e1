"""Talking to an app server from Python: over a child process, or in memory.

Must not import the threads' domain but to open the in-process pair.
"""

from knightcode.client.client import AppServerClient, AppServerError, ConnectionLost
from knightcode.client.in_process import create_in_process_client
from knightcode.client.subprocess import ServerProcess, spawn_app_server

__all__ = [
    "AppServerClient",
    "AppServerError",
    "ConnectionLost",
    "ServerProcess",
    "create_in_process_client",
    "spawn_app_server",
]
