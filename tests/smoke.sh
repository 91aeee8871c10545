#!/bin/sh
# Tries the fairlead that is installed: the paper's 3 and 2, a job and a Python call. Run in clean containers before a release.
set -eu
folder=$(mktemp -d)
cd "$folder"
export FAIRLEAD_HOME="$folder/home"
trap 'code=$?; [ $code = 0 ] || cat up.log >&2; fairlead down --now >/dev/null 2>&1 || true; rm -rf "$folder"; exit $code' EXIT
fairlead --version
cat > paper.json <<'JSON'
{"capacity": {"cpu": 9, "memory": "18Gi"},
 "user": [{"name": "A", "demand": {"cpu": 1, "memory": "4Gi"}}, {"name": "B", "demand": {"cpu": 3, "memory": "1Gi"}}]}
JSON
fairlead allocate paper.json --policy drf --json > answer.json
grep -q '"tasks": 3' answer.json
grep -q '"tasks": 2' answer.json
fairlead up >up.log 2>&1 &
tries=0
until grep -q 'ready at' up.log; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || exit 1
    sleep 0.1
done
fairlead run --memory 64Mi -- echo it runs | grep 'it runs'
"${PYTHON:-python3}" -c 'if True:
    import fairlead
    with fairlead.Client(memory="64MiB") as client:
        print(client.submit(pow, 2, 5).result())'
fairlead down
