"""Run tests on copies of the package: a program that loads torch once and forks for each trial.

    python trial.py JOBS.json   ->   one JSON line a job, in order

A job names the folder that holds the copy, and the tests. A failure counts only if it is the law's
own: an assertion, or an error that was expected and did not come.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
AT_ONCE = 2
LIMIT = 300  # seconds


class Watch:
    """Note what ran, and how it failed."""

    def __init__(self, only: list[str]) -> None:
        self.only = set(only)
        self.passed: list[str] = []
        self.failed: list[str] = []
        self.why = ""
        self.lawful = True

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep some tests only, if they are named."""
        if self.only:
            items[:] = [item for item in items if item.nodeid in self.only]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test."""
        if report.when == "call" and report.passed:
            self.passed.append(report.nodeid)

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        """Note a failure, in a test or before it."""
        kind = call.excinfo.type
        lawful = issubclass(kind, AssertionError | pytest.fail.Exception)
        self.lawful = self.lawful and lawful and getattr(report, "when", "") == "call"
        self.failed.append(node.nodeid)
        self.why = self.why or f"{kind.__name__}: {str(call.excinfo.value).strip()[:200]}"


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run one job's tests, in a process of its own."""
    signal.alarm(LIMIT)
    source = job["source"]
    sys.path.insert(0, source)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not _knows_the_package(finder)]
    watch = Watch(job.get("only", []))
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=",
                 "--import-mode=importlib", "-o", f"pythonpath={source} {TESTS}",
                 f"--rootdir={TESTS.parent}"]  # fmt: skip
    import crossattention

    loaded = Path(crossattention.__file__)
    assert loaded.is_relative_to(source), f"{loaded} was imported, not the copy"
    pytest.main([*arguments, *job["tests"]], plugins=[watch])
    return {
        "name": job["name"], "passed": watch.passed, "failed": watch.failed, "why": watch.why,
        "lawful": watch.lawful,
    }  # fmt: skip


def _knows_the_package(finder: Any) -> bool:
    """Whether a finder would answer before the path is searched, as an editable install's does."""
    if finder is PathFinder:
        return False
    return finder.find_spec("crossattention", None, None) is not None


def main(jobs: list[dict[str, Any]]) -> None:
    """Run all jobs, two at once, and print what came of each."""
    waiting, running, found = list(enumerate(jobs)), {}, {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            place, job = waiting.pop(0)
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                with os.fdopen(writer, "w") as out:
                    json.dump(run(job), out)
                os._exit(0)
            os.close(writer)
            running[child] = (place, reader)
        child, _ = os.wait()
        place, reader = running.pop(child)
        with os.fdopen(reader) as result:
            found[place] = result.read() or json.dumps({"name": jobs[place]["name"], "died": True})
    for place in range(len(jobs)):
        sys.stdout.write(found[place] + "\n")


if __name__ == "__main__":
    import hypothesis  # noqa: F401 -- what every trial needs is loaded before they fork
    import torch
    import torch.utils._python_dispatch

    torch.set_num_threads(1)
    torch.nn.functional.relu(torch.ones(1, requires_grad=True)).sum()
    main(json.loads(Path(sys.argv[1]).read_text()))
