"""Acts as whoever runs it: reads what to do, a line of JSON each, and answers with what came of it.

``{"http": [method, path, body, headers], "socket": path}`` is a request over a Unix socket, ``{"command": [...], "env":
{...}}`` a command, and ``{"python": code}`` a program, in a process forked from this one, so that it need not import all anew.
"""

import http.client
import json
import os
import socket
import sys
import tempfile
import traceback
from pathlib import Path

from fairlead.cli import tables  # noqa: F401
from fairlead.cli.commands import cluster, people  # noqa: F401
from fairlead.cli.commands import jobs as job_commands  # noqa: F401
from fairlead.cli.main import main
from fairlead.client import connection, jobs  # noqa: F401 what commands import when they run


class Connection(http.client.HTTPConnection):
    path = ""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


def ask(path, method, url, body, headers):
    wire = Connection("localhost")
    wire.path = path
    data = None if body is None else json.dumps(body)
    kind = {} if body is None else {"Content-Type": "application/json"}
    try:
        wire.request(method, url, body=data, headers={**kind, **(headers or {})})
        answer = wire.getresponse()
        return [answer.status, answer.read().decode("latin-1")]
    finally:
        wire.close()


def command(words, env):
    os.environ.update(env)
    sys.argv = ["fairlead", *words]
    main()


def program(code):
    exec(code, {"__name__": "__main__"})


def run(work, *arguments):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # not what tells us what to do
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = 70
            try:
                work(*arguments)
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
            except Exception:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
        return [os.waitstatus_to_exitcode(status), *texts]


os.chdir(Path.home())
for line in sys.stdin:
    todo = json.loads(line)
    if "http" in todo:
        method, url, body, headers = todo["http"]
        found = ask(todo["socket"], method, url, body, headers)
    elif "python" in todo:
        found = run(program, todo["python"])
    else:
        found = run(command, todo["command"], todo["env"])
    print(json.dumps(found), flush=True)
