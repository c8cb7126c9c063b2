"""The job that FLARE runs on the server and at each site: two components without arguments, and no code."""

import json
from pathlib import Path

_PACKAGE = "fedlin.transports.flare"
_SYNC = 60  # seconds in which all sites must have started their part


def write_job(folder: Path, sites: int) -> Path:
    """A job for all sites that ends once fewer than `sites` of them are left."""
    threads = {"max_inbound_call_threads": 8, "max_outbound_call_threads": 8}
    controller = {"server_obj_id": "_server", "collab_obj_ids": [], "props": {}, "sync_task_timeout": _SYNC, **threads}
    executor = {"client_obj_id": "_client", "collab_obj_ids": [], "props": {}, **threads}
    parts = {
        "meta.json": {"name": "fedlin", "resource_spec": {}, "min_clients": sites, "deploy_map": {"app": ["@ALL"]}},
        "app/config/config_fed_server.json": {
            "format_version": 2,
            "server": {"task_request_interval": 0.2},
            "workflows": [
                {"id": "controller", "path": "nvflare.collab.runtime.controller.CollabController", "args": controller}
            ],
            "components": [{"id": "_server", "path": f"{_PACKAGE}.FlareServer", "args": {}}],
            "task_data_filters": [],
            "task_result_filters": [],
        },
        "app/config/config_fed_client.json": {
            "format_version": 2,
            "executors": [
                {
                    "tasks": ["*"],
                    "executor": {"path": "nvflare.collab.runtime.executor.CollabExecutor", "args": executor},
                }
            ],
            "components": [{"id": "_client", "path": f"{_PACKAGE}.FlareClient", "args": {}}],
            "task_data_filters": [],
            "task_result_filters": [],
        },
    }
    for name, content in parts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return folder
