"""The job that FLARE runs on the server and at each site: two components without arguments, settings, and no code."""

import json
import shutil
from pathlib import Path

SERVER = "fedlin.transports.flare.FlareServer"
CLIENT = "fedlin.transports.flare.FlareClient"
CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
CONFIG = "app/config"  # in a job: what goes along with it
_SYNC = 60  # seconds in which all sites must have started their part
# A site asks for the job's two opening tasks so often: all sites together 20 times a second, each question costing
# about as much as a call. Once the run is under way `FlareServer` lets them ask less often.
_OPENING, _SHORTEST = 20.0, 0.2


def write_job(folder: Path, sites: int, needed: int, files: dict[str, bytes]) -> None:
    """A job for so many sites that ends once fewer than `needed` of them are left; `files` go along, by name."""
    # The server has at most one call to each site under way, and a frozen site keeps its thread until the timeout.
    threads = {"max_inbound_call_threads": 8, "max_outbound_call_threads": sites + 8}
    controller = {"server_obj_id": "_server", "collab_obj_ids": [], "props": {}, "sync_task_timeout": _SYNC, **threads}
    executor = {"client_obj_id": "_client", "collab_obj_ids": [], "props": {}, **threads}
    parts = {
        "meta.json": {"name": "fedlin", "resource_spec": {}, "min_clients": needed, "deploy_map": {"app": ["@ALL"]}},
        f"{CONFIG}/config_fed_server.json": {
            "format_version": 2,
            "server": {"task_request_interval": max(_SHORTEST, sites / _OPENING)},
            "workflows": [{"id": "controller", "path": CONTROLLER, "args": controller}],
            "components": [{"id": "_server", "path": SERVER, "args": {}}],
            "task_data_filters": [],
            "task_result_filters": [],
        },
        f"{CONFIG}/config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": ["*"], "executor": {"path": EXECUTOR, "args": executor}}],
            "components": [{"id": "_client", "path": CLIENT, "args": {}}],
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
