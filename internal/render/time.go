package render

import (
	"fmt"
	"time"
)

// Duration returns d in the one or two units a person would use: "300 ms",
// "6 s", "41 min", "5 h 12 min", "3 d 4 h". Parts below the last unit are cut.
func Duration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d == 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	const day = 24 * time.Hour
	return fmt.Sprintf("%d d %d h", d/day, d%day/time.Hour)
}

// clock returns t in UTC, with its date unless that is today's.
func (o Options) clock(t time.Time) string {
	t, now := t.UTC(), o.Now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05Z")
	}
	return t.Format("2006-01-02 15:04:05Z")
}

// relative returns t as people say it: "6 s ago", "in 31 min".
func (o Options) relative(t time.Time) string {
	if t.After(o.Now) {
		return "in " + Duration(t.Sub(o.Now))
	}
	return Duration(o.Now.Sub(t)) + " ago"
}

// moment returns t both ways: "13:00:01Z (6 s ago)".
func (o Options) moment(t time.Time) string { return o.clock(t) + " (" + o.relative(t) + ")" }

// span returns how long something took or has taken, with its ends.
func (o Options) span(start time.Time, end *time.Time) string {
	if end == nil {
		return Duration(o.Now.Sub(start)) + " (since " + o.clock(start) + ")"
	}
	return Duration(end.Sub(start)) + " (" + o.clock(start) + " to " + o.clock(*end) + ")"
}

// manyHours is from when on a bound is told in hours.
const manyHours = 10 * time.Hour

// elapsedOf returns how much of a bound is used: "41 min of 120". Bounds of two
// minutes and more count in minutes, very long ones in hours, short ones in
// seconds; the unit is repeated only where the two differ.
func elapsedOf(elapsed, bound time.Duration) string {
	elapsed = max(elapsed, 0)
	hours := bound.Round(time.Hour) / time.Hour
	switch {
	case bound >= manyHours && elapsed < time.Minute:
		return fmt.Sprintf("%d s of %d h", elapsed/time.Second, hours)
	case bound >= manyHours && elapsed < 2*time.Hour:
		return fmt.Sprintf("%d min of %d h", elapsed/time.Minute, hours)
	case bound >= manyHours:
		return fmt.Sprintf("%d h of %d", elapsed/time.Hour, hours)
	case bound < 2*time.Minute:
		return fmt.Sprintf("%d s of %d", elapsed/time.Second, bound.Round(time.Second)/time.Second)
	case elapsed < time.Minute:
		return fmt.Sprintf("%d s of %d min", elapsed/time.Second, bound.Round(time.Minute)/time.Minute)
	}
	return fmt.Sprintf("%d min of %d", elapsed/time.Minute, bound.Round(time.Minute)/time.Minute)
}
