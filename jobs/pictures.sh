#!/usr/bin/env bash
# Draw report.png and fleet.png from the models of the tour and of the guide: `make pictures`. It needs chromium on PATH
# (Debian: apt-get install chromium fonts-liberation). Look at both before they are committed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

shot() { # shot REPORT PICTURE WIDTH,HEIGHT
    local root=() page
    page=$(mktemp --suffix .html)
    sed "s#$PWD/##g" "$1" >"$page" # paths as they are typed
    [ "$(id -u)" != 0 ] || root=(--no-sandbox)
    chromium --headless "${root[@]}" --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
        --user-data-dir="$(mktemp -d)" --window-size="$3" --screenshot="$PWD/$2" "file://$page" 2>/dev/null
    rm "$page"
}

shot demo/digits.model/report.html jobs/report.png 1100,1540

coremargin ingest demo/digits.X.npy demo/ten.zarr --labels demo/digits.y.npy --overwrite --quiet
coremargin train demo/ten.zarr --out demo/ten.model --overwrite --quiet \
    --classes ovr --loss hinge --C 0.01,0.1,1,10 --folds 5
shot demo/ten.model/report.html jobs/fleet.png 1200,1330
