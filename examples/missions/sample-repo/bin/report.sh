# Prints a report from a survey and the extremes; UNIT names the unit of heights.
set -eu
echo "# Tides"
echo
sed 's/^/- /' "$1"
echo
echo "| station | day | lowest, $UNIT | highest, $UNIT |"
echo "|---|---|---|---|"
sed 's/,/ | /g; s/^/| /; s/$/ |/' "$2"
