package mission

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tidewait/internal/quantity"
)

// Bounds and defaults of what one machine gets.
const (
	minCPUMilli, maxCPUMilli   = 100, 256_000
	minMemoryMiB, maxMemoryMiB = 128, 16 << 20
	minDiskMiB, maxDiskMiB     = 64, 256 << 20

	minDuration = 10 * time.Second
)

const (
	cpusHint     = "write for example 2, 0.5 or 500m"
	sizeHint     = "write for example 512Mi or 2Gi"
	durationHint = "write for example 90s, 30m or 2h"
)

// cpus reads a number of CPUs such as 2, 0.5 or 500m and returns thousandths.
func (r *reader) cpus(v value) int64 {
	milli, problem := parseCPUs(v.Value)
	switch {
	case v.Kind != yaml.ScalarNode || isNull(v.Node):
		r.refuse(v, "is not a number of CPUs", cpusHint)
	case problem != "":
		r.refuse(v, problem, cpusHint)
	case milli < minCPUMilli:
		r.refuse(v, "is too little", "write 0.1 or more")
	case milli > maxCPUMilli:
		r.refuse(v, "is too much", "write 256 or less")
	}
	return milli
}

// parseCPUs works in decimal, so that 0.1 is exactly a hundred thousandths.
func parseCPUs(text string) (milli int64, problem string) {
	const notNumber = "is not a number of CPUs"
	if digits, ok := strings.CutSuffix(text, "m"); ok {
		n, err := strconv.ParseUint(digits, 10, 40)
		if err != nil {
			return 0, notNumber
		}
		return int64(n), ""
	}
	units, thousandths, dotted := strings.Cut(text, ".")
	whole, err := strconv.ParseUint(units, 10, 30)
	if err != nil || dotted && !isDigits(thousandths) {
		return 0, notNumber
	}
	thousandths = strings.TrimRight(thousandths, "0")
	if len(thousandths) > 3 {
		return 0, "is finer than a thousandth of a CPU"
	}
	part, _ := strconv.ParseUint((thousandths + "000")[:3], 10, 16)
	return int64(whole*1000 + part), ""
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// size reads an amount of memory or disk such as 512Mi and returns mebibytes.
func (r *reader) size(v value, least, most int64) int64 {
	switch {
	case v.Kind == yaml.ScalarNode && v.ShortTag() == "!!int":
		r.refuse(v, "has no unit", sizeHint)
		return 0
	case v.Kind != yaml.ScalarNode || v.ShortTag() != "!!str":
		r.refuse(v, "is not a quantity", sizeHint)
		return 0
	}
	mib, err := quantity.MiB(v.Value)
	switch {
	case err != nil:
		r.refuse(v, "is not a quantity", sizeHint)
	case mib < least:
		r.refuse(v, "is too little", "write "+strconv.FormatInt(least, 10)+"Mi or more")
	case mib > most:
		r.refuse(v, "is too much", "write "+strconv.FormatInt(most>>20, 10)+"Ti or less")
	}
	return mib
}

// duration reads a time span such as 90s, 30m or 2h. Its upper bound is the
// fleet's, which a document does not know: see [Spec.Bounds].
func (r *reader) duration(v value) time.Duration {
	if v.Kind == yaml.ScalarNode && v.ShortTag() == "!!int" {
		r.refuse(v, "has no unit", durationHint)
		return 0
	}
	d, err := time.ParseDuration(v.Value)
	switch {
	case v.Kind != yaml.ScalarNode || err != nil:
		r.refuse(v, "is not a duration", durationHint)
	case d < minDuration:
		r.refuse(v, "is too short", "write 10s or more")
	}
	return d
}
