"""``doctor``: what is set, what answers, what this machine has, and what to do about it."""

import asyncio
import os

from hud_tui.client.probe import probe, probe_url, shown_url
from hud_tui.doctor.config_file import check_config
from hud_tui.doctor.configured import settings_of, usable_settings
from hud_tui.doctor.hosts import check_hosts
from hud_tui.doctor.report import Finding, Report, Service, exit_code
from hud_tui.doctor.service_data import check_data, check_leftovers, look_into
from hud_tui.doctor.storage import check_directories, directories
from hud_tui.doctor.terminal import check_terminal, this_terminal
from hud_tui.doctor.tinker import check_tinker, tinker_settings
from hud_tui.doctor.versions import check_versions, versions
from hud_tui.errors import HudUsage
from hud_tui.headless.doctor_table import print_report
from hud_tui.headless.output import emit
from hud_tui.service_file import alive, named
from hud_tui.settings import Paths, Settings, local_settings
from hud_tui.variables import read_places
from hud_tui.wire import ServiceReady


def doctor(paths: Paths, local: bool, document: bool, fail_on_warning: bool) -> int:
    """Look at everything and say it; returns the exit code of the worst finding.

    Args:
        paths: This program's directories.
        local: Look at the embedded service, and want no key; else at HUD's hosts.
        document: Print JSON; else a table.
        fail_on_warning: Warnings count too.
    """
    report = examine(paths, local)
    if document:
        emit("doctor", {"verdict": report.verdict, **vars(report)})
    else:
        print_report(report)
    return exit_code(report.findings, "warning" if fail_on_warning else "failure")


def examine(paths: Paths, local: bool) -> Report:
    """Everything, gathered; only the hosts are waited for."""
    places = read_places()
    settings, findings = usable_settings(places, needs_key=not local)
    service, of_service = _service(paths)
    if local:
        settings = _embedded(paths, service) or settings
    hosts = [] if local and not service.running else asyncio.run(probe(settings))
    findings += check_hosts(hosts, bool(settings.api_key), os.environ, local)
    findings += _tinker()
    found, screen, folders = versions(), this_terminal(), directories(paths)
    return Report(
        settings=settings_of(places),
        hosts=hosts,
        versions=found,
        terminal=screen,
        directories=folders,
        service=service,
        findings=[
            *findings,
            *check_versions(found),
            *check_terminal(screen),
            check_config(os.environ),
            *check_directories(folders, paths.service_file, os.environ),
            *of_service,
            *([] if service.running else check_data(look_into(paths.data))),
            *check_leftovers(paths.data),
        ],
    )


def _tinker() -> list[Finding]:
    options, findings = tinker_settings(os.environ)
    if options is None:
        return findings
    url = f"{options.url}/api/v1/healthz"
    host = asyncio.run(probe_url("tinker", url, options.is_loopback))
    return [check_tinker(options, host)]


def _service(paths: Paths) -> tuple[Service, list[Finding]]:
    try:
        ready = _named(paths)
    except HudUsage as error:
        wrong = Finding("service", "failure", error.message, error.hint, error.exit_code)
        return Service(False), [wrong]
    if ready is None:
        return Service(False), [Finding("service", "ok", "the embedded service is not running")]
    if not alive(ready.pid):
        message = "the embedded service ended without a word"
        fix = f"hud-tui --local starts it again; its log is {paths.service_log}"
        return Service(False), [Finding("service", "warning", message, fix)]
    found = Finding("service", "ok", f"the embedded service runs as process {ready.pid}")
    return Service(True, ready.pid, shown_url(ready.url)), [found]


def _named(paths: Paths) -> ServiceReady | None:
    """The service that ``--local`` would find, or that lived last."""
    found = [ready for _, ready in named(paths)]
    return next((ready for ready in found if alive(ready.pid)), found[0] if found else None)


def _embedded(paths: Paths, service: Service) -> Settings | None:
    ready = _named(paths) if service.running else None
    return local_settings(ready.url, ready.api_key, ready.telemetry_url) if ready else None
