# Prints station,day,lowest,highest for each station and day of the readings.
BEGIN { FS = OFS = "," }
FNR == 1 { next }
{
  key = $1 OFS substr($2, 1, 10)
  height = $3 + 0
  if (!(key in low) || height < low[key]) low[key] = height
  if (!(key in high) || height > high[key]) high[key] = height
}
END { for (key in low) print key, low[key], high[key] }
