"""Whether Ray asks for a token is the cluster's choice; what is in somebody's home changes nothing.

`make ray-torture` runs it, over clusters of its own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from bench.ray_trial import Trial

from ray_cluster import SOONER, Cluster, ended

pytestmark = pytest.mark.skipif("FAIRLEAD_LONG" not in os.environ, reason="`make ray-torture` runs it")

LOCAL = "import ray; ray.init(num_cpus=1, include_dashboard=False); print('here')"
"""What a task does that knows nothing of the cluster: it starts a Ray of its own."""


AUTHENTICATE = "print(authenticate(sys.argv[1])[0])"


def asked(address, code=AUTHENTICATE, **env):
    """The last line of a process that asks a head in this environment."""
    code = f"import sys; from fairlead.engines.ray import authenticate; {code}"
    env = {name: value for name, value in ({**os.environ, **env}).items() if value}
    done = subprocess.run([sys.executable, "-c", code, address], env=env, capture_output=True, text=True, timeout=90, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[-1]


def write_token(home, digit):
    path = home / ".ray" / "auth_token"
    path.parent.mkdir(exist_ok=True)
    path.write_text(digit * 64)
    return str(path)


def ray_of(cluster):
    (found,) = [each for each in cluster.doctor() if each["thing"] == "ray"]
    return found


def what_is_in_a_home_changes_nothing(cluster):
    """Ray 2.60 leaves a token at any local `ray.init()`; the next head without RAY_AUTH_MODE asks for it."""
    home = cluster.folder
    token = write_token(home, "0")
    assert cluster.ok("run", "--", "sh", "-c", "echo $RAY_AUTH_MODE") == "disabled\n"
    unset = {"HOME": str(home), "RAY_AUTH_MODE": ""}
    assert asked(cluster.address, **unset) == "disabled"
    wants = asked(cluster.address, **unset | {"RAY_AUTH_MODE": "token"})
    assert wants.endswith(
        f"the Ray cluster at {cluster.address} asks for no token, so anybody who reaches it can run commands there, and "
        "RAY_AUTH_MODE=token is set here: start the cluster with RAY_AUTH_MODE=token, or unset it here"
    )
    return Path(token)


@pytest.mark.timeout(300)
def test_what_is_in_a_home_changes_nothing_for_the_next_head_of_a_cluster(tmp_path):
    with ended(Cluster(tmp_path)) as cluster:
        cluster.env |= {"HOME": str(tmp_path)}
        cluster.env.pop("RAY_AUTH_MODE", None)
        cluster.start_up(1)
        assert cluster.ok("run", "--memory", "2Gi", "--", sys.executable, "-c", LOCAL).endswith("here\n")
        assert not (tmp_path / ".ray").exists(), "a task's Ray leaves no token for the next head of the cluster"
        what_is_in_a_home_changes_nothing(cluster)
        cluster.kill()
        for process in (cluster.process_of("gcs_server"), cluster.raylet("try-1")):
            process.kill()
            psutil.wait_procs([process], 10)
        cluster.start_up(1)
        assert cluster.ok("run", "--", "echo", "again") == "again\n"
        assert cluster.end() == 0


@pytest.mark.timeout(300)
def test_the_token_of_a_cluster_is_used_and_what_is_wrong_with_it_is_reported(tmp_path, monkeypatch):
    with ended(Cluster(tmp_path)) as cluster:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        shutil.copy(write_token(tmp_path, "1"), theirs / "token")
        for name, value in SOONER.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(theirs / "token"))
        cluster.home.mkdir(mode=0o700)
        address = Trial(cluster.home).start(1)
        monkeypatch.delenv("RAY_AUTH_MODE")
        monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
        cluster.env |= {"HOME": str(tmp_path)}
        cluster.env.pop("RAY_AUTH_MODE", None)
        asks = f"the Ray cluster at {address} asks for a token"
        remedy = "write the cluster's into ~/.ray/auth_token, or its path into RAY_AUTH_TOKEN_PATH"
        token = write_token(tmp_path, "2")
        join = ("up", "--config", str(cluster.config), "--engine", "ray", "--ray-address", address)
        refused = cluster.call(*join)
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-1] == f"fairlead: {asks}, and refuses the one in {token}: {remedy}"
        (tmp_path / ".ray" / "auth_token").unlink()
        unset = {"HOME": str(tmp_path), "RAY_AUTH_MODE": ""}
        assert asked(address, **unset).endswith(f"{asks}, and there is none here: {remedy}")
        off = asked(address, **unset | {"RAY_AUTH_MODE": "disabled"})
        assert off.endswith(f"{asks}, and RAY_AUTH_MODE=disabled is set here: unset it; {remedy}")
        write_token(tmp_path, "1")
        cluster.up("--engine", "ray", "--ray-address", address, "--lost-after", "3")
        cluster.until(lambda: cluster.nodes("up") == ["try-1"], 60)
        assert cluster.ok("run", "--", "sh", "-c", "echo $RAY_AUTH_MODE") == "token\n"
        assert ray_of(cluster)["how"] == "well"
        write_token(tmp_path, "2")
        assert ray_of(cluster)["what"] == f"{asks}, and refuses the one in {token}: {remedy}"
        assert cluster.end() == 0
