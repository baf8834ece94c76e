"""Workers: processes that claim and execute."""

from onceward.worker.job import Job
from onceward.worker.settings import WorkerSettings
from onceward.worker.supervisor import run_worker
from onceward.worker.worker import Worker

__all__ = ["Job", "Worker", "WorkerSettings", "run_worker"]
