"""Whether the official `prime` CLI and hud-tui agree on what an API says: run by `prime_cli`.

usage: prime_agrees.py PATH/TO/prime PATH/TO/python
"""

import json
import subprocess
import sys
from typing import Any


def main(prime: str, python: str) -> None:
    """See, rent and end pods with either, and look at the result with the other."""

    def official(*words: str) -> Any:
        out = run([prime, *words, "-o", "json"])
        return json.loads(out[out.index("{") :])

    def ours(*words: str) -> Any:
        out = run([python, "-m", "hud_tui", "--headless", "pods", *words])
        return json.loads(out.splitlines()[-1])["data"]

    seen = official("availability", "list")["gpu_resources"]
    offers = ours("available")["offers"]
    agree(
        "availability",
        sorted((one["cloud_id"], one["gpu_count"], one["price_value"]) for one in seen),
        sorted((offer["cloud_id"], offer["gpu_count"], offer["price_hr"]) for offer in offers),
    )
    for region in ("eu_north", "united_states"):
        there = official("availability", "list", "--regions", region)["gpu_resources"]
        found = ours("available", "--region", region)["offers"]
        agree(
            region,
            sorted(one["cloud_id"] for one in there),
            sorted(one["cloud_id"] for one in found),
        )
    [first] = [one for one in seen if one["gpu_type"].startswith("H100")]
    flags = ("--name", "by-prime", "--disk-size", "200", "--vcpus", "32", "--memory", "128")
    flags = (*flags, "--image", "ubuntu_22_cuda_12", "--team-id", "t1", "--yes")  # type: ignore[assignment]
    run([prime, "pods", "create", "--id", first["id"], *flags])
    [other] = ours("list")["others"]
    [pod] = official("pods", "list")["pods"]
    agree("list", pod["id"], other["id"])
    for _ in range(3):  # looks, until it is ready
        status = official("pods", "status", pod["id"])
    agree("status", status["status"], "ACTIVE")
    agree("ssh", status["ssh"], "root@127.0.0.1 -p 22")
    run([prime, "pods", "terminate", pod["id"], "--yes"])
    agree("terminate", ours("list")["others"], [])
    [past] = official("pods", "history")["history"]
    agree("history", past["id"], pod["id"])
    print("the official prime CLI and hud-tui agree")


def run(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def agree(what: str, one: object, other: object) -> None:
    if one != other:
        sys.exit(f"{what}: {one!r} is not {other!r}")
    print(f"{what}: {one!r}"[:200])


if __name__ == "__main__":
    main(*sys.argv[1:])
