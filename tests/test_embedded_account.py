"""Root starts its first servers at once, on a machine that has no user for them yet."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from onceward import embedded_account

embedded_account.SERVER_USER = sys.argv[1]
print("up", flush=True)
sys.stdin.readline()
print(embedded_account.Account._unprivileged().uid)
"""


@pytest.fixture
def name():
    drawn = f"onceward-{secrets.token_hex(4)}"
    yield drawn
    subprocess.run(["/usr/sbin/userdel", drawn], check=False, capture_output=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root adds users")
@pytest.mark.skipif(shutil.which("useradd", path="/usr/sbin:/usr/bin") is None, reason="there is no useradd")
def test_processes_that_start_together_have_the_same_user(name):
    started = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]  # fmt: skip
    for process in started:
        assert process.stdout.readline() == "up\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()

    found = {int(process.communicate(timeout=30)[0]) for process in started}

    assert found == {pwd.getpwnam(name).pw_uid}
