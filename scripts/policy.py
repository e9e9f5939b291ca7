"""Provides a base policy in a folder: copies a folder, builds it from its recipe, or takes it from the hub."""

import argparse
from pathlib import Path

from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import PolicyJob, read_section
from ebpo.files import write_json
from ebpo.policy.provide import provide


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the policy job (YAML)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the policy to")
    parser.add_argument("--manifest", type=Path, required=True, help="JSON with the policy's digest")
    args = parser.parse_args()
    digest = provide(read_section(args.config, TypeAdapter(PolicyJob)), args.out, args.threads)
    write_json(args.manifest, {"sha256": digest})


if __name__ == "__main__":
    run(main)
