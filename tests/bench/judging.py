"""What one judgement costs, piece by piece, on this machine.

    make bench            # microseconds, medians

Beside `bash -n` on the same command in the same run: a ratio that travels.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from holdfast.activities.builtin.shell import Shell
from holdfast.activities.gate.gate import Gate
from holdfast.activities.policy.grants import build_offers, find_covering_grant
from holdfast.activities.policy.load_policy import load_policy
from holdfast.activities.policy.subject import build_call_subject
from holdfast.activities.process.output_store import OutputStore
from holdfast.activities.registry.registry import Registry
from holdfast.activities.shell.analyze import analyse_command
from holdfast.domain.approvals.approval import Approver, Decision, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.approvals.signing import check_signature, format_public_key, sign_decision
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.modes import Mode

ROUNDS = 300
COMMAND = "cd src && git log --oneline -5 | grep -v '^x' && FOO=1 timeout 5 env BAR=2 make -j4 test || echo failed"
DECISION = Decision.model_validate({"approval_id": "turn/b1c1/1", "digest": "d" * 64, "outcome": "yes", "by": "ana"})


def _median(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1_000_000


def _grants(count: int) -> list[Grant]:
    scopes = [Scope(tool="shell", server="", command=(f"make target-{number} $",)) for number in range(count)]
    return [Grant(id=f"g{at}", scope=one, covers="", decision=DECISION, given_at=_NOW) for at, one in enumerate(scopes)]


_NOW = datetime.now(UTC)


def main() -> None:
    """Print one line for each piece."""
    policy, subject = load_policy(()), build_call_subject("shell", {"command": COMMAND})
    key = Ed25519PrivateKey.generate()
    approvers = (Approver(name="ana", key=format_public_key(key.public_key())),)
    signed, grants = sign_decision(DECISION, key), _grants(200)
    with tempfile.TemporaryDirectory() as folder:
        gate = Gate(Registry([Shell(OutputStore(Path(folder)))]), Path(folder), policy)
        request = CallRequest(tool="shell", arguments={"command": COMMAND})
        loop = asyncio.new_event_loop()
        bash = _median(lambda: subprocess.run(["bash", "-n", "-c", COMMAND], check=True), 50)
        lines = {
            "bash -n, to compare": bash,
            "analysis of a command": _median(lambda: analyse_command(COMMAND)),
            "policy, analysis included": _median(lambda: policy.find_ruling(subject, Mode.DEFAULT)),
            "offers of standing answers": _median(lambda: build_offers(subject, "d", None)),
            "200 grants looked through": _median(lambda: find_covering_grant(grants, subject, "d", _NOW)),
            "a signature checked": _median(lambda: check_signature(signed, approvers, _NOW)),
            "the whole judgement": _median(lambda: loop.run_until_complete(gate.judge(request))),
        }
        loop.close()
    print(f"{'one judgement':<32}{'median':>12}{'of bash -n':>12}")
    for name, taken in lines.items():
        print(f"{name:<32}{taken:>9,.0f} µs{taken / bash:>12.2f}")


if __name__ == "__main__":
    main()
