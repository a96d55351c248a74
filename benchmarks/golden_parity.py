"""Compare dysens with PaddleSlim's golden results at every point: groups, channels, sensitivities, ratios, FLOPs.

Run it in both stacks, from the repository: ``python benchmarks/golden_parity.py``. It takes some minutes. The exit code
says whether everything agrees: sensitivities within 2e-3 (one image of 597 may flip), ratios within 1e-2, the rest exactly.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

from golden import INPUT_SHAPE, accuracy_of, golden_results, trained  # noqa: E402

from dysens import DygraphSensitivity  # noqa: E402

LOSS_TOLERANCE, RATIO_TOLERANCE = 2e-3, 1e-2


def compare(name: str, criterion: str) -> bool:
    expected = golden_results(name)["criteria"][criterion]
    model = trained(name)
    ds = DygraphSensitivity(model, INPUT_SHAPE, criterion=criterion)
    ours = {group.name: {tuple(pair) for pair in group.members} for group in ds.groups}
    golden = {master: {tuple(pair) for pair in members} for master, members in expected["groups"].items()}
    same = sum(ours.get(master) == members for master, members in golden.items())
    print(
        f"{name}, {criterion}: {same} of {len(golden)} groups have the same members; dysens has {len(ours)}"
    )
    channels = sum(
        _removed_at_half(ds, master) == gone for master, gone in expected["pruned_channels_at_half"].items()
    )
    print(f"  {channels} of {len(golden)} groups lose the same channels at ratio 0.5")
    agree = same == channels == len(golden)
    return (_compare_sweep(name, model, ds, expected) and agree) if "sensitivities" in expected else agree


def _removed_at_half(ds: DygraphSensitivity, master: str) -> list[int]:
    path = next(group.path for group in ds.groups if group.name == master)
    with ds.pruned({master: 0.5}) as outcome:
        return sorted(next(c for c in outcome.plan.cuts if (c.tensor, c.axis) == (path, 0)).removed)


def _compare_sweep(name: str, model: object, ds: DygraphSensitivity, expected: dict) -> bool:
    start = time.perf_counter()
    sens = ds.sensitive(accuracy_of(model), target_vars=list(expected["sensitivities"]))
    losses = {
        (master, float(ratio)): abs(sens[master][float(ratio)] - loss)
        for master, curve in expected["sensitivities"].items()
        for ratio, loss in curve.items()
    }
    worst = max(losses, key=losses.__getitem__)
    differing = sum(difference > 1e-6 for difference in losses.values())
    print(f"  baseline {sens.baseline:.6f}, golden {golden_results(name)['baseline']:.6f}")
    print(f"  {len(losses)} points in {time.perf_counter() - start:.0f} s, {differing} of them not equal")
    print(f"  largest difference of a loss: {losses[worst]:.2e} ({worst[0]} at {worst[1]})")
    ratios = sens.ratios_by_loss(0.05, monotone=False)
    golden = expected["ratios_at_loss_0.05"]
    apart = max((abs(ratios.get(master, 0.0) - ratio) for master, ratio in golden.items()), default=0.0)
    print(f"  ratios at loss 0.05: {len(golden)} golden, {len(ratios)} ours, largest difference {apart:.2e}")
    with ds.pruned(golden) as outcome:
        accuracy = accuracy_of(model)()
    print(f"  FLOPs after the golden cut: {outcome.flops_after} (golden {expected['flops_after']})")
    print(f"  accuracy after it: {accuracy:.6f} (golden {expected['accuracy_after']:.6f})", flush=True)
    return (
        losses[worst] <= LOSS_TOLERANCE
        and set(ratios) == set(golden)
        and apart <= RATIO_TOLERANCE
        and outcome.flops_after == expected["flops_after"]
        and abs(accuracy - expected["accuracy_after"]) <= LOSS_TOLERANCE
    )


def main() -> int:
    names = sys.argv[1:] or ["tiny_resnet", "mobilenet_v1", "mobilenet_v3"]
    agreed = [compare(name, criterion) for name in names for criterion in ("fpgm", "l1")]
    print("everything agrees" if all(agreed) else "SOMETHING DIFFERS")
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
