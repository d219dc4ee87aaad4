"""Run the campaigns: see `python -m fuzz --help`."""

import argparse
import sys
import time

from fuzz.inputs import Campaign


def main() -> int:
    """Run what the arguments ask for; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("what", choices=("inputs", "kills"))
    parser.add_argument("--seconds", type=float, default=120.0, help="stop after so long")
    parser.add_argument("--most", type=int, default=10**9, help="inputs or kills, at most")
    parser.add_argument("--seed", type=int, default=None, help="new every day by default")
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", default="", help="kill only commands with this in their words")
    given = parser.parse_args()
    seed = int(time.time() // 86_400) if given.seed is None else given.seed
    if given.what == "kills":
        from fuzz.kills import run_kills

        return run_kills(seed, given.seconds, given.most, given.only)
    campaign = Campaign(seed)
    campaign.run(given.seconds, given.most, given.start)
    print(f"seed {seed}: {campaign.num_inputs:,} inputs, {len(campaign.complaints)} complaints")
    return 1 if campaign.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
