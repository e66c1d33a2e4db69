# SPDX-License-Identifier: Apache-2.0
"""How many round trips to a server a program takes: requests that wait for each other's answers.

A server with Rounds answers nothing until the program does nothing but wait, and all that it has asked for until then at once: a round. So the
count is the same however busy the machine is. Times have no part in it: what a program gives up because an answer is held for too
long does not count, and is waited for until it is asked again.
"""

import contextlib
import os
import pathlib
import select
import threading
import time
import urllib.parse

LOOK_S, LOOKS = 0.01, 2
# A program that has not asked again after so long does not want it any more.
AGAIN_S = 30


class _Request:
    """One that is held."""

    def __init__(self, handler):
        self.asked = f'{handler.command} {handler.path} {handler.headers.get("Range", "")}'
        self.connection, self.released = handler.connection, False

    def is_given_up(self):
        """Whether the other side has closed the connection."""
        if self.connection.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP)
        return bool(poll.poll(0))


class _Processes:
    """This one, those that are named, and all that these start from now on: what was there before does not ask."""

    def __init__(self):
        self.pids = {os.getpid()}
        self.others = {pid for pid in map(int, filter(str.isdigit, os.listdir('/proc')))} - self.pids

    def add(self, pid):
        self.pids.add(pid)
        self.others.discard(pid)

    def look(self):
        parents = {}
        for pid in set(map(int, filter(str.isdigit, os.listdir('/proc')))) - self.pids - self.others:
            with contextlib.suppress(OSError):
                parents[pid] = int(pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[1])
        # A child's number may be less than its parent's.
        while found := {pid for pid, parent in parents.items() if parent in self.pids} - self.pids:
            self.pids |= found
        self.others |= set(parents) - self.pids
        return sorted(self.pids)


def _threads(pid):
    """(thread, state, number of switches) of each thread of the process."""
    found = []
    for task in pathlib.Path(f'/proc/{pid}/task').glob('*'):
        with contextlib.suppress(OSError):
            state = (task / 'stat').read_text().rpartition(')')[2].split()[0]
            switches = [line.split()[1] for line in (task / 'status').read_text().splitlines() if 'ctxt_switches' in line]
            found.append((task.name, state, *switches))
    return found


def _waits_for_page(pid, thread):
    """Whether it waits as a reader of a file in a mount does, by the page cache."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f'/proc/{pid}/task/{thread}/wchan').read_text().startswith('folio_wait')
    return False


class Rounds:
    """Of the requests to a server of lib.buckets or lib.gcs, until the end of `with`. Pids: of what asks beside what this process
    starts then. rounds: for each one what was asked."""

    def __init__(self, server, *pids):
        self.server, self.rounds = server, []
        self._processes = _Processes()
        for pid in pids:
            self.watch(pid)
        self._changed = threading.Condition()
        self._waiting, self._under_way, self._ended = [], 0, False
        # Abandoned requests, with the time until which they may be repeated.
        self._given_up = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def watch(self, pid):
        self._processes.add(pid)

    def __len__(self):
        return len(self.rounds)

    def count(self, kind):
        """As that of the server, of what was answered."""
        asked = [q.split(' ') for asked in self.rounds for q in asked]
        return sum(self.server.kind_of(method, urllib.parse.unquote(path)) == kind for method, path, _ in asked)

    def __str__(self):
        return '\n'.join(f'{i + 1}: {q}' for i, asked in enumerate(self.rounds) for q in asked)

    def __enter__(self):
        self.server.gate = self._gate
        self._thread.start()
        return self

    def __exit__(self, *_):
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()
        self.server.gate = None

    @contextlib.contextmanager
    def _gate(self, handler):
        """Run by a server's thread before and after it answers."""
        request = _Request(handler)
        with self._changed:
            self._waiting.append(request)
            before = next((i for i, (asked, _) in enumerate(self._given_up) if asked == request.asked), None)
            if before is not None:
                del self._given_up[before]
            at = len(self.rounds)
            self._changed.wait_for(lambda: len(self.rounds) > at or self._ended)
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= request.released

    def _is_round(self):
        """Whether somebody waits, and nothing else may come: no answer is under way, nothing will be asked again."""
        now = time.monotonic()
        for request in [q for q in self._waiting if q.is_given_up()]:
            self._waiting.remove(request)
            # It may have been asked again before this was seen.
            if request.asked not in (q.asked for q in self._waiting):
                self._given_up.append((request.asked, now + AGAIN_S))
        self._given_up = [(asked, until) for asked, until in self._given_up if until > now]
        return self._waiting and not self._under_way and not self._given_up

    def _look(self):
        """Return a value that changes with every activity; None during one."""
        with self._changed:
            if not self._is_round():
                return None
        mine = str(threading.get_native_id())
        others = {str(t.native_id) for t in threading.enumerate() if t.name in ('accepts', 'MainThread')}
        seen = []
        for pid in self._processes.look():
            for name, state, *switches in _threads(pid):
                if name == mine:
                    continue
                if state == 'R' or (state == 'D' and not _waits_for_page(pid, name)):
                    return None
                seen.append((name, *([] if name in others else switches)))
        with self._changed:
            return (len(self._waiting), sorted(seen)) if self._is_round() else None

    def _run(self):
        last, same = None, 0
        while not self._ended:
            time.sleep(LOOK_S)
            seen = self._look()
            same = same + 1 if seen is not None and seen == last else 0
            last = seen
            if same < LOOKS:
                continue
            with self._changed:
                self.rounds.append(list(dict.fromkeys(q.asked for q in self._waiting)))
                for request in self._waiting:
                    request.released = True
                self._under_way, self._waiting = len(self._waiting), []
                self._changed.notify_all()
            last, same = None, 0
