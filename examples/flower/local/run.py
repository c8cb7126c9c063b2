"""The app on this machine, with everything started and stopped for you.

`python local/run.py FOLDER` starts a SuperLink and three SuperNodes with TLS and node authentication;
`python local/run.py FOLDER --simulation` plays them in Flower's simulation instead. What follows goes to `flwr run`
as settings, such as `rounds=5`. Everything listens on 127.0.0.1 and is stopped at the end.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from certificates import make_authority, make_key

APP = Path(__file__).resolve().parents[1]
SITES = ("site-0", "site-1", "site-2")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # without it Ray listens on the machine's own address
}
_LINK = "local"


class Federation:
    """A SuperLink and the SuperNodes that were started; leaving the context stops them all."""

    def __init__(self, folder: Path, simulation: bool) -> None:
        self.folder, self.simulation = folder.resolve(), simulation
        self.processes: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        home = self.folder / "flwr"
        home.mkdir(parents=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # Flower calls its own commands
        self.environment = {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}
        secrets = self._secure()
        trust = "insecure = true" if simulation else f'root-certificates = "{self.folder / "ca.pem"}"'
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{_LINK}"\n\n[superlink.{_LINK}]\naddress = "127.0.0.1:{self.port}"\n{trust}\n',
            encoding="utf-8",
        )
        address = ("--host", "127.0.0.1", "--port", str(self.port))
        self.start("superlink", "flower-superlink", *address, "--disable-runtime-dependency-installation", *secrets)

    def _secure(self) -> Sequence[str]:
        if self.simulation:
            return "--insecure", "--simulation"
        make_authority(self.folder)
        files = {"ca-certfile": "ca.pem", "certfile": "server.pem", "keyfile": "server.key"}
        flags = [part for flag, file in files.items() for part in (f"--ssl-{flag}", str(self.folder / file))]
        return *flags, "--enable-supernode-auth"

    def join(self, name: str, register: bool = True) -> subprocess.Popen[bytes]:
        """A site: its key is registered under its name, and its SuperNode started."""
        key = make_key(self.folder, name)
        if register:
            self.command("supernode", "register", f"{key}.pub", _LINK, "--name", name)
        return self.start(
            name,
            "flower-supernode",
            *("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", str(self.folder / "ca.pem")),
            *("--auth-supernode-private-key", str(key), "--host", "127.0.0.1", "--port", str(free_port())),
            *("--node-config", f'name="{name}"'),
        )

    def run(self, settings: Sequence[str]) -> str:
        """Send the app, wait until its run is over, and tell how it ended."""
        options = ["--run-config", " ".join([f'folder="{self.folder / "federation"}"', *settings])]
        if self.simulation:
            resources = "client-resources-num-cpus=1 client-resources-num-gpus=0.0"
            options += ["--federation-config", f"num-supernodes={len(SITES)} {resources}"]
        number = str(self.command("run", str(APP), _LINK, *options)["run-id"])
        while True:
            (run,) = self.command("list", "--run-id", number, _LINK)["runs"]
            if run["status"].startswith("finished"):
                return str(run["status"])
            if any(process.poll() is not None for process in self.processes):
                return "a process ended before the run"
            time.sleep(2.0)

    def command(self, *words: str) -> dict[str, Any]:
        """What a `flwr` command answers."""
        self._wait_for_superlink()
        done = subprocess.run(
            [program("flwr"), *words, "--format", "json"], env=self.environment, capture_output=True, text=True
        )
        answer: dict[str, Any] = json.loads(done.stdout[done.stdout.find("{") :] or "{}")
        if done.returncode or not answer.get("success"):
            raise RuntimeError(f"flwr {words[0]} failed: {done.stdout}{done.stderr}")
        return answer

    def start(self, name: str, command: str, *words: str) -> subprocess.Popen[bytes]:
        """A process in a group of its own, so that what it starts can be stopped with it."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [program(command), *words],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def _wait_for_superlink(self) -> None:
        while self.processes[0].poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"the SuperLink did not start: see {self.folder / 'superlink.log'}")

    def __enter__(self) -> "Federation":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(20.0)
            except subprocess.TimeoutExpired:
                pass
            finally:
                stop_group(process.pid)
                process.wait()


def stop_group(group: int) -> None:
    """End what a process left of the group that was started for it."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def program(name: str) -> str:
    """A command of the environment this Python belongs to."""
    return str(Path(sys.executable).parent / name)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def main() -> int:
    """0 when the run is done and its model is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder for keys, logs, states and the model")
    parser.add_argument("--simulation", action="store_true")
    parser.add_argument("settings", nargs="*", help="settings of the run, such as rounds=5")
    arguments = parser.parse_intermixed_args()
    with Federation(arguments.folder, arguments.simulation) as federation:
        if not arguments.simulation:
            for name in SITES:
                federation.join(name)
        status = federation.run(arguments.settings)
    model = arguments.folder / "federation" / "server" / "model.npy"
    print(f"{status}: {model}" if model.exists() else f"{status}; see the logs in {arguments.folder}")
    return 0 if status == "finished:completed" and model.exists() else 1


if __name__ == "__main__":
    sys.exit(main())
