"""The job that FLARE runs: a component on the server and one at each site, settings, and no code."""

import json
import shutil
from pathlib import Path

SERVER = "fedlin.transports.flare.FlareServer"
SITE = "fedlin.transports.flare_site.FlareSite"
CONFIG = "app/config"  # in a job: what goes along with it
# Sites ask for tasks of FLARE's own kind so often, all together, and seldom, since there are none: calls are pushed.
_QUESTIONS, _SHORTEST = 4.0, 2.0  # a second, and seconds; they learn of the job's end that much later


def write_job(folder: Path, sites: int, files: dict[str, bytes]) -> None:
    """A job for so many sites; `files` go along, by name.

    It lasts as long as its run, whoever is there: whom a round needs is for the run's policy to say, and who comes back
    takes part again.
    """
    parts = {
        "meta.json": {"name": "fedlin", "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["@ALL"]}},
        f"{CONFIG}/config_fed_server.json": {
            "format_version": 2,
            "server": {"task_request_interval": max(_SHORTEST, sites / _QUESTIONS)},
            "workflows": [{"id": "server", "path": SERVER, "args": {}}],
            "components": [],
            "task_data_filters": [],
            "task_result_filters": [],
        },
        f"{CONFIG}/config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": ["*"], "executor": {"path": SITE, "args": {}}}],
            "components": [],
            "task_data_filters": [],
            "task_result_filters": [],
        },
    }
    shutil.rmtree(folder, ignore_errors=True)  # nothing of an earlier run goes along
    (folder / CONFIG).mkdir(parents=True)
    for name, content in parts.items():
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    for name, data in files.items():
        (folder / CONFIG / name).write_bytes(data)
