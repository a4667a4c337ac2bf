package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// parse reads one value as it is written in a file, a variable or a flag. ok is
// false when the text is no value of the key's type; wanted says what is.
func parse(t reflect.Type, text string) (value any, ok bool) {
	if t == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		return d, err == nil
	}
	switch t.Kind() {
	case reflect.String:
		return text, true
	case reflect.Bool:
		return text == "true", text == "true" || text == "false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, t.Bits())
		return reflect.ValueOf(n).Convert(t).Interface(), err == nil
	case reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
	case reflect.Slice:
		return splitList(text), true
	case reflect.Map:
		return splitMap(text)
	default:
		return nil, false
	}
}

// wanted says in words what parse accepts.
func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return "want a duration such as 90s, 5m or 1h30m"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "want true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("want a whole number of at most %d bits", t.Bits())
	case reflect.Float64:
		return "want a number such as 4 or 1.5"
	case reflect.Slice:
		return "want a list such as [a, b]"
	case reflect.Map:
		return "want pairs of a name and a value, each name once"
	default:
		return "want text"
	}
}

// splitList reads a,b as two elements; empty text is an empty list.
func splitList(text string) []string {
	list := []string{}
	for element := range strings.SplitSeq(text, ",") {
		if element = strings.TrimSpace(element); element != "" {
			list = append(list, element)
		}
	}
	return list
}

// splitMap reads a=1,b=2 as two pairs.
func splitMap(text string) (map[string]string, bool) {
	pairs := map[string]string{}
	for _, pair := range splitList(text) {
		name, value, found := strings.Cut(pair, "=")
		if _, twice := pairs[name]; twice || !found {
			return nil, false
		}
		pairs[name] = value
	}
	return pairs, true
}

// written is a value of Settings as a person would write it.
func written(value any) string {
	switch value := value.(type) {
	case time.Duration:
		return short(value)
	case []string:
		return strings.Join(value, ",")
	default:
		return fmt.Sprint(value)
	}
}

// short is a duration without units that are zero: 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
