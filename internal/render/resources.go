package render

import (
	"fmt"
	"strconv"
	"strings"

	"tidewait/internal/capacity"
)

// cpus returns thousandths of a CPU as a decimal number without trailing zeros.
func cpus(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
}

// resources lists what of r is not zero: "2 CPU, 2208 MiB memory, 1 slot".
func resources(r capacity.Resources) string {
	var parts []string
	if r.CPUMilli != 0 {
		parts = append(parts, cpus(r.CPUMilli)+" CPU")
	}
	if r.MemoryMiB != 0 {
		parts = append(parts, fmt.Sprintf("%d MiB memory", r.MemoryMiB))
	}
	if r.DiskMiB != 0 {
		parts = append(parts, fmt.Sprintf("%d MiB disk", r.DiskMiB))
	}
	if r.Slots != 0 {
		parts = append(parts, count(r.Slots, "slot"))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// count returns "1 slot", "2 slots".
func count(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// ordinal returns "1st", "2nd", "3rd", "4th", "11th".
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
