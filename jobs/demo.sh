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

# Few labels: which of all images are zeros? A file plays the person who answers. One that people went on with stays.
run coremargin ingest demo/digits.X.npy demo/zeros.zarr --unlabelled
[ -e demo/zeros.campaign ] || run coremargin active start demo/zeros.zarr --out demo/zeros.campaign --classes other,zero
run coremargin active run demo/zeros.campaign --oracle demo/zeros.txt --batch 8 --quiet
run coremargin verify demo/zeros.campaign demo/zeros.zarr

printf '\nThree certified models. Open their reports in a browser:\n'
printf '  %s\n' "$PWD/demo/"{digits.model,cancer.model,zeros.campaign/model}/report.html
printf '\nThe campaign on its page, and one that waits for your own answers:\n'
printf '  %s\n' 'coremargin active page demo/zeros.campaign --pixels 8x8' \
    'coremargin active start demo/zeros.zarr --out demo/mine.campaign --classes other,zero --error 0.05' \
    'coremargin active page demo/mine.campaign --pixels 8x8'
