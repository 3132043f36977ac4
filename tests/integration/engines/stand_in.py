"""A stand-in for a model server: the standard library only, told by flags how to behave or misbehave."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

METRICS = """\
vllm:prompt_tokens_total{engine="0"} 10
vllm:generation_tokens_total{engine="0"} 20
vllm:num_requests_running{engine="0"} 1
vllm:num_requests_waiting{engine="0"} 0
"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/die":
            os._exit(9)
        body = METRICS if self.path == "/metrics" else "ok"
        self.send_response(200 if self.path in ("/health", "/metrics") else 404)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--die-loading", action="store_true")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--worker", choices=("group", "session", "session-renamed", "group-unmarked"), action="append", default=[])
    parser.add_argument("--pids", type=Path)
    flags = parser.parse_args()
    if flags.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("\x1b[32mloading\x1b[0m the model", flush=True)
    workers = []
    for kind in flags.worker:
        environment = {} if kind.endswith(("unmarked", "renamed")) else dict(os.environ)
        program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
        detach = {"start_new_session": True} if kind.startswith("session") else {"process_group": 0}
        workers.append(subprocess.Popen([sys.executable, "-c", program], env=environment, **detach))
    if flags.pids:
        partial = flags.pids.with_suffix(".partial")
        partial.write_text(" ".join(str(pid) for pid in (os.getpid(), *(worker.pid for worker in workers))))
        partial.rename(flags.pids)
    time.sleep(flags.load_s)
    if flags.die_loading:
        print("ValueError: no such layer", file=sys.stderr)
        sys.exit(7)
    HTTPServer(("127.0.0.1", flags.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
