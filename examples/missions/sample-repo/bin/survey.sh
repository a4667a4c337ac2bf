# Writes how many files, readings and stations there are to the file named.
set -eu
out=$1
mkdir -p "$(dirname "$out")"
{
  echo "files: $(find readings -name '*.csv' | wc -l | tr -d ' ')"
  echo "readings: $(cat readings/*.csv | grep -vc '^station,')"
  echo "stations: $(cat readings/*.csv | grep -v '^station,' | cut -d, -f1 | sort -u | tr '\n' ' ' | sed 's/ $//')"
} > "$out"
cat "$out"
