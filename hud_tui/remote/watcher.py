"""The watcher: a service on a rented pod that terminates it when its budget is used up.

It counts the seconds that it was given from the pod's own boot, never by a wall clock, so that
neither machine's clock moves the end. It is started again after a kill or a reboot, where the pod
has systemd or cron, and writes a heartbeat that `read_heartbeat` reads.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from hud_tui.remote.facts import BOOT_CLOCK
from hud_tui.remote.ssh import Ssh, quote
from hud_tui.rl.text import one_line

EVERY_S = 30
"""Seconds between two heartbeats."""
MISSED = 4
"""Heartbeats without which it counts as dead."""
_WATCHER = r"""
# Ends this machine when its hours are spent or nobody uses it; made by hud-tui.
W=$HOME/.hud-tui/watcher; umask 077
say() {
  [ "$(wc -c < "$W/log" 2>/dev/null || echo 0)" -gt 1000000 ] && mv "$W/log" "$W/log.1"
  echo "$(date) $*" >> "$W/log"
}
beat() {  # what it does now, and how far it has counted
  echo "$ID $(boot) $now $(date +%s) $spent $idle $*" > "$W/beat.$$" &&
    mv "$W/beat.$$" "$W/heartbeat"
}
number() { case $1 in ''|*[!0-9]*) return 1 ;; esac; }
resume() {  # continue the count of a watcher that ended, or of one before a reboot
  spent=0
  read -r id was_boot was_up was_wall was_spent rest < "$W/heartbeat" || return 0
  [ "$id" = "$ID" ] && number "$was_up" && number "$was_wall" && number "$was_spent" || return 0
  if [ "$was_boot" = "$(boot)" ]; then
    spent=$((was_spent + now - was_up))
  else
    # What a clock says of the time between is believed up to five minutes: it may have been set.
    off=$(($(date +%s) - now - was_wall))
    { [ "$off" -ge 0 ] && [ "$off" -le 300 ]; } || {
      say "restarted; by its clock it was off for $off s, which are not counted"; off=0; }
    spent=$((was_spent + off + now))
  fi
}
newest() {  # when it was last used: a change of this counts, not the time itself
  for file in "$HOME"/.hud-tui/*/used "$HOME"/.hud-tui/*/state/service.db-wal \
    "$HOME"/.hud-tui/*/jobs/*/log; do
    [ -e "$file" ] && { stat -L -c %Y "$file" 2>/dev/null || stat -L -f %m "$file"; }
  done | sort -n | tail -n 1
}
bounded() { if command -v timeout >/dev/null 2>&1; then timeout 20 "$@"; else "$@"; fi; }
busy() {
  command -v nvidia-smi >/dev/null 2>&1 || return 1
  bounded nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits |
    grep -q '[1-9][0-9]'
}
delete() {  # whether Prime has ended the pod, or does not know it any more
  code=$(curl -sS -m 20 -o /dev/null -w '%{http_code}' -K "$W/key" -X DELETE "$API/pods/$POD" \
    2>> "$W/log")
  say "Prime answered ${code:-nothing} to the end of the pod"
  case $code in 2??|404) return 0 ;; *) return 1 ;; esac
}
end() {
  does="ending: $1"; say "ending this machine: $1"; beat "$does"
  if [ -s "$W/key" ]; then
    for pause in 1 2 4 8 16 0; do delete && break; sleep "$pause"; done
  fi
  for file in "$HOME"/.hud-tui/*/names; do
    [ -f "$file" ] && : > "${file%/names}/stop" && kill "$(cat "${file%/names}/server.pid")"
  done 2>/dev/null
  sync; shutdown -h now || poweroff || kill -TERM 1
  say "asked to shut down"
}
. "$W/budget" || exit 1
now=$(uptime_s); idle=0
if [ "$1" = again ]; then  # by cron, each minute
  read -r id was_boot was_up rest < "$W/heartbeat" && [ "$was_boot" = "$(boot)" ] &&
    number "$was_up" && [ $((now - was_up)) -lt $((EVERY_S * 4)) ] && exit 0
fi
resume
mine="$$ $(boot) $now"; echo "$mine" > "$W/owner"  # the newest goes on, each other one ends
before=none; does=watching
while [ "$(cat "$W/owner")" = "$mine" ]; do
  was=$now; now=$(uptime_s); spent=$((spent + now - was)); used=$(newest)
  busy && used="$now busy"
  [ "$used" = "$before" ] || { before=$used; since=$now; }
  idle=$((now - since))
  beat "$does"
  if [ "$spent" -ge "$LEFT_S" ]; then end "its hours are spent"
  elif [ "$IDLE_S" -gt 0 ] && [ "$idle" -ge "$IDLE_S" ]; then
    end "not used for $((IDLE_S / 60)) min"
  fi
  sleep "$EVERY_S"
done
"""
_UNIT = """\
[Unit]
Description=Ends this machine when its hours are spent or nobody uses it
[Service]
ExecStart=/bin/sh %h/.hud-tui/watcher/run
Restart=always
RestartSec=5
[Install]
WantedBy=default.target
"""
_START = r"""
echo "$ID $(boot) $(uptime_s) $(date +%s) 0 0 installed" > "$W/beat.$$" &&
  mv "$W/beat.$$" "$W/heartbeat"
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
case $(systemctl --user is-system-running 2>/dev/null) in
running|degraded|starting)
  loginctl enable-linger >/dev/null 2>&1
  mkdir -p "$HOME/.config/systemd/user"
  mv "$W/unit" "$HOME/.config/systemd/user/hud-tui-watcher.service"
  systemctl --user daemon-reload && systemctl --user enable hud-tui-watcher >/dev/null 2>&1 &&
    systemctl --user restart hud-tui-watcher && started=systemd ;;
esac
[ -z "$started" ] && {
  group=; command -v setsid >/dev/null 2>&1 && group=setsid
  $group nohup sh "$W/run" >/dev/null 2>&1 </dev/null &
  started=none; command -v crontab >/dev/null 2>&1 && {
    crontab -l 2>/dev/null | grep -v "/.hud-tui/watcher/run"
    echo "* * * * * /bin/sh '$W/run' again >/dev/null 2>&1"
  } | crontab - && started=cron
}
echo "$started" > "$W/started"
n=0; until grep -Eq "^$ID .* (watching|ending)" "$W/heartbeat"; do
  n=$((n + 1)); [ $n -gt 100 ] && { echo "the watcher did not start" >&2; return 1; }; sleep 0.1
done
"""
_READ = f"""{BOOT_CLOCK}
W=$HOME/.hud-tui/watcher
cat "$W/heartbeat" 2>/dev/null || echo
boot; uptime_s
cat "$W/started" 2>/dev/null || echo
sed -n 's/^LEFT_S=//p; s/^EVERY_S=//p' "$W/budget" 2>/dev/null
:
"""


@dataclass(frozen=True)
class Heartbeat:
    """What a pod's watcher last wrote."""

    age_s: int
    """Seconds since then, by the pod's own boot clock."""
    left_s: int
    """Seconds until it ends the pod because its hours are spent."""
    does: str
    """``watching``, or ``ending: `` and why."""
    again: str
    """What starts it again: ``systemd``, ``cron``, or ``none``."""
    every_s: int = EVERY_S
    """Seconds between two heartbeats."""

    @property
    def alive(self) -> bool:
        """Whether it still runs, as far as its heartbeats say."""
        return self.age_s < self.every_s * MISSED


async def install_watcher(
    ssh: Ssh, pod: str, left_s: float, idle_s: int, api: str, key: str = ""
) -> Heartbeat:
    """Start the watcher of a pod; one that is running ends, and this budget replaces its own:
    `left_s`, seconds from now after which the pod is to end, and `idle_s`, seconds without use, 0
    for never. `pod`: Prime's id; `api`: URL of Prime's API, to which the watcher sends a DELETE if
    it has a `key` there, which stays if none is given. Raises ScriptFailed: it did not start."""
    budget: Mapping[str, object] = {
        "ID": secrets.token_hex(8),
        "LEFT_S": max(0, int(left_s)),
        "IDLE_S": idle_s,
        "EVERY_S": EVERY_S,
        "POD": pod,
        "API": api,
    }
    files = {
        "budget": "\n".join(f"{name}={quote(value)}" for name, value in budget.items()),
        "run": f"#!/bin/sh\n{BOOT_CLOCK}{_WATCHER}",
        "unit": _UNIT,
    }
    if key:
        files["key"] = f'header = "Authorization: Bearer {key}"'
    script = 'W="$HOME/.hud-tui/watcher"; umask 077; mkdir -p "$W" || return 1\n'
    for name, text in files.items():
        end = f"EOF-{secrets.token_hex(8)}"
        script += f'cat > "$W/{name}.part" <<\'{end}\' && mv "$W/{name}.part" "$W/{name}"\n'
        script += f"{text}\n{end}\n"
    await ssh.check(f'{script}{BOOT_CLOCK}. "$W/budget"; started=\n{_START}')
    heartbeat = await read_heartbeat(ssh)
    assert heartbeat is not None, "the script has waited for it"
    return heartbeat


async def read_heartbeat(ssh: Ssh) -> Heartbeat | None:
    """What the pod's watcher last wrote; None if there is none, or if it cannot be understood."""
    lines = (await ssh.check(_READ)).splitlines()
    if len(lines) != 6:
        return None
    beat, boot, now, again, left, every = lines
    words = beat.split(maxsplit=6)
    numbers = [*words[2:6], now, left.strip("'"), every.strip("'")]
    if len(words) != 7 or not all(number.isascii() and number.isdigit() for number in numbers):
        return None
    was_up, _, spent, _, now_up, left_s, every_s = (int(number[:12]) for number in numbers)
    # Before a reboot it counted from another start: it has not been heard since this one.
    age_s = now_up - was_up if words[1] == boot else now_up
    return Heartbeat(
        max(0, age_s), left_s - spent - age_s, one_line(words[6], 200), one_line(again, 20), every_s
    )
