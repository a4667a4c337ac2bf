# Fails when the report lacks a station of the readings.
set -eu
for station in $(cat readings/*.csv | grep -v '^station,' | cut -d, -f1 | sort -u); do
  if ! grep -q "^| $station |" "$1"; then
    echo "the report says nothing about $station" >&2
    exit 1
  fi
done
echo "the report names every station"
