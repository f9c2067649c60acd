#!/usr/bin/env bash
# The tour: real data goes in, a certified model comes out, a second program checks it. `make demo` runs this with
# coremargin on PATH. Everything lands in ./demo; what an earlier tour left there is made anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

run python jobs/demo_data.py demo

run coremargin ingest demo/digits.X.npy demo/digits.zarr --labels demo/digits.y.npy --only 1,8
run coremargin run jobs/demo.toml
run coremargin verify demo/digits.model demo/digits.zarr

run coremargin ingest demo/cancer.csv demo/cancer.zarr --label diagnosis
run coremargin train demo/cancer.zarr --out demo/cancer.model --epsilon 1e-3
run coremargin verify demo/cancer.model demo/cancer.zarr

printf '\nTwo certified models. Open their reports in a browser:\n'
printf '  %s\n' "$PWD/demo/digits.model/report.html" "$PWD/demo/cancer.model/report.html"
